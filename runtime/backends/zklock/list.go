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

// withSession calls look with s, or with the session that records share if s is nil.
func (b *Backend) withSession(ctx context.Context, s *session, look func(*session) error) (err error) {
	if s == nil {
		if s, err = b.session(ctx, recordsTTL); err != nil {
			return explained(err, "begin a session", "all servers")
		}
		defer s.Drop()
	}
	return look(s)
}

// Locks implements [driver.Inspector]. ZooKeeper has no pages: one answer has the names of all
// keys. Their directories are read one after the other.
func (b *Backend) Locks(ctx context.Context, pattern string) iter.Seq2[*driver.LockInfo, error] {
	return engine.List(func(yield func(*driver.LockInfo) bool) error {
		return b.withSession(ctx, nil, func(s *session) error { return b.locks(ctx, s, pattern, yield) })
	})
}

func (b *Backend) locks(ctx context.Context, s *session, pattern string, yield func(*driver.LockInfo) bool) error {
	a, err := s.fresh(ctx, client.Children(b.root))
	if err != nil && !isNoNode(err) {
		return explained(err, "list the locks", b.root)
	}
	for _, name := range a.Children {
		key := keyNamed(name)
		if name == notesName || !engine.Match(pattern, key) {
			continue
		}
		switch info, err := b.lockIn(ctx, s, key, path.Join(b.root, name)); {
		case errors.Is(err, driver.ErrConflict):
		case err != nil:
			return err
		case info != nil && !yield(info):
			return nil
		}
	}
	return nil
}

// Lock implements [driver.Inspector].
func (b *Backend) Lock(ctx context.Context, key string) (info *driver.LockInfo, err error) {
	dir, err := b.directory(key)
	if err != nil {
		return nil, err
	}
	err = b.withSession(ctx, nil, func(s *session) error {
		info, err = b.lockIn(ctx, s, key, dir)
		return err
	})
	return info, err
}

// lockIn returns the lock that a directory is, or nil if nobody is in it.
func (b *Backend) lockIn(ctx context.Context, s *session, key, dir string) (*driver.LockInfo, error) {
	a, err := s.fresh(ctx, client.Children(dir))
	at, queue := recordIn(dir, a.Children)
	if err == nil && at != "" {
		var kept record.Answer
		if err = s.getRecord(ctx, at, &kept); err == nil {
			return b.kinds.Describe(key, kept.Value, 0)
		}
	}
	holders := holdersIn(queue)
	switch {
	case isNoNode(err):
		return nil, nil
	case err != nil:
		return nil, explained(err, "look at a lock", dir)
	case len(queue) == 0 && (a.DataLength > 0 || len(a.Children) > 0):
		return nil, fmt.Errorf("%w: %s is a node with data or other children", driver.ErrConflict, dir)
	case len(queue) == 0:
		return nil, nil
	}
	info := &driver.LockInfo{Key: key, Waiters: len(queue) - len(holders)}
	for _, c := range holders {
		h, err := holderOf(ctx, s, dir, c)
		if err != nil {
			return nil, explained(err, "look at a lock", dir)
		}
		if h.Kind != 0 {
			info.Kind = driver.Read | driver.Write
		}
		info.Holders = append(info.Holders, h)
	}
	return info, nil
}

// holdersIn returns the contenders that hold the lock: the first, or the readers before the first
// writer.
func holdersIn(queue []contender) []contender {
	n := 0
	for n < len(queue) && queue[n].side == driver.Read {
		n++
	}
	return queue[:min(max(n, 1), len(queue))]
}

var protected = regexp.MustCompile(`^_c_[0-9a-f]{32}-lock-`)

// holderOf returns who holds the lock by c.
func holderOf(ctx context.Context, s *session, dir string, c contender) (driver.Holder, error) {
	a, err := s.do(ctx, client.Get(path.Join(dir, c.name)))
	if err != nil && !isNoNode(err) {
		return driver.Holder{}, err
	}
	h := driver.Holder{ID: c.name, Client: c.client, Kind: c.side}
	if a.Ctime > 0 {
		h.Since = time.UnixMilli(a.Ctime)
	}
	h.Token, _ = firstToken(a.Czxid)
	if id := string(a.Value); strings.Contains(id, ":") && strings.HasPrefix(c.name, protectedPrefix(id)) {
		h.ID, h.Client = id, record.Client
	} else if protected.MatchString(c.name) {
		h.Client = "go-zookeeper"
	}
	return h, nil
}

// Break implements [driver.Inspector]: it deletes the holder's node.
func (b *Backend) Break(ctx context.Context, key, id string) error {
	dir, err := b.directory(key)
	if err != nil {
		return err
	}
	return b.withSession(ctx, nil, func(s *session) error {
		a, err := s.fresh(ctx, client.Children(dir))
		at, queue := recordIn(dir, a.Children)
		if err == nil && at != "" {
			return b.kinds.Break(ctx, key, id)
		}
		holders := holdersIn(queue)
		i := slices.IndexFunc(holders, func(c contender) bool { return c.name == id || strings.HasPrefix(c.name, protectedPrefix(id)) })
		if err == nil && i >= 0 {
			_, err = s.do(ctx, client.Delete(path.Join(dir, holders[i].name), client.AnyVersion))
		}
		if isNoNode(err) || err == nil && i < 0 {
			return fmt.Errorf("%w: %s does not hold %s", driver.ErrLost, id, key)
		}
		return explained(err, "free a lock", dir)
	})
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
