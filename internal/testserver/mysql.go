package testserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var mysqlServer = &Server{
	Name:    "mariadb",
	Env:     "LOCKGEN_TEST_MYSQL",
	Ports:   1,
	Find:    func() (string, error) { return findBinary("mariadbd", "mysqld") },
	Command: mysqlCommand,
	Probe:   probeMySQL,
}

var sharedMySQL = &shared{server: mysqlServer}

// MySQL returns the address of the MariaDB that all tests share: user root, no
// password, no database. Each test should create its own database.
func MySQL(t testing.TB) string {
	t.Helper()
	return sharedMySQL.addr(t)
}

// StartMySQL starts a private MariaDB; see [MySQL]. The args follow the defaults on the
// command line. It keeps its data over a Restart.
func StartMySQL(t testing.TB, args ...string) *Instance {
	t.Helper()
	return startPrivate(t, mysqlServer, args)
}

func mysqlCommand(ctx context.Context, l Launch) (*exec.Cmd, error) {
	data := filepath.Join(l.Dir, "data")
	var user []string // mysqld runs as root only with this option
	if os.Getuid() == 0 {
		user = []string{"--user=root"}
	}
	if _, err := os.Stat(data); errors.Is(err, os.ErrNotExist) {
		if err := installMySQL(ctx, l.Dir, data, user); err != nil {
			return nil, err
		}
	}
	args := append([]string{
		"--no-defaults",
		"--datadir=" + data,
		"--port=" + l.Port(),
		"--bind-address=127.0.0.1",
		"--socket=" + filepath.Join(l.Dir, "m.sock"),
		"--pid-file=" + filepath.Join(l.Dir, "m.pid"),
		"--tmpdir=" + l.Dir, // a server that starts deletes the temporary tables in it, also those of others
		"--skip-log-bin",
		"--skip-name-resolve",
		"--innodb-flush-log-at-trx-commit=0", // tests need not survive a power cut
		"--innodb-buffer-pool-size=32M",
		"--max-connections=500",
	}, append(user, l.Args...)...)
	return exec.Command(l.Bin, args...), nil
}

// installMySQL makes the data folder. The folder has another name until it is complete.
func installMySQL(ctx context.Context, dir, data string, user []string) error {
	bin, err := findBinary("mariadb-install-db", "mysql_install_db")
	if err != nil {
		return err
	}
	fresh := filepath.Join(dir, "fresh")
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	args := append([]string{"--no-defaults", "--datadir=" + fresh, "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve"}, user...)
	install := exec.CommandContext(ctx, bin, args...)
	install.Env = append(os.Environ(), "TMPDIR="+dir) // other servers clear the shared folder when they start
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", bin, err, out)
	}
	return os.Rename(fresh, data)
}

// probeMySQL reads the greeting, whose fifth byte is the version of the protocol. A server that
// is full or still starts sends an error (0xff) instead.
func probeMySQL(ctx context.Context, addr string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	greeting := make([]byte, 5)
	if _, err := io.ReadFull(conn, greeting); err != nil {
		return err
	}
	if greeting[4] != 10 {
		return fmt.Errorf("greeting %x is not protocol 10", greeting)
	}
	return nil
}
