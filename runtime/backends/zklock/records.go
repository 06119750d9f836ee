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

// resends is how a write of a record without an answer is tried again.
var resends = engine.Schedule{Pauses: []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond}}

// records are the engine of the locks that are no mutexes: see DESIGN.md. Of two records,
// or a mutex and a record, that were begun at once the lower one stands.
type records struct{ *Backend }

// place is where a record was seen.
type place struct {
	path    string // "" is no record
	version int32  // of the node's data
	czxid   int64
}

// Swap implements [record.Store].
func (rs *records) Swap(ctx context.Context, w record.Write) (a record.Answer, err error) {
	dir, err := rs.directory(w.Key)
	if err != nil {
		return a, err
	}
	if len(w.Value) > maxRecord {
		return a, fmt.Errorf("zookeeper: so many wait for %s that their record has %d bytes; zklock takes %d", dir, len(w.Value), maxRecord)
	}
	_, _, err = resends.Send(ctx, func(ctx context.Context) (engine.Outcome, error) {
		err := rs.swap(ctx, dir, w, &a)
		switch {
		case err == nil:
			return engine.Done, nil
		case unanswered(err):
			return engine.NoAnswer, err
		case errors.Is(err, errEnded): // another session may do
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
func (rs *records) swap(ctx context.Context, dir string, w record.Write, a *record.Answer) error {
	s, err := rs.session(ctx, recordsTTL)
	if err != nil {
		return err
	}
	defer s.Drop()
	a.Done = false
	at, _ := w.Place.(place)
	if w.Look || at.path == "" {
		if err := rs.look(ctx, s, dir, at.path, w, a); err != nil || w.Look || record.Version(a.Value) != w.Seen {
			return err
		}
		at, _ = a.Place.(place)
	}
	r := client.Set(at.path, []byte(w.Value), at.version)
	switch {
	case at.path == "" && w.Value == "":
		a.Done = true
		return nil
	case at.path == "":
		return rs.create(ctx, s, dir, w, a)
	case w.Value == "":
		r = client.Delete(at.path, at.version)
	}
	answer, err := s.do(ctx, r)
	switch {
	case isNoNode(err), errors.Is(err, zk.ErrBadVersion):
		return rs.look(ctx, s, dir, at.path, w, a)
	case err == nil:
		wrote(w, place{path: at.path, version: answer.Version, czxid: at.czxid}, a)
	}
	a.MayHaveRun = a.MayHaveRun || unanswered(err)
	return err
}

// wrote notes that w was done, and that its record is at this place.
func wrote(w record.Write, at place, a *record.Answer) {
	if a.Done, a.Value, a.Place = true, "", nil; w.Value != "" {
		a.Value, a.Place = record.ResolveRevision(w.Value, uint64(at.czxid)), at
	}
}

// look has a say what is at w's key. The path at which the record was seen saves the list;
// "" is none.
func (rs *records) look(ctx context.Context, s *session, dir, at string, w record.Write, a *record.Answer) error {
	if at != "" {
		if err := s.recordAt(ctx, at, a); !isNoNode(err) {
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
		if err := s.recordAt(ctx, first, a); !isNoNode(err) { // else it has just gone
			return err
		}
	}
}

// recordAt has a say what the record at a path is.
func (s *session) recordAt(ctx context.Context, path string, a *record.Answer) error {
	node, err := s.fresh(ctx, client.Get(path))
	if err == nil {
		_, err = firstToken(node.Czxid)
	}
	if err == nil {
		a.Value = record.ResolveRevision(string(node.Value), uint64(node.Czxid))
		a.Place = place{path: path, version: node.Version, czxid: node.Czxid}
	}
	return err
}

// deleteOthers deletes the records that w has made without an answer, but the one at a path.
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

// create makes the record. It does not see a mutex or another record that is made at the
// same time, so that it looks afterwards.
func (rs *records) create(ctx context.Context, s *session, dir string, w record.Write, a *record.Answer) error {
	at := path.Join(dir, recordPrefix+record.Version(w.Value)+"-")
	made, listed, err := s.createAndList(ctx, client.Create(at, []byte(w.Value), rs.options.ACL, zk.FlagSequence), dir)
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
		wrote(w, place{path: made.Path, czxid: made.Czxid}, a)
		return nil
	}
	deleted := s.ask(client.Delete(made.Path, 0))
	if first == made.Path {
		first = ""
	}
	if err == nil {
		err = rs.look(ctx, s, dir, first, w, a)
	}
	if _, failed := await(ctx, deleted); failed != nil && !isNoNode(failed) {
		a.MayHaveRun = true
	}
	return err
}

// besideRecord is what a mutex is told beside the record at a path: of which kind that is.
func (s *session) besideRecord(ctx context.Context, at string) error {
	a, err := s.do(ctx, client.Get(at))
	noun := record.Noun(string(a.Value))
	if err != nil || noun == "" {
		noun = "another kind of lock"
	}
	return record.Beside(noun, record.Mutex)
}

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
