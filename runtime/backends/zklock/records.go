package zklock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

const (
	// recordPrefix begins the name of the node that holds a record. Random digits follow,
	// because the version of a node's data begins anew when a path is used again: a path
	// must not come back.
	recordPrefix = "lockgen-record-"
	recordRandom = 8 // bytes
	// recordLength is the length of leases for which the records' session is suited. They
	// do not depend on it, but a connection that is silent is given up sooner the shorter it is.
	recordLength = 2 * time.Second
	// maxRecord is far below the servers' jute.maxbuffer: see maxName.
	maxRecord = 512 << 10
	// unwatched is how long whoever waits for a record that is not there waits to look again.
	unwatched = 100 * time.Millisecond
)

// resends is how a write of a record without an answer is tried again.
var resends = engine.Schedule{Pauses: []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond}}

// records are the engine of the locks that are no mutexes. The record of a key is a
// sequential node in the key's directory, beside which none is made: see create. Should two
// be there all the same, the lower one is the record.
//
// The numbers of a directory go to mutexes and records alike. Of a mutex and a record that
// were begun at once the lower one stands, and the other is refused.
type records struct{ *Backend }

// place is where a record was seen.
type place struct {
	path      string // "" is no record
	version   int32  // of the node's data
	czxid     int64
	directory int32 // without a record: the version of the directory's data, or missing
}

// missing is the version of a directory that is not there.
const missing = -1

// span is that of the session which all records share, so that each look comes behind the
// writes that were answered. A server that begins the next session has caught up with what
// was agreed before.
func (rs *records) span(ctx context.Context) (sp span, err error) {
	lim, err := rs.learn(ctx)
	if err != nil {
		return sp, err
	}
	length := max(recordLength, lim.least)
	if lim.most > 0 {
		length = min(length, longestLease(lim.tick, lim.most))
	}
	return spanOf(length, lim.tick, lim.most), nil
}

// Swap implements [record.Store].
func (rs *records) Swap(ctx context.Context, w record.Write) (a record.Answer, err error) {
	dir, err := rs.checked(w.Key)
	if err != nil {
		return a, err
	}
	if len(w.Value) > maxRecord {
		return a, fmt.Errorf("zookeeper: so many wait for %s that their record has %d bytes; zklock takes %d", dir, len(w.Value), maxRecord)
	}
	_, _, err = resends.Send(ctx, func(ctx context.Context) (engine.Outcome, error) {
		s, err := rs.sessionFor(ctx, rs.span)
		if err != nil {
			return engine.Refused, err
		}
		defer s.Drop()
		switch err := rs.swap(ctx, s, dir, w, &a); {
		case err == nil:
			return engine.Done, nil
		case unanswered(err):
			return engine.NoAnswer, err
		case errors.Is(err, errNotSent) && s.over() != nil: // another session may do
			return engine.NotSent, err
		default:
			return engine.Refused, err
		}
	})
	if unanswered(err) && !a.MayHaveRun {
		return a, fmt.Errorf("zookeeper: read the record of a lock at %s: %w", dir, err)
	}
	return a, explained(err, "keep the record of a lock", dir)
}

// swap is one attempt of Swap. It notes in a that a write had no answer.
func (rs *records) swap(ctx context.Context, s *session, dir string, w record.Write, a *record.Answer) (err error) {
	a.Done = false
	at, _ := w.Place.(place)
	if w.Look || at.path == "" {
		at, err = rs.look(ctx, s, dir, w, a)
		if err != nil || w.Look || record.Version(a.Value) != w.Seen {
			return err
		}
	}
	r := client.Set(at.path, []byte(w.Value), at.version)
	switch {
	case at.path == "" && w.Value == "":
		a.Done = true
		return nil
	case at.path == "":
		return rs.create(ctx, s, dir, at.directory, w, a)
	case w.Value == "":
		r = client.Delete(at.path, at.version)
	}
	answer, err := s.do(ctx, r)
	switch {
	case isNoNode(err), errors.Is(err, zk.ErrBadVersion):
		_, err = rs.look(ctx, s, dir, w, a)
		return err
	case err != nil:
		a.MayHaveRun = a.MayHaveRun || unanswered(err)
		return err
	}
	at.version = answer.Version
	wrote(w, at, a)
	return nil
}

// wrote notes that w was done, and that its record is at this place.
func wrote(w record.Write, at place, a *record.Answer) {
	if a.Done, a.Value, a.Place = true, "", nil; w.Value != "" {
		a.Value, a.Place = record.ResolveRevision(w.Value, uint64(at.czxid)), at
	}
}

// look has a say what is at w's key, and returns where that is.
func (rs *records) look(ctx context.Context, s *session, dir string, w record.Write, a *record.Answer) (at place, err error) {
	for range looks {
		listed, err := s.list(ctx, dir)
		switch {
		case isNoNode(err):
			listed.Version = missing
		case err != nil:
			return place{}, err
		case listed.Data > 0:
			return place{}, errHoldsData(dir, listed.Data)
		}
		name, seq := recordIn(dir, listed.Children)
		if is := contender(listed.Children, name, seq); w.Takes && is != "" {
			return place{}, record.InsteadOf(is)
		}
		if a.Value, a.Place = "", nil; name == "" {
			return place{directory: listed.Version}, nil
		}
		node, err := s.do(ctx, client.Get(name))
		if isNoNode(err) {
			continue // it has just gone
		}
		if err == nil {
			_, err = firstToken(node.Czxid)
		}
		if err != nil {
			return place{}, err
		}
		a.Value = record.ResolveRevision(string(node.Value), uint64(node.Czxid))
		at = place{path: name, version: node.Version, czxid: node.Czxid}
		a.Place = at
		return at, nil
	}
	return place{}, errors.New("the record was made anew each time when it was looked at")
}

// create makes the record in a directory that had this version when there was none. Each
// creation counts that up, so that of several one is done. What it does not see is that the
// directory itself was made anew meanwhile, nor a mutex, so that it looks afterwards.
func (rs *records) create(ctx context.Context, s *session, dir string, version int32, w record.Write, a *record.Answer) error {
	if version == missing {
		if err := s.makeDirectory(ctx, dir); err != nil {
			return err
		}
		version = 0
	}
	if err := s.await(ctx); err != nil {
		return err
	}
	created, children := make(chan client.Answer, 1), make(chan client.Answer, 1)
	if err := s.send(client.CreateBeside(dir, version, path.Join(dir, recordName()), []byte(w.Value), rs.acl),
		func(a client.Answer) { created <- a }); err != nil {
		return err
	}
	if err := s.send(client.Children(dir), func(a client.Answer) { children <- a }); err != nil {
		children <- client.Answer{Err: fmt.Errorf("%w: %w", client.ErrNoAnswer, err)}
	}
	made, err := await(ctx, created)
	switch {
	case isNoNode(err), errors.Is(err, zk.ErrBadVersion):
		_, err = rs.look(ctx, s, dir, w, a)
		return err
	case err != nil:
		a.MayHaveRun = a.MayHaveRun || unanswered(err)
		return err
	}
	listed, err := await(ctx, children)
	if err != nil {
		a.MayHaveRun = true
		return err
	}
	first, seq := recordIn(dir, listed.Children)
	_, err = firstToken(made.Czxid)
	if err == nil && first == made.Path && !(w.Takes && contender(listed.Children, first, seq) != "") {
		wrote(w, place{path: made.Path, czxid: made.Czxid}, a)
		return nil
	}
	if _, failed := s.do(ctx, client.Delete(made.Path, 0)); failed != nil && !isNoNode(failed) {
		a.MayHaveRun = true
	}
	if err == nil {
		_, err = rs.look(ctx, s, dir, w, a)
	}
	return err
}

// recordName returns a name for a new record, to which the server adds a number.
func recordName() string {
	var b [recordRandom]byte
	rand.Read(b[:]) // never fails, by its documentation
	return recordPrefix + hex.EncodeToString(b[:]) + "-"
}

// recordSequence returns the number that the server gave to a record, and false for
// another node.
func recordSequence(name string) (seq int32, ok bool) {
	rest, ok := strings.CutPrefix(name, recordPrefix)
	_, digits, cut := strings.Cut(rest, "-")
	n, err := strconv.ParseInt(digits, 10, 32)
	return int32(n), ok && cut && err == nil
}

// recordIn returns the path of the record among the nodes in dir, and its number; "" is none.
func recordIn(dir string, children []string) (at string, seq int32) {
	for _, name := range children {
		if n, ok := recordSequence(name); ok && (at == "" || before(n, seq)) {
			at, seq = path.Join(dir, name), n
		}
	}
	return at, seq
}

// contender says of which lock a node is that was made before the record at a path with this
// number, or at all if there is no record. It is "" if there is none.
func contender(children []string, at string, seq int32) string {
	earlier := func(n int32) bool { return at == "" || before(n, seq) }
	if is := foreign(children, earlier); is != "" {
		return is
	}
	for _, name := range children {
		if n, ok := sequence(name); ok && earlier(n) {
			return record.Mutex
		}
	}
	return ""
}

// recordBefore reports whether there is a record that was made before a mutex's node with
// this number.
func recordBefore(children []string, seq int32) bool {
	at, n := recordIn("", children)
	return at != "" && before(n, seq)
}

// errHoldsData says that dir is not the directory of a lock.
func errHoldsData(dir string, n int32) error {
	return fmt.Errorf("%w: %s holds %d bytes of data, which a lock's directory does not; nothing was changed: "+
		"use another key or Options.Root, or empty that node if it is for locks", driver.ErrConflict, dir, n)
}
