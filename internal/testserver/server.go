package testserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Server describes one kind of server: how to find, start and probe it.
type Server struct {
	// Name is its name for -only, LOCKGEN_TEST_REQUIRE and scripts/install-servers.
	Name string
	// Env is the environment variable that has the shared server's address for the tests.
	Env string
	// Ports is the number of ports that it listens on. The first is for clients.
	Ports int
	// Syncs reports whether it writes to disk before it answers. Then its folder is in
	// memory, if the system has a file system in memory.
	Syncs bool
	// Find returns the path of the binary, or of a jar.
	Find func() (string, error)
	// Command returns the command to run. It may first write a configuration or
	// initialise a data folder in l.Dir, and may set SysProcAttr.Credential. ctx is only
	// for that; the command is not bound to it.
	Command func(ctx context.Context, l Launch) (*exec.Cmd, error)
	// Probe returns nil as soon as the server at addr answers a client.
	Probe func(ctx context.Context, addr string) error
}

// Servers lists the kinds of server that the wrapper starts.
var Servers = []*Server{redisServer, etcdServer, zookeeperServer, mysqlServer, postgresServer, consulServer}

// Launch has the program, the folder and the ports for a start of a server.
type Launch struct {
	Bin   string // the result of Find
	Dir   string // a folder for this server; other users may read it
	Ports []int  // as many as Server.Ports, all free
	Args  []string
}

// Addr returns the address that clients dial.
func (l Launch) Addr() string { return net.JoinHostPort("127.0.0.1", l.Port()) }

// Port returns the clients' port as a string for a command line.
func (l Launch) Port() string { return strconv.Itoa(l.Ports[0]) }

// installHint returns the command that makes s available.
func (s *Server) installHint() string {
	return fmt.Sprintf("scripts/install-servers %s (or set %s=host:port)", s.Name, s.Env)
}

// required reports whether this run must fail if s is missing.
func (s *Server) required() bool {
	if os.Getenv("CI") == "true" {
		return true
	}
	for name := range strings.SplitSeq(os.Getenv("LOCKGEN_TEST_REQUIRE"), ",") {
		if name == "all" || name == s.Name {
			return true
		}
	}
	return false
}

// findBinary returns the first of names that is in PATH, or in folders that are often missing
// in PATH: the system's sbin for ordinary users, and Homebrew's two prefixes.
func findBinary(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
		for _, dir := range []string{"/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin"} {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("no %s found", strings.Join(names, " or "))
}
