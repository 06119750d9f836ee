package zklock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// Locks implements [driver.Inspector]. ZooKeeper has no pages: the names of all keys come
// in one answer, and what is in their directories one after the other.
func (b *Backend) Locks(ctx context.Context, pattern string) iter.Seq2[*driver.LockInfo, error] {
	return func(yield func(*driver.LockInfo, error) bool) {
		if b.invalid != nil {
			yield(nil, b.invalid)
			return
		}
		s, err := b.lookingSession(ctx)
		if err != nil {
			yield(nil, explained(err, "begin a session", "all servers"))
			return
		}
		defer s.Drop()
		a, err := s.list(ctx, b.root)
		if err != nil && !isNoNode(err) {
			yield(nil, explained(err, "list the locks", b.root))
			return
		}
		for _, name := range a.Children {
			key := keyNamed(name)
			if name == processesName || name == notesName || !engine.Match(pattern, key) {
				continue
			}
			info, err := b.lockIn(ctx, s, key, path.Join(b.root, name))
			if errors.Is(err, driver.ErrConflict) {
				continue
			}
			if err != nil || info != nil {
				if !yield(info, err) || err != nil {
					return
				}
			}
		}
	}
}

// lookingSession returns the session that records share.
func (b *Backend) lookingSession(ctx context.Context) (*session, error) {
	return b.sessionFor(ctx, (&records{b}).span)
}

// Lock implements [driver.Inspector].
func (b *Backend) Lock(ctx context.Context, key string) (*driver.LockInfo, error) {
	dir, err := b.checked(key)
	if err != nil {
		return nil, err
	}
	s, err := b.lookingSession(ctx)
	if err != nil {
		return nil, explained(err, "begin a session", "all servers")
	}
	defer s.Drop()
	return b.lockIn(ctx, s, key, dir)
}

// lockIn returns the lock that a directory is, or nil if nobody is in it.
func (b *Backend) lockIn(ctx context.Context, s *session, key, dir string) (*driver.LockInfo, error) {
	a, err := s.list(ctx, dir)
	switch {
	case isNoNode(err):
		return nil, nil
	case err != nil:
		return nil, explained(err, "look at a lock", dir)
	}
	if at, _ := recordIn(dir, a.Children); at != "" {
		value, err := s.do(ctx, client.Get(at))
		if isNoNode(err) {
			return nil, nil
		}
		if err != nil {
			return nil, explained(err, "read the record of a lock", dir)
		}
		return record.Describe(key, record.ResolveRevision(string(value.Value), uint64(value.Czxid)), 0)
	}
	queue := contendersIn(a.Children)
	if len(queue) == 0 {
		if a.Data > 0 || len(a.Children) > 0 {
			return nil, fmt.Errorf("%w: %s is a node with data or other children", driver.ErrConflict, dir)
		}
		return nil, nil
	}
	inside := insideOf(queue)
	info := &driver.LockInfo{Key: key, Waiters: len(queue) - len(inside)}
	for _, name := range inside {
		h, err := holderAt(ctx, s, path.Join(dir, name))
		if err != nil {
			return nil, explained(err, "look at a lock", dir)
		}
		info.Kind |= h.Kind
		info.Holders = append(info.Holders, h)
	}
	if info.Kind != 0 {
		info.Kind = driver.Read | driver.Write
	}
	return info, nil
}

// contendersIn returns those of the names that compete, in their order.
func contendersIn(names []string) (queue []string) {
	for _, name := range names {
		if _, ok := sequence(name); ok {
			queue = append(queue, name)
		}
	}
	slices.SortFunc(queue, func(a, b string) int {
		m, _ := sequence(a)
		n, _ := sequence(b)
		return int(m - n)
	})
	return queue
}

// insideOf returns those of the queue that have the lock: the first, or the readers that
// nobody who writes is before.
func insideOf(queue []string) []string {
	n := 0
	for n < len(queue) && (strings.Contains(queue[n], "__READ__") || strings.Contains(queue[n], "__rlock__")) {
		n++
	}
	return queue[:max(n, 1)]
}

// holderAt returns who the node at a path is of.
func holderAt(ctx context.Context, s *session, at string) (driver.Holder, error) {
	a, err := s.do(ctx, client.Get(at))
	if err != nil && !isNoNode(err) {
		return driver.Holder{}, err
	}
	name := path.Base(at)
	h := driver.Holder{ID: name, Client: clientOf(name)}
	if a.Ctime > 0 {
		h.Since = time.UnixMilli(a.Ctime)
	}
	h.Token, _ = firstToken(a.Czxid)
	switch id := string(a.Value); {
	case strings.Contains(id, ":") && strings.HasPrefix(name, protection(id)):
		h.ID, h.Client = id, record.Client
	case strings.Contains(name, "__READ__"), strings.Contains(name, "__rlock__"):
		h.Kind = driver.Read
	case strings.Contains(name, "__WRIT__"):
		h.Kind = driver.Write
	}
	return h, nil
}

var protected = regexp.MustCompile(`^_c_[0-9a-f]{32}-lock-`)

// clientOf returns the client that names nodes so.
func clientOf(name string) string {
	switch {
	case strings.Contains(name, "__lock__"), strings.Contains(name, "__rlock__"):
		return "kazoo"
	case protected.MatchString(name):
		return "go-zookeeper"
	}
	return "Curator"
}

// Break implements [driver.Inspector]: it deletes the holder's node.
func (b *Backend) Break(ctx context.Context, key, id string) error {
	dir, err := b.checked(key)
	if err != nil {
		return err
	}
	s, err := b.lookingSession(ctx)
	if err != nil {
		return explained(err, "begin a session", "all servers")
	}
	defer s.Drop()
	lost := fmt.Errorf("%w: %s does not hold %s", driver.ErrLost, id, key)
	a, err := s.list(ctx, dir)
	if isNoNode(err) {
		return lost
	}
	if err != nil {
		return explained(err, "look at a lock", dir)
	}
	if at, _ := recordIn(dir, a.Children); at != "" {
		return b.kinds.Break(ctx, key, id)
	}
	if queue := contendersIn(a.Children); len(queue) > 0 {
		for _, name := range insideOf(queue) {
			if name != id && !strings.HasPrefix(name, protection(id)) {
				continue
			}
			_, err := s.do(ctx, client.Delete(path.Join(dir, name), client.AnyVersion))
			if isNoNode(err) {
				return lost
			}
			return explained(err, "free a lock", dir)
		}
	}
	return lost
}

// keyNamed returns the key whose directory has this name: it undoes encodeName.
func keyNamed(name string) string {
	var out strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '%' && isEscape(name[i+1:]) {
			c, _ := strconv.ParseUint(name[i+1:i+3], 16, 8)
			out.WriteByte(byte(c))
			i += 2
			continue
		}
		out.WriteByte(name[i])
	}
	return out.String()
}
