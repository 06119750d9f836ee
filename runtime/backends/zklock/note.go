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
)

const (
	// processesName is the directory of the notes that say who a process is, and notesName
	// that of all others, which have one in it for each topic. No key's directory has such a
	// name: see encodeName.
	processesName = "%process"
	notesName     = "%note"
	// sessionNote is the longest ttl of a note that ends with a session.
	sessionNote = time.Hour
)

// errNoSession says that there is no session for a note to live on.
var errNoSession = errors.New("zookeeper: a note lives on the session of a lock, and this process has none")

// noteNode returns the path of the note of this name.
func (b *Backend) noteNode(name string) (string, error) {
	topic, text, _ := strings.Cut(name, "/")
	dir, encoded := path.Join(notesName, encodeName(topic)), encodeName(text)
	if topic == "process" {
		dir = processesName
	}
	if len(name) > maxName || len(encoded) > maxName {
		return "", fmt.Errorf("%w: the name of a note has %d bytes", driver.ErrInvalid, len(name))
	}
	return path.Join(b.root, dir, encoded), b.invalid
}

// PutNote implements [driver.Noter] by an ephemeral node on a session that there is for
// locks, so that it costs none of its own. It ends with that session, whatever the ttl. A
// note for days is a persistent node, and whoever makes one takes away those of its topic
// whose time is over.
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	at, err := b.noteNode(name)
	if err != nil {
		return err
	}
	s := b.lockSession()
	if s == nil {
		return errNoSession
	}
	_, err = s.do(ctx, client.Delete(at, client.AnyVersion)) // to replace the data would take a right more
	if isNoNode(err) {
		err = nil
	}
	switch {
	case err != nil || ttl <= 0:
	case ttl <= sessionNote:
		_, err = s.makeNote(ctx, at, text, zk.FlagEphemeral)
	default:
		var made client.Answer
		if made, err = s.makeNote(ctx, at, text, zk.FlagPersistent); err == nil {
			err = s.clearNotes(ctx, path.Dir(at), made.Ctime-ttl.Milliseconds())
		}
	}
	return explained(err, "keep a note", at)
}

// lockSession returns a session that there is for locks, or nil.
func (b *Backend) lockSession() *session {
	for _, s := range b.sessions.All() {
		if s.over() == nil {
			return s
		}
	}
	return nil
}

// makeNote makes a node, and what is missing above it.
func (s *session) makeNote(ctx context.Context, at, text string, mode int32) (client.Answer, error) {
	create := client.Create(at, []byte(text), s.backend.acl, mode)
	made, err := s.do(ctx, create)
	if isNoNode(err) {
		if err = s.makeDirectory(ctx, path.Dir(at)); err == nil {
			made, err = s.do(ctx, create)
		}
	}
	return made, err
}

// clearNotes deletes the notes in dir that were made before then, in ms since 1970.
func (s *session) clearNotes(ctx context.Context, dir string, then int64) error {
	listed, err := s.do(ctx, client.Children(dir))
	for _, name := range listed.Children {
		at := path.Join(dir, name)
		if note, failed := s.do(ctx, client.Exists(at)); failed == nil && note.Ctime < then {
			_, failed = s.do(ctx, client.Delete(at, client.AnyVersion))
			err = errors.Join(err, failed)
		}
	}
	return err
}

// Note implements [driver.Noter].
func (b *Backend) Note(ctx context.Context, name string) (string, error) {
	at, err := b.noteNode(name)
	if err != nil {
		return "", err
	}
	s := b.lockSession()
	if s == nil {
		if s, err = b.lookingSession(ctx); err != nil {
			return "", explained(err, "begin a session", "all servers")
		}
		defer s.Drop()
	}
	if err = s.await(ctx); err == nil {
		err = s.send(client.Sync(at), func(client.Answer) {})
	}
	if err != nil {
		return "", explained(err, "read a note", at)
	}
	a, err := s.now(ctx, client.Get(at))
	if isNoNode(err) {
		return "", nil
	}
	return string(a.Value), explained(err, "read a note", at)
}
