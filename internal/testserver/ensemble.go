package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// ensembleServer has two more ports, for its peers and for elections.
var ensembleServer = &Server{
	Name:    "zookeeper",
	Ports:   3,
	Find:    findZooKeeper,
	Command: zookeeperCommand,
	Probe:   probeZooKeeper,
}

// Ensemble is three private ZooKeepers that elect a leader. A leader that is down is replaced
// within half a second to two seconds. Every member is an [Instance] that can be stopped, killed
// and restarted, and keeps its data.
//
// Call the methods from the test's own goroutine. If a method fails, or has waited for 30 s,
// it ends the test. The methods ask only members that run.
type Ensemble struct {
	t       testing.TB
	members []*Instance
}

// StartEnsemble starts an [Ensemble] and returns when every member serves.
func StartEnsemble(t testing.TB) *Ensemble {
	t.Helper()
	kinds := []*Server{ensembleServer, ensembleServer, ensembleServer}
	var e *Ensemble
	startTopology(t, "ensemble", kinds, func(ctx context.Context, nodes []*Instance) error {
		e = &Ensemble{t: t, members: nodes}
		return e.assemble(ctx)
	})
	return e
}

func (e *Ensemble) assemble(ctx context.Context) error {
	var lines []string
	for n, m := range e.members {
		lines = append(lines, fmt.Sprintf("server.%d=127.0.0.1:%s:%s", n+1, m.port(1), m.port(2)))
	}
	for n, m := range e.members {
		data := filepath.Join(m.place.launch.Dir, "data")
		if err := os.MkdirAll(data, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(data, "myid"), []byte(strconv.Itoa(n+1)), 0o600); err != nil {
			return err
		}
		m.place.launch.Args = lines
	}
	return startAll(ctx, ensembleServer, e.members...)
}

// Addrs returns the addresses of all members.
func (e *Ensemble) Addrs() []string { return addrs(e.members) }

// Members returns all members.
func (e *Ensemble) Members() []*Instance { return e.members }

// Leader returns the member that runs and leads, and waits for one.
func (e *Ensemble) Leader(ctx context.Context) *Instance {
	e.t.Helper()
	var leader *Instance
	e.must("a leader", await(ctx, func(ctx context.Context) (err error) {
		leader, err = e.inMode(ctx, "leader")
		return err
	}))
	return leader
}

// Followers returns the members that run and follow.
func (e *Ensemble) Followers(ctx context.Context) []*Instance {
	e.t.Helper()
	var followers []*Instance
	for _, m := range onlyRunning(e.members) {
		if mode, err := zookeeperMode(ctx, m.Addr()); err == nil && mode == "follower" {
			followers = append(followers, m)
		}
	}
	return followers
}

// AwaitReady waits until every member that runs serves.
func (e *Ensemble) AwaitReady(ctx context.Context) {
	e.t.Helper()
	e.must("wait until all serve", await(ctx, func(ctx context.Context) error {
		if _, err := e.inMode(ctx, "leader"); err != nil {
			return err
		}
		var errs []error
		for _, m := range onlyRunning(e.members) {
			errs = append(errs, probeZooKeeper(ctx, m.Addr()))
		}
		return errors.Join(errs...)
	}))
}

func (e *Ensemble) inMode(ctx context.Context, want string) (*Instance, error) {
	for _, m := range onlyRunning(e.members) {
		if mode, err := zookeeperMode(ctx, m.Addr()); err == nil && mode == want {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no %s", want)
}

func (e *Ensemble) must(what string, err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatalf("testserver: ensemble: %s: %v", what, err)
	}
}
