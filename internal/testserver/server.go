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
	// Name is what -only, LOCKGEN_TEST_REQUIRE and scripts/install-servers call it.
	Name string
	// Env is the variable that carries the shared server's address to the tests.
	Env string
	// Ports says how many ports it listens on. The first is the clients'.
	Ports int
	// Syncs says that it writes to disk before it answers: its folder had better be
	// in memory, where there is such a place.
	Syncs bool
	// Find returns the path of the binary, or of what stands for it (a jar).
	Find func() (string, error)
	// Command returns the command to run, not bound to ctx. It may first write a
	// configuration or initialise a data folder in l.Dir, which ctx is for, and
	// may set SysProcAttr.Credential.
	Command func(ctx context.Context, l Launch) (*exec.Cmd, error)
	// Probe returns nil as soon as the server at addr answers a client.
	Probe func(ctx context.Context, addr string) error
}

// Servers are the kinds that the wrapper starts.
var Servers = []*Server{redisServer, etcdServer, zookeeperServer, mysqlServer, postgresServer, consulServer}

// Launch is what one start of a server has to work with.
type Launch struct {
	Bin   string // as Find returned it
	Dir   string // a folder of its own; others may read it
	Ports []int  // as many as Server.Ports, all free
	Args  []string
}

// Addr is the address that clients dial.
func (l Launch) Addr() string { return net.JoinHostPort("127.0.0.1", l.Port()) }

// Port is the clients' port, as servers want it on their command lines.
func (l Launch) Port() string { return strconv.Itoa(l.Ports[0]) }

// installHint is the line that a person types to make s available.
func (s *Server) installHint() string {
	return fmt.Sprintf("scripts/install-servers %s (or set %s=host:port)", s.Name, s.Env)
}

// required says whether s may not be missing in this run.
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

// findBinary looks for one of names in PATH, then in folders that PATH often
// lacks: the system's sbin for ordinary users, and Homebrew's two prefixes.
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
