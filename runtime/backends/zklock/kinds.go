package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// A record changes with each who comes or goes, and each process that waits reads all of it each
// time: many times more than what it tells them. One whose turn is some sections away lets some
// changes go by. A section takes two writes at least, so aSection is less than it.
const (
	aSection    = time.Millisecond
	mostSkipped = 16
)

// methods has a Backend call those that wait for a condition, and tell who leads.
type methods = record.Methods

// Kinds implements [driver.Kinded].
func (b *Backend) Kinds() driver.Kind { return record.AllKinds }

// unwatched is how long whoever waits for a record that is not there waits to look again.
const unwatched = 100 * time.Millisecond

// watchRecord is the [record.Watch] of ZooKeeper. A watch tells once, so that another is set
// each time, with the answer to which the value comes.
func (rs *records) watchRecord(ctx context.Context, key string, ready func(), tell func(value string) int) error {
	dir, err := rs.directory(key)
	if err != nil {
		return err
	}
	s, err := rs.session(ctx, recordsTTL)
	if err != nil {
		return err
	}
	defer s.Drop()
	for at := ""; ctx.Err() == nil && s.over() == nil; {
		if at == "" {
			a, err := s.fresh(ctx, client.Children(dir))
			if err != nil && !isNoNode(err) {
				return err
			}
			if at, _ = recordIn(dir, a.Children); at == "" {
				ready()
				tell("")
				engine.Pause(ctx, unwatched)
				continue
			}
		}
		changed := make(chan bool, 1)
		w := &client.Watch{Path: at, Told: func() { changed <- true }}
		a, err := s.do(ctx, client.Observe(w))
		switch {
		case isNoNode(err):
			at = ""
			continue
		case err != nil:
			s.client.Unwatch(w)
			return err
		}
		ready()
		ahead := tell(record.ResolveRevision(string(a.Value), uint64(a.Czxid)))
		select {
		case <-changed:
			if w.Is(client.Deleted) {
				at = ""
			}
			engine.Pause(ctx, time.Duration(min(ahead, mostSkipped))*aSection) // what changes meanwhile is seen at once
		case <-s.Context().Done():
		case <-ctx.Done():
		}
		s.client.Unwatch(w)
	}
	return errors.Join(ctx.Err(), s.over())
}
