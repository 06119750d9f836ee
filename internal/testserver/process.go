package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	pollEvery    = 5 * time.Millisecond
	readyWithin  = 2 * time.Minute // long enough to create a database on a busy machine
	termPatience = 3 * time.Second
	startTries   = 5
)

// process is one running server.
type process struct {
	server *Server
	launch Launch
	cmd    *exec.Cmd
	alive  context.Context // done when the process has ended and was waited for
	ended  context.CancelFunc
}

// errPortTaken says that another process took the port between our check and the
// server's bind.
var errPortTaken = errors.New("address already in use")

// start starts the server with l and returns when it answers.
func start(ctx context.Context, s *Server, l Launch) (*process, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	cmd, err := s.Command(ctx, l)
	if err != nil {
		return nil, err
	}
	p := &process{server: s, launch: l, cmd: cmd}
	p.alive, p.ended = context.WithCancel(context.Background())
	if err := p.spawn(); err != nil {
		return nil, err
	}
	if err := p.awaitReady(ctx); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// spawn starts the process from a goroutine that keeps its thread until the
// process has ended, because Linux sends the parent-death signal when the thread that
// forked ends, not when the whole parent ends.
func (p *process) spawn() error {
	log, err := os.Create(p.logPath())
	if err != nil {
		return err
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if p.cmd.SysProcAttr == nil {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	ownGroup(p.cmd.SysProcAttr) // a Ctrl-C at the terminal goes to the tests first
	dieWithParent(p.cmd.SysProcAttr)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		_ = log.Close()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
		p.ended()
	}()
	return <-started
}

func (p *process) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := p.probe(ctx)
		if p.alive.Err() != nil { // the probe reached another server
			return p.startError()
		}
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.alive.Done():
			return p.startError()
		case <-ctx.Done():
			return fmt.Errorf("%s at %s not ready: %w\n%s", p.server.Name, p.launch.Addr(), err, p.log())
		}
	}
}

// probe asks the server once whether it is ready. It gives up when the process ends.
func (p *process) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	defer context.AfterFunc(p.alive, cancel)()
	return p.server.Probe(ctx, p.launch.Addr())
}

func (p *process) startError() error {
	log := p.log()
	err := fmt.Errorf("%s ended at once: %s\n%s", p.server.Name, p.cmd.ProcessState, log)
	if strings.Contains(strings.ToLower(log), "address already in use") {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return err
}

func (p *process) logPath() string { return filepath.Join(p.launch.Dir, p.server.Name+".log") }

// log returns the end of the server's output.
func (p *process) log() string {
	text, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	const enough = 4096
	return string(text[max(0, len(text)-enough):])
}

func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// children returns the processes that the server has started, if it still runs.
func (p *process) children() []int {
	if p.alive.Err() != nil {
		return nil
	}
	return childrenOf(p.cmd.Process.Pid)
}

// kill ends the process with SIGKILL, as a power cut would, and waits until it has ended.
func (p *process) kill() {
	children := p.children()
	p.signal(syscall.SIGKILL)
	for _, child := range children { // a stopped child would not notice the parent's end
		_ = killProcess(child)
	}
	<-p.alive.Done()
}

// terminate asks the process to end and kills it if it does not.
func (p *process) terminate() {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.alive.Done():
	case <-time.After(termPatience):
		p.kill()
	}
}

// place is the folder and the ports of a server. They stay the same
// when the server is restarted.
type place struct {
	launch Launch
	ports  *portBlock
}

func (pl *place) leave() {
	pl.ports.release()
	_ = os.RemoveAll(pl.launch.Dir)
}

// settle starts s at a new place. It tries another place if a port was taken.
func settle(ctx context.Context, s *Server, args []string) (*place, *process, error) {
	bin, err := s.Find()
	if err != nil {
		return nil, nil, err
	}
	for try := 1; ; try++ {
		pl, err := newPlace(s, bin, args)
		if err != nil {
			return nil, nil, err
		}
		p, err := start(ctx, s, pl.launch)
		if err == nil {
			return pl, p, nil
		}
		pl.leave()
		if !errors.Is(err, errPortTaken) || try == startTries {
			return nil, nil, err
		}
	}
}

// memoryFolder is Linux's file system in memory.
const memoryFolder = "/dev/shm"

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func newPlace(s *Server, bin string, args []string) (*place, error) {
	parent := ""
	if s.Syncs && isFolder(memoryFolder) {
		parent = memoryFolder
	}
	dir, err := os.MkdirTemp(parent, "lockgen-"+s.Name+"-")
	if err != nil {
		return nil, err
	}
	// A server that runs as another user must be able to read the folder; MkdirTemp allows only its owner.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	ports, err := reservePorts(s.Ports)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return &place{Launch{Bin: bin, Dir: dir, Ports: ports.ports, Args: args}, ports}, nil
}
