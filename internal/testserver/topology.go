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

// startTopology starts servers that know each other before they run. It gives a place to each
// of kinds; assemble then writes their configurations and starts them. If a port was taken,
// it starts again with new places for all.
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

// settlePlaces returns an instance for each of kinds. The instances have a place, but no
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

// startAll starts nodes in parallel. They are servers of the same kind.
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

// dismiss kills the running nodes and frees the places of all.
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

// running reports whether the server can answer: it is neither killed nor stopped.
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

// role returns the server's role, "master" or "slave". link is a slave's state of the link
// to its master, which should be "connected".
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

// mustFollow returns an error unless the server is a connected replica.
func (i *Instance) mustFollow(ctx context.Context) error {
	role, link, err := i.role(ctx)
	if err == nil && (role != "slave" || link != "connected") {
		err = fmt.Errorf("%s is a %s, link %q", i.Addr(), role, link)
	}
	return err
}

// await calls state every few milliseconds until it returns nil. When ctx ends or
// readyWithin has passed, it returns the last error of state.
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

// serverID returns an ID of 40 digits, as Sentinel and Cluster generate them. Each ID is
// different, so that a server that outlived its test is not mistaken for a server of another test.
func serverID() string {
	var id [20]byte
	_, _ = rand.Read(id[:]) // never fails
	return fmt.Sprintf("%x", id)
}
