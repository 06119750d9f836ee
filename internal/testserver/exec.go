package testserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Exec starts a server of each kind in only, or of all kinds if only is empty. It runs argv with
// their addresses in the environment, stops the servers, and returns the exit code of argv. If the
// variable of a kind is set already, that server is used. Messages of Exec go to log.
func Exec(ctx context.Context, log io.Writer, only []string, argv []string) (int, error) {
	wanted, err := choose(only)
	if err != nil {
		return 0, err
	}
	// From now on signals go to the command. When it ends, the servers end.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)

	fleet, err := launch(ctx, log, wanted)
	defer fleet.stop()
	if err != nil {
		return 0, err
	}
	return run(argv, fleet.env, signals)
}

func choose(only []string) ([]*Server, error) {
	if len(only) == 0 {
		return Servers, nil
	}
	var wanted []*Server
	for _, name := range only {
		i := slices.IndexFunc(Servers, func(s *Server) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no server %q; there is %s", name, names(Servers))
		}
		wanted = append(wanted, Servers[i])
	}
	return wanted, nil
}

func names(servers []*Server) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Name)
	}
	return strings.Join(all, ", ")
}

// fleet has the servers of one run of Exec.
type fleet struct {
	mu        sync.Mutex // guards the rest while the servers start
	env       []string
	processes []*process
	places    []*place
}

// launch starts the servers in parallel. It returns the servers that started, and the errors of
// the others.
func launch(ctx context.Context, log io.Writer, servers []*Server) (*fleet, error) {
	f := &fleet{}
	errs := make([]error, len(servers))
	var starting sync.WaitGroup
	for i, s := range servers {
		starting.Go(func() { errs[i] = f.add(ctx, log, s) })
	}
	starting.Wait()
	return f, errors.Join(errs...)
}

func (f *fleet) add(ctx context.Context, log io.Writer, s *Server) error {
	say := func(format string, args ...any) {
		f.mu.Lock()
		defer f.mu.Unlock()
		fmt.Fprintf(log, "testserver: "+s.Name+" "+format+"\n", args...)
	}
	if addr := os.Getenv(s.Env); addr != "" {
		say("at %s, from %s", addr, s.Env)
		return nil
	}
	if _, err := s.Find(); err != nil {
		if s.required() {
			return fmt.Errorf("%w; run %s", err, s.installHint())
		}
		say("is missing, so its tests are skipped: %v; run %s", err, s.installHint())
		return nil
	}
	begin := time.Now()
	place, process, err := settle(ctx, s, nil)
	if err != nil {
		return err
	}
	say("at %s, ready in %d ms", place.launch.Addr(), time.Since(begin).Milliseconds())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.env = append(f.env, s.Env+"="+place.launch.Addr())
	f.processes = append(f.processes, process)
	f.places = append(f.places, place)
	return nil
}

func (f *fleet) stop() {
	var stopping sync.WaitGroup
	for i, p := range f.processes {
		stopping.Go(func() {
			p.terminate()
			f.places[i].leave()
		})
	}
	stopping.Wait()
}

// run runs argv to its end. Only argv handles signals.
func run(argv, env []string, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			_ = cmd.Process.Signal(sig)
		case err := <-ended:
			return exitCode(err)
		}
	}
}

// exitCode returns the exit code as a shell does: 128 + n after the signal n.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0, err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
