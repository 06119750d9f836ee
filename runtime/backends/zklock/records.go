package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

const (
	// recordPrefix begins the name of the node that holds a record. The record's first
	// version follows, which is random, because the version of a node's data begins anew
	// when a path is used again: a path must not come back.
	recordPrefix = "lockgen-record-"
	// maxRecord is far below the servers' jute.maxbuffer: see maxName.
	maxRecord = 512 << 10
)

// resends says when a write of a record without an answer is sent again.
var resends = engine.Schedule{Pauses: []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond}}

// store is the Backend as the engine of its records: see DESIGN.md. Of two records, or a mutex and
// a record, that were created at the same time the one with the lower number stays.
type store struct{ *Backend }

// recordPlace is the record of a key as it was read: [record.Answer.Place].
type recordPlace struct {
	path    string // "" if there is no record
	version int32  // of the node's data
	czxid   int64
}

// Swap implements [record.Store].
func (b *store) Swap(ctx context.Context, w record.Write) (a record.Answer, err error) {
	dir, err := b.directory(w.Key)
	if err != nil {
		return a, err
	}
	if len(w.Value) > maxRecord {
		return a, fmt.Errorf("zookeeper: so many wait for %s that their record has %d bytes; zklock takes %d", dir, len(w.Value), maxRecord)
	}
	_, _, err = resends.Send(ctx, func(ctx context.Context) (engine.Outcome, error) {
		err := b.swap(ctx, dir, w, &a)
		switch {
		case err == nil:
			return engine.Done, nil
		case unanswered(err):
			return engine.NoAnswer, err
		case errors.Is(err, errSessionEnded): // another session may do
			return engine.NotSent, err
		}
		return engine.Refused, err
	})
	if unanswered(err) && !a.MayHaveRun {
		return a, fmt.Errorf("zookeeper: read the record of a lock at %s: %w", dir, err)
	}
	return a, explained(err, "keep the record of a lock", dir)
}

// swap is one attempt of Swap. It notes in a that a write had no answer.
func (b *store) swap(ctx context.Context, dir string, w record.Write, a *record.Answer) error {
	s, err := b.session(ctx, recordsTTL)
	if err != nil {
		return err
	}
	defer s.Drop()
	a.Done = false
	at, _ := w.Place.(recordPlace)
	if w.Look || at.path == "" {
		if err := b.readRecord(ctx, s, dir, at.path, w, a); err != nil || w.Look || record.Version(a.Value) != w.Seen {
			return err
		}
		at, _ = a.Place.(recordPlace)
	}
	r := client.Set(at.path, []byte(w.Value), at.version)
	switch {
	case at.path == "" && w.Value == "":
		a.Done = true
		return nil
	case at.path == "":
		return b.create(ctx, s, dir, w, a)
	case w.Value == "":
		r = client.Delete(at.path, at.version)
	}
	answer, err := s.do(ctx, r)
	switch {
	case isNoNode(err), errors.Is(err, zk.ErrBadVersion):
		return b.readRecord(ctx, s, dir, at.path, w, a)
	case err == nil:
		wrote(w, recordPlace{path: at.path, version: answer.Version, czxid: at.czxid}, a)
	}
	a.MayHaveRun = a.MayHaveRun || unanswered(err)
	return err
}

// wrote notes that w was done, and that its record is at this place.
func wrote(w record.Write, at recordPlace, a *record.Answer) {
	if a.Done, a.Value, a.Place = true, "", nil; w.Value != "" {
		a.Value, a.Place = record.ResolveRevision(w.Value, uint64(at.czxid)), at
	}
}

// readRecord sets in a what is at w's key. at is the path where the record was seen, which saves
// a look at the directory, or "".
func (b *store) readRecord(ctx context.Context, s *session, dir, at string, w record.Write, a *record.Answer) error {
	if at != "" {
		if err := s.getRecord(ctx, at, a); !isNoNode(err) {
			return err
		}
	}
	for {
		listed, err := s.fresh(ctx, client.Children(dir))
		switch {
		case err != nil && !isNoNode(err):
			return err
		case listed.DataLength > 0:
			return errHoldsData(dir, listed.DataLength)
		}
		first, ahead := recordIn(dir, listed.Children)
		if is := obstacle(listed.Children, ahead); is != "" && w.Takes {
			return record.InsteadOf(is)
		}
		if a.Value, a.Place = "", nil; first == "" {
			return nil
		}
		if err := s.deleteOthers(ctx, w, first, listed.Children); err != nil {
			return err
		}
		if err := s.getRecord(ctx, first, a); !isNoNode(err) { // else it has just gone
			return err
		}
	}
}

// getRecord sets in a the record at a path.
func (s *session) getRecord(ctx context.Context, path string, a *record.Answer) error {
	node, err := s.fresh(ctx, client.Get(path))
	if err == nil {
		_, err = firstToken(node.Czxid)
	}
	if err == nil {
		a.Value = record.ResolveRevision(string(node.Value), uint64(node.Czxid))
		a.Place = recordPlace{path: path, version: node.Version, czxid: node.Czxid}
	}
	return err
}

// deleteOthers deletes the records that attempts of w without an answer have created, except the
// one at a path.
func (s *session) deleteOthers(ctx context.Context, w record.Write, at string, children []string) error {
	for _, name := range children {
		other := path.Join(path.Dir(at), name)
		if w.Value == "" || other == at || !strings.HasPrefix(name, recordPrefix+record.Version(w.Value)) {
			continue
		}
		if _, err := s.do(ctx, client.Delete(other, 0)); err != nil && !isNoNode(err) {
			return err
		}
	}
	return nil
}

// create creates the record. A mutex or another record may be created at the same time, so it
// reads the directory afterwards.
func (b *store) create(ctx context.Context, s *session, dir string, w record.Write, a *record.Answer) error {
	at := path.Join(dir, recordPrefix+record.Version(w.Value)+"-")
	made, listed, err := s.createAndList(ctx, client.Create(at, []byte(w.Value), b.options.ACL, zk.FlagSequence), dir)
	if err != nil {
		a.MayHaveRun = a.MayHaveRun || unanswered(err)
		return err
	}
	all, err := await(ctx, listed)
	if err != nil {
		a.MayHaveRun = true
		return fmt.Errorf("%w: %w", client.ErrNoAnswer, err)
	}
	first, ahead := recordIn(dir, all.Children)
	_, err = firstToken(made.Czxid)
	if err == nil && first == made.Path && !(w.Takes && obstacle(all.Children, ahead) != "") {
		wrote(w, recordPlace{path: made.Path, czxid: made.Czxid}, a)
		return nil
	}
	deleted := s.ask(client.Delete(made.Path, 0))
	if first == made.Path {
		first = ""
	}
	if err == nil {
		err = b.readRecord(ctx, s, dir, first, w, a)
	}
	if _, failed := await(ctx, deleted); failed != nil && !isNoNode(failed) {
		a.MayHaveRun = true
	}
	return err
}

// besideRecord returns the error of a mutex whose key has the record at a path: it names its kind.
func (s *session) besideRecord(ctx context.Context, at string) error {
	a, err := s.do(ctx, client.Get(at))
	noun := record.Noun(string(a.Value))
	if err != nil || noun == "" {
		noun = "another kind of lock"
	}
	return record.Beside(noun, record.Mutex)
}

// A record changes whenever somebody comes or goes, and each process that waits reads all of it
// each time. A process whose turn is some holds away skips some changes: it pauses for minHold for
// each hold before its own. A hold takes two writes at least, which is more than minHold.
const (
	minHold    = time.Millisecond
	maxSkipped = 16
)

// methods call the waiters of a condition, and tell who leads.
type methods = record.Methods

// Kinds implements [driver.Kinded].
func (b *Backend) Kinds() driver.Kind { return record.AllKinds }

// recheckAfter is how long a waiter whose record does not exist waits to look again.
const recheckAfter = 100 * time.Millisecond

// watchRecord is the [record.Watch] of ZooKeeper. A watch fires once: each time another is set, by
// the request that reads the value.
func (b *store) watchRecord(ctx context.Context, key string, ready func(), tell func(value string) int) error {
	dir, err := b.directory(key)
	if err != nil {
		return err
	}
	s, err := b.session(ctx, recordsTTL)
	if err != nil {
		return err
	}
	defer s.Drop()
	for at := ""; ctx.Err() == nil && s.endCause() == nil; {
		if at == "" {
			a, err := s.fresh(ctx, client.Children(dir))
			if err != nil && !isNoNode(err) {
				return err
			}
			if at, _ = recordIn(dir, a.Children); at == "" {
				ready()
				tell("")
				engine.Pause(ctx, recheckAfter)
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
			engine.Pause(ctx, time.Duration(min(ahead, maxSkipped))*minHold) // the next read shows all that changed meanwhile
		case <-s.Context().Done():
		case <-ctx.Done():
		}
		s.client.Unwatch(w)
	}
	return errors.Join(ctx.Err(), s.endCause())
}
