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

// Kinds implements [driver.Kinded].
func (b *Backend) Kinds() driver.Kind {
	return driver.Read | driver.Write | driver.Fair | driver.Permits | driver.Condition | driver.Once
}

// Call implements [driver.Caller].
func (b *Backend) Call(ctx context.Context, a *driver.Acquisition, n int) error {
	if _, err := b.checked(a.Key); err != nil {
		return err
	}
	return b.kinds.Call(ctx, a, n)
}

// View implements [driver.Viewer].
func (b *Backend) View(ctx context.Context, a *driver.Acquisition) (*driver.Holder, error) {
	if _, err := b.checked(a.Key); err != nil {
		return nil, err
	}
	return b.kinds.View(ctx, a)
}

// checked returns the path of key's directory.
func (b *Backend) checked(key string) (dir string, err error) {
	if b.invalid != nil {
		return "", b.invalid
	}
	return b.directory(key)
}

// watchRecord is the [record.Watch] of ZooKeeper. A watch tells once, so that another is set
// each time, with the answer to which the value comes.
func (rs *records) watchRecord(ctx context.Context, key string, ready func(), tell func(value string) int) error {
	dir, err := rs.directory(key)
	if err != nil {
		return err
	}
	s, err := rs.sessionFor(ctx, rs.span)
	if err != nil {
		return err
	}
	defer s.Drop()
	at := ""
	for ctx.Err() == nil && s.over() == nil {
		if at == "" {
			a, err := s.list(ctx, dir)
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
		switch gone, err := rs.watchAt(ctx, s, at, ready, tell); {
		case err != nil:
			return err
		case gone:
			at = ""
		}
	}
	return errors.Join(ctx.Err(), s.over())
}

// watchAt tells of the record at a path, and waits until it has changed or gone.
func (rs *records) watchAt(ctx context.Context, s *session, at string, ready func(), tell func(value string) int) (gone bool, err error) {
	changed := make(chan bool, 1)
	w := &client.Watch{Path: at, Told: func(gone bool) { changed <- gone }}
	defer s.client.Unwatch(w)
	a, err := s.do(ctx, client.Observe(w))
	switch {
	case isNoNode(err):
		return true, nil
	case err != nil:
		return false, err
	}
	ready()
	ahead := tell(record.ResolveRevision(string(a.Value), uint64(a.Czxid)))
	select {
	case gone = <-changed:
		engine.Pause(ctx, time.Duration(min(ahead, mostSkipped))*aSection) // what changes meanwhile is seen at once
		return gone, nil
	case <-s.Context().Done():
	case <-ctx.Done():
	}
	return false, nil
}

// list asks for the names in a directory, and has the server catch up first.
func (s *session) list(ctx context.Context, dir string) (client.Answer, error) {
	if err := s.await(ctx); err != nil {
		return client.Answer{}, err
	}
	if err := s.send(client.Sync(dir), func(client.Answer) {}); err != nil {
		return client.Answer{}, err
	}
	return s.now(ctx, client.Children(dir))
}
