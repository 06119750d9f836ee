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
	// notesName is the directory of the notes, which has one in it for each topic. No key's
	// directory has such a name: see encodeName.
	notesName = "%note"
	// sessionNote is the longest ttl of a note that ends with a session.
	sessionNote = time.Hour
)

// errNoSession says that there is no session for a note to live on.
var errNoSession = errors.New("zookeeper: a note lives on the session of a lock, and this process has none")

// noteNode returns the path of the note of this name.
func (b *Backend) noteNode(name string) (string, error) {
	topic, text, _ := strings.Cut(name, "/")
	encoded := encodeName(text)
	if len(name) > maxName || len(encoded) > maxName {
		return "", fmt.Errorf("%w: the name of a note has %d bytes", driver.ErrInvalid, len(name))
	}
	return path.Join(b.root, notesName, encodeName(topic), encoded), b.invalid
}

// PutNote implements [driver.Noter] by an ephemeral node on a session that has locks, so that it
// needs none of its own. The note ends with that session, whatever the ttl. A note for days is a
// persistent node, which stays until somebody deletes it. It is an error if another process puts
// the same note meanwhile.
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	at, err := b.noteNode(name)
	if err != nil {
		return err
	}
	s := b.lockSession()
	if s == nil {
		return errNoSession
	}
	mode := int32(zk.FlagEphemeral)
	if ttl > sessionNote {
		mode = zk.FlagPersistent
	}
	_, err = s.do(ctx, client.Delete(at, client.AnyVersion)) // replacing its data would need another right
	if isNoNode(err) {
		err = nil
	}
	if err == nil && ttl > 0 {
		_, _, err = s.createAndList(ctx, client.Create(at, []byte(text), b.options.ACL, mode), path.Dir(at))
	}
	return explained(err, "keep a note", at)
}

// lockSession returns a session that has locks, or nil.
func (b *Backend) lockSession() *session {
	for _, s := range b.sessions.All() {
		if s.endCause() == nil && s.class.lease > 0 { // not one of grantedTimeout
			return s
		}
	}
	return nil
}

// Note implements [driver.Noter].
func (b *Backend) Note(ctx context.Context, name string) (text string, err error) {
	at, err := b.noteNode(name)
	if err != nil {
		return "", err
	}
	err = b.withSession(ctx, b.lockSession(), func(s *session) error {
		a, err := s.fresh(ctx, client.Get(at))
		if text = string(a.Value); isNoNode(err) {
			return nil
		}
		return explained(err, "read a note", at)
	})
	return text, err
}
