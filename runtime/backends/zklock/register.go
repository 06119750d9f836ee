package zklock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
)

// processesName is the directory of the processes, in JSON as [driver.Process] has them. No
// key's directory has this name: see encodeName.
const processesName = "%process"

func (b *Backend) processNode(id string) string { return path.Join(b.root, processesName, id) }

// Register implements [driver.Registrar] by an ephemeral node on one of the sessions that
// there are for locks, so that it costs no session of its own. It ends with that session,
// whatever the ttl; a Locker registers again from time to time, on another session then. A
// process without a session has no locks, and is not registered.
func (b *Backend) Register(ctx context.Context, p *driver.Process, ttl time.Duration) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	at := b.processNode(p.ID)
	for _, s := range b.sessions.All() {
		if s.over() != nil {
			continue
		}
		if ttl <= 0 {
			_, err = s.do(ctx, client.Delete(at, client.AnyVersion))
		} else {
			err = s.register(ctx, at, text)
		}
		if isNoNode(err) || errors.Is(err, zk.ErrNodeExists) {
			err = nil
		}
		return explained(err, "say which process this is", at)
	}
	return nil
}

// register makes the node, and what is missing above it.
func (s *session) register(ctx context.Context, at string, text []byte) error {
	create := client.Create(at, text, s.backend.acl, zk.FlagEphemeral)
	_, err := s.do(ctx, create)
	if isNoNode(err) {
		if err = s.makeDirectory(ctx, path.Dir(at)); err == nil {
			_, err = s.do(ctx, create)
		}
	}
	return err
}

// Process implements [driver.Registrar].
func (b *Backend) Process(ctx context.Context, id string) (*driver.Process, error) {
	if b.invalid != nil {
		return nil, b.invalid
	}
	s, err := b.lookingSession(ctx)
	if err != nil {
		return nil, explained(err, "begin a session", "all servers")
	}
	defer s.Drop()
	at := b.processNode(id)
	a, err := s.do(ctx, client.Get(at))
	if isNoNode(err) {
		return nil, nil
	}
	if err != nil {
		return nil, explained(err, "ask which process this is", at)
	}
	p := &driver.Process{}
	if err := json.Unmarshal(a.Value, p); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", driver.ErrConflict, at, err)
	}
	return p, nil
}
