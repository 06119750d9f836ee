package zklock

import (
	"context"
	"errors"
	"path"

	"github.com/go-zookeeper/zk"
)

// mkdir makes dir and what is missing above it. They are containers: the server
// deletes one some time after its last child went, so that directories of keys
// that are no longer used vanish, and their sequence numbers begin anew. A
// server that knows no containers (before 3.5.3) gets lasting nodes.
func (s *session) mkdir(ctx context.Context, dir string) error {
	if dir == "/" {
		return nil
	}
	for range directoryTries {
		err := s.makeNode(ctx, dir)
		switch {
		case err == nil || errors.Is(err, zk.ErrNodeExists):
			return nil
		case !isNoNode(err):
			return err
		}
		if err := s.mkdir(ctx, path.Dir(dir)); err != nil {
			return err
		}
	}
	return zk.ErrNoNode
}

// directoryTries is how often a directory may vanish under our hands, as an
// empty container does.
const directoryTries = 5

func (s *session) makeNode(ctx context.Context, dir string) error {
	acl := s.backend.acl
	err := s.call(ctx, write, func(c *zk.Conn) error {
		_, err := c.CreateContainer(dir, nil, zk.FlagContainer, acl)
		return err
	})
	if err == nil || !answered(err) || committed(err) || unanswered(err) ||
		errors.Is(err, errNotSent) || errors.Is(err, zk.ErrNoChildrenForEphemerals) || errors.Is(err, zk.ErrInvalidACL) {
		return err
	}
	return s.call(ctx, write, func(c *zk.Conn) error {
		_, err := c.Create(dir, nil, zk.FlagPersistent, acl)
		return err
	})
}
