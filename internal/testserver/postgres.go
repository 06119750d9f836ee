package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

var postgresServer = &Server{
	Name:    "postgresql",
	Env:     "LOCKGEN_TEST_POSTGRES",
	Ports:   1,
	Find:    findPostgres,
	Command: postgresCommand,
	Probe:   probePostgres,
}

var sharedPostgres = &shared{server: postgresServer}

// Postgres returns the address of the PostgreSQL that all tests share: user
// lockgen, no password, database postgres. Each test should create its own database.
func Postgres(t testing.TB) string {
	t.Helper()
	return sharedPostgres.addr(t)
}

// StartPostgres starts a private PostgreSQL; see [Postgres]. The args
// follow the defaults on the command line: "-c", "max_connections=20". It keeps
// its data over a Restart.
func StartPostgres(t testing.TB, args ...string) *Instance {
	t.Helper()
	return startPrivate(t, postgresServer, args)
}

// findPostgres looks first in the folders of Debian, the newest version first, and then in those
// of other systems.
func findPostgres() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) > 0 {
		return slices.Max(found), nil
	}
	for _, pattern := range []string{"/usr/libexec/postgresql*/postgres", "/opt/homebrew/opt/postgresql*/bin/postgres", "/usr/local/opt/postgresql*/bin/postgres"} {
		if found, _ = filepath.Glob(pattern); len(found) > 0 {
			return slices.Max(found), nil
		}
	}
	return findBinary("postgres")
}

func postgresCommand(ctx context.Context, l Launch) (*exec.Cmd, error) {
	data := filepath.Join(l.Dir, "data")
	if _, err := os.Stat(data); errors.Is(err, os.ErrNotExist) {
		if err := initPostgres(ctx, l, data); err != nil {
			return nil, err
		}
	}
	if err := leftByPostgres(ctx, data); err != nil {
		return nil, err
	}
	args := append([]string{
		"-D", data,
		"-p", l.Port(),
		"-h", "127.0.0.1",
		"-k", l.Dir,
		"-F", // tests need not survive a power cut
		"-c", "synchronous_commit=off",
		"-c", "full_page_writes=off",
		"-c", "max_connections=300",
	}, l.Args...)
	cmd := exec.Command(l.Bin, args...)
	asNobody(cmd)
	return cmd, nil
}

// initPostgres makes the data folder. The folder has another name until it is complete.
func initPostgres(ctx context.Context, l Launch, data string) error {
	if err := giveToNobody(l.Dir); err != nil {
		return err
	}
	fresh := filepath.Join(l.Dir, "fresh")
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	bin := filepath.Join(filepath.Dir(l.Bin), "initdb")
	cmd := exec.CommandContext(ctx, bin, "-D", fresh, "-U", "lockgen", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
	asNobody(cmd)
	cmd.Dir = l.Dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", bin, err, out)
	}
	return os.Rename(fresh, data)
}

// leftByPostgres waits until the processes that a killed server has left behind
// have ended. They use its shared memory, and the next server does not start before it is free.
func leftByPostgres(ctx context.Context, data string) error {
	return untilDetached(ctx, filepath.Join(data, "postmaster.pid"))
}

// probePostgres begins a session. The server refuses it with 57P03 until recovery is
// over.
func probePostgres(ctx context.Context, addr string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	words := "user\x00lockgen\x00database\x00postgres\x00\x00"
	startup := append([]byte{0, 0, 0, byte(8 + len(words)), 0, 3, 0, 0}, words...)
	if _, err := conn.Write(startup); err != nil {
		return err
	}
	answer := make([]byte, 256)
	n, err := conn.Read(answer)
	switch {
	case err != nil:
		return err
	case answer[0] == 'R': // a request for a password, or none needed: the server is up
		return nil
	}
	return fmt.Errorf("refused: %q", answer[:n])
}
