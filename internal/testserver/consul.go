package testserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var consulServer = &Server{
	Name:    "consul",
	Env:     "LOCKGEN_TEST_CONSUL",
	Ports:   4,
	Find:    findConsul,
	Command: consulCommand,
	Probe:   probeConsul,
}

var sharedConsul = &shared{server: consulServer}

// Consul returns the address of the Consul agent that all tests share. Its
// sessions may be as short as 500 ms. Use keys that carry the test's name.
func Consul(t testing.TB) string {
	t.Helper()
	return sharedConsul.addr(t)
}

// StartConsul starts a private Consul agent, which is server and client in one. The args
// follow the defaults on the command line: "-hcl", `acl{enabled=true}`. A restart begins
// without data, unless args[0] is [ConsulOnDisk].
func StartConsul(t testing.TB, args ...string) *Instance {
	t.Helper()
	return startPrivate(t, consulServer, args)
}

// ConsulOnDisk makes the agent keep its state in a folder, as in production. Then each start
// takes two seconds, because the agent elects itself.
const ConsulOnDisk = "on disk"

// findConsul also looks where scripts/install-servers puts the program that it has built.
func findConsul() (string, error) {
	if path, err := findBinary("consul"); err == nil {
		return path, nil
	}
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	built, _ := filepath.Glob(filepath.Join(cache, "lockgen", "consul-*.*.*"))
	for _, path := range built {
		if _, err := exec.LookPath(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no consul found, nor one built in %s", filepath.Join(cache, "lockgen"))
}

func consulCommand(_ context.Context, l Launch) (*exec.Cmd, error) {
	var ports []string
	for _, port := range l.Ports {
		ports = append(ports, strconv.Itoa(port))
	}
	mode, own := []string{"-dev"}, l.Args
	if len(own) > 0 && own[0] == ConsulOnDisk {
		mode = []string{
			"-server", "-bootstrap-expect", "1", "-data-dir", filepath.Join(l.Dir, "data"),
			"-hcl", `performance{raft_multiplier=1}`,
		}
		own = own[1:]
	}
	args := append([]string{"agent"}, mode...)
	args = append(args,
		"-node", "t", "-bind", "127.0.0.1", "-client", "127.0.0.1",
		"-http-port", ports[0], "-server-port", ports[1], "-serf-lan-port", ports[2], "-serf-wan-port", ports[3],
		"-grpc-port", "-1", "-grpc-tls-port", "-1", "-dns-port", "-1", "-log-level", "error",
		"-hcl", `session_ttl_min="500ms" disable_update_check=true ui_config{enabled=false} connect{enabled=false}`,
		// All of a run's tests come from one address.
		"-hcl", `limits{http_max_conns_per_client=10000}`,
	)
	return exec.Command(l.Bin, append(args, own...)...), nil
}

// probeConsul waits until the agent has a leader and is registered there as a node, because
// sessions need a node. An agent that asks for a token is up.
func probeConsul(ctx context.Context, addr string) error {
	leader, err := askConsul(ctx, http.MethodGet, addr, "/v1/status/leader", "")
	if err == nil && leader == `""` {
		err = errors.New("no leader yet")
	}
	if err != nil {
		return err
	}
	session, err := askConsul(ctx, http.MethodPut, addr, "/v1/session/create", `{"TTL":"10s"}`)
	var made struct{ ID string }
	if err == nil && json.Unmarshal([]byte(session), &made) == nil && made.ID != "" {
		_, err = askConsul(ctx, http.MethodPut, addr, "/v1/session/destroy/"+made.ID, "")
	}
	return err
}

// askConsul returns the body of the answer. It returns an error if the answer is an error
// other than a missing token.
func askConsul(ctx context.Context, method, addr, path, body string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	reply, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	read, err := io.ReadAll(io.LimitReader(reply.Body, 4096))
	text := strings.TrimSpace(string(read))
	if err == nil && reply.StatusCode != http.StatusOK && reply.StatusCode != http.StatusForbidden {
		err = fmt.Errorf("%s: %s %s", path, reply.Status, text)
	}
	return text, err
}
