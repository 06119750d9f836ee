package testserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// startTopology starts servers that know one another before they run: it gives
// each of kinds its place, and assemble writes what they need to know and starts
// them. When a port was taken it begins anew, with other places for all.
func startTopology(
	t testing.TB, name string, kinds []*Server, assemble func(context.Context, []*Instance) error,
) []*Instance {
	t.Helper()
	need(t, kinds[0])
	begin := time.Now()
	for try := 1; ; try++ {
		nodes, err := settlePlaces(t, kinds)
		if err == nil {
			err = assemble(t.Context(), nodes)
		}
		if err == nil {
			t.Cleanup(func() { dismiss(nodes) })
			t.Logf("testserver: %s ready in %d ms", name, time.Since(begin).Milliseconds())
			return nodes
		}
		dismiss(nodes)
		if !errors.Is(err, errPortTaken) || try == startTries {
			t.Fatalf("testserver: %s: %v", name, err)
		}
	}
}

// settlePlaces returns an instance of each of kinds that has a place and no
// process yet.
func settlePlaces(t testing.TB, kinds []*Server) (nodes []*Instance, err error) {
	for _, s := range kinds {
		bin, err := s.Find()
		if err != nil {
			return nodes, err
		}
		pl, err := newPlace(s, bin, nil)
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, &Instance{t: t, place: pl})
	}
	return nodes, nil
}

// startAll starts nodes, which are servers of one kind, in parallel.
func startAll(ctx context.Context, s *Server, nodes ...*Instance) error {
	errs := make([]error, len(nodes))
	var starting sync.WaitGroup
	for n, i := range nodes {
		starting.Go(func() {
			p, err := start(ctx, s, i.place.launch)
			if err != nil {
				errs[n] = err
				return
			}
			i.mu.Lock()
			defer i.mu.Unlock()
			i.process = p
		})
	}
	starting.Wait()
	return errors.Join(errs...)
}

// dismiss kills what runs of nodes and gives up their places.
func dismiss(nodes []*Instance) {
	var dying sync.WaitGroup
	for _, i := range nodes {
		dying.Go(func() {
			if p := i.current(); p != nil {
				p.kill()
			}
			i.place.leave()
		})
	}
	dying.Wait()
}

// running says whether the server can answer: neither killed nor stopped.
func (i *Instance) running() bool {
	p := i.current()
	if p.alive.Err() != nil {
		return false
	}
	stopped, err := isStopped(p.cmd.Process.Pid)
	return err == nil && !stopped
}

func onlyRunning(nodes []*Instance) (up []*Instance) {
	for _, i := range nodes {
		if i.running() {
			up = append(up, i)
		}
	}
	return up
}

func addrs(nodes []*Instance) (all []string) {
	for _, i := range nodes {
		all = append(all, i.Addr())
	}
	return all
}

// role returns what the server says of itself: "master", or "slave" followed by
// the state of its link to the master, of which "connected" is the good one.
func (i *Instance) role(ctx context.Context) (role, link string, err error) {
	reply, err := i.Command(ctx, "ROLE")
	if err != nil {
		return "", "", err
	}
	parts, _ := reply.([]any)
	if len(parts) < 3 {
		return "", "", fmt.Errorf("ROLE: %v", reply)
	}
	role, _ = parts[0].(string)
	if role == "slave" && len(parts) > 3 {
		link, _ = parts[3].(string)
	}
	return role, link, nil
}

// mustFollow returns an error unless the server is a replica with a link.
func (i *Instance) mustFollow(ctx context.Context) error {
	role, link, err := i.role(ctx)
	if err == nil && (role != "slave" || link != "connected") {
		err = fmt.Errorf("%s is a %s, link %q", i.Addr(), role, link)
	}
	return err
}

// await asks state every few milliseconds until it returns nil. It gives up when
// ctx ends or readyWithin has passed, with state's last error.
func await(ctx context.Context, state func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := state(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// serverID returns an id such as Sentinel and Cluster give themselves: 40 digits,
// never the same, lest a server that outlived its test is taken for another's.
func serverID() string {
	var id [20]byte
	_, _ = rand.Read(id[:]) // never fails
	return fmt.Sprintf("%x", id)
}
