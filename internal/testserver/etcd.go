package testserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// etcdServer has a port for clients and one for peers.
var etcdServer = &Server{
	Name:    "etcd",
	Env:     "LOCKGEN_TEST_ETCD",
	Ports:   2,
	Syncs:   true,
	Find:    func() (string, error) { return findBinary("etcd") },
	Command: etcdCommand,
	Probe:   probeEtcd,
}

var sharedEtcd = &shared{server: etcdServer}

// Etcd returns the address of the etcd that all tests share, a cluster of one
// member. Use keys that carry the test's name, and change nothing that other tests
// would see.
func Etcd(t testing.TB) string {
	t.Helper()
	return sharedEtcd.addr(t)
}

// StartEtcd starts a private cluster of one member. The args follow the defaults on the command
// line. With --cert-file clients must use TLS. A restart keeps the data.
func StartEtcd(t testing.TB, args ...string) *Instance {
	t.Helper()
	return startPrivate(t, etcdServer, args)
}

// EtcdCluster is three private members. Every member is an [Instance] that can be stopped, killed
// and restarted, and keeps its data. A leader that is down is replaced within about half a second.
//
// Call the methods from the test's own goroutine. If a method fails, or has waited for 30 s,
// it ends the test.
type EtcdCluster struct {
	t       testing.TB
	members []*Instance
}

// StartEtcdCluster starts an [EtcdCluster] and returns when it has a leader. The
// args follow the defaults on each member's command line.
func StartEtcdCluster(t testing.TB, args ...string) *EtcdCluster {
	t.Helper()
	var c *EtcdCluster
	startTopology(t, "etcd cluster", []*Server{etcdServer, etcdServer, etcdServer},
		func(ctx context.Context, nodes []*Instance) error {
			c = &EtcdCluster{t, nodes}
			return c.assemble(ctx, args)
		})
	return c
}

// Members returns the three members.
func (c *EtcdCluster) Members() []*Instance { return c.members }

// Addrs returns the addresses of the members.
func (c *EtcdCluster) Addrs() []string { return addrs(c.members) }

// Leader returns the leader, as soon as the running members agree on one of them.
func (c *EtcdCluster) Leader(ctx context.Context) *Instance {
	c.t.Helper()
	var leader *Instance
	err := await(ctx, func(ctx context.Context) (err error) {
		leader, err = c.agreed(ctx)
		return err
	})
	if err != nil {
		c.t.Fatalf("testserver: etcd: wait for a leader: %v", err)
	}
	return leader
}

func (c *EtcdCluster) agreed(ctx context.Context) (leader *Instance, err error) {
	up := onlyRunning(c.members)
	leaders := 0
	for _, member := range up {
		metrics, err := httpGet(ctx, "http://"+member.Addr()+"/metrics")
		if err != nil {
			return nil, err
		}
		if !strings.Contains(metrics, "\netcd_server_has_leader 1\n") {
			return nil, fmt.Errorf("%s has no leader", member.Addr())
		}
		if strings.Contains(metrics, "\netcd_server_is_leader 1\n") {
			leader = member
			leaders++
		}
	}
	if leaders != 1 {
		return nil, fmt.Errorf("%d of %d members lead", leaders, len(up))
	}
	return leader, nil
}

func (c *EtcdCluster) assemble(ctx context.Context, args []string) error {
	var all []string
	for _, member := range c.members {
		all = append(all, etcdMember(member.place.launch))
	}
	for _, member := range c.members {
		member.place.launch.Args = append([]string{"--initial-cluster", strings.Join(all, ",")}, args...)
	}
	if err := startAll(ctx, etcdServer, c.members...); err != nil {
		return err
	}
	return await(ctx, func(ctx context.Context) error {
		_, err := c.agreed(ctx)
		return err
	})
}

// etcdMember returns the entry of a member for --initial-cluster.
func etcdMember(l Launch) string {
	return fmt.Sprintf("m%d=http://%s", l.Ports[0], loopback(l.Ports[1]))
}

func etcdCommand(_ context.Context, l Launch) (*exec.Cmd, error) {
	client := "http://" + l.Addr()
	if slices.Contains(l.Args, "--cert-file") {
		client = "https://" + l.Addr()
	}
	name, peer, _ := strings.Cut(etcdMember(l), "=")
	args := append([]string{
		"--name", name,
		"--data-dir", filepath.Join(l.Dir, "data"),
		"--listen-client-urls", client,
		"--advertise-client-urls", client,
		"--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer,
		"--initial-cluster", etcdMember(l),
		"--log-level", "error",
		"--logger", "zap",
		// With the default of 1 s every lease would last at least 2 s.
		"--heartbeat-interval", "20",
		"--election-timeout", "200",
	}, l.Args...)
	return exec.Command(l.Bin, args...), nil
}

// probeEtcd returns nil once the server has a leader.
func probeEtcd(ctx context.Context, addr string) error {
	health, err := httpGet(ctx, "http://"+addr+"/health")
	if err != nil {
		if overTLS, also := httpGet(ctx, "https://"+addr+"/health"); also == nil {
			health, err = overTLS, nil
		}
	}
	if err == nil && !strings.Contains(health, `"health":"true"`) {
		err = errors.New("etcd is not healthy: " + health)
	}
	return err
}

// httpGet returns the body of any answer. It accepts every certificate, because the
// server was started by this process.
func httpGet(ctx context.Context, url string) (string, error) {
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}
