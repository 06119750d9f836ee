package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// endCause returns why the session has ended, or nil.
func (s *session) endCause() error { return context.Cause(s.Context()) }

// errSessionEnded is client.ErrNotSent because the session had ended. Another session may serve.
var errSessionEnded = fmt.Errorf("%w, the session has ended", client.ErrNotSent)

// errNoConnection is client.ErrNotSent because no connection came for a while.
var errNoConnection = fmt.Errorf("%w, there is no connection to ZooKeeper", client.ErrNotSent)

// do makes requests, one behind the other, and returns the answer to the last. The error
// is client.ErrNotSent where that was not sent, client.ErrNoAnswer where it may have run or
// may yet run, and else the server's.
func (s *session) do(ctx context.Context, requests ...client.Request) (a client.Answer, err error) {
	if err = s.await(ctx); err != nil {
		return a, err
	}
	var answer <-chan client.Answer
	for _, r := range requests {
		answer = s.ask(r)
	}
	return await(ctx, answer)
}

// ask sends r after what was sent before. If it can't be sent the answer says so.
func (s *session) ask(r client.Request) <-chan client.Answer {
	answer := make(chan client.Answer, 1)
	s.client.Send(r, func(a client.Answer) { answer <- a })
	return answer
}

// await returns what comes from answer, or client.ErrNoAnswer when ctx ends.
func await(ctx context.Context, answer <-chan client.Answer) (client.Answer, error) {
	select {
	case a := <-answer:
		return a, a.Err
	case <-ctx.Done():
		return client.Answer{}, fmt.Errorf("%w: %w", client.ErrNoAnswer, ctx.Err())
	}
}

// await waits for a connection, for reconnectWait at most.
func (s *session) await(ctx context.Context) error {
	up := s.client.Up()
	select {
	case <-up:
		if s.endCause() == nil {
			return nil
		}
	default:
	}
	limited, cancel := context.WithTimeout(ctx, reconnectWait)
	defer cancel()
	select {
	case <-up:
		return nil
	case <-s.Context().Done():
		return fmt.Errorf("%w: %w", errSessionEnded, s.endCause())
	case <-limited.Done():
		return fmt.Errorf("%w: %w", errNoConnection, errors.Join(ctx.Err(), s.client.LastError()))
	}
}

// fresh is do for a read, and has the server catch up first.
func (s *session) fresh(ctx context.Context, r client.Request) (client.Answer, error) {
	return s.do(ctx, client.Sync("/"), r)
}

// createAndList creates a node in dir, and dir if it is missing. With it goes a request for the
// children of dir, which saves a round trip: the server deals with the two in their order.
func (s *session) createAndList(ctx context.Context, create client.Request, dir string) (made client.Answer, listed <-chan client.Answer, err error) {
	for try := 1; ; try++ {
		if err = s.await(ctx); err != nil {
			return made, nil, err
		}
		created := s.ask(create)
		listed = s.ask(client.Children(dir))
		if made, err = await(ctx, created); !isNoNode(err) || try == maxAttempts {
			return made, listed, err
		}
		if err = s.makeDirectory(ctx, dir); err != nil {
			return made, nil, err
		}
	}
}

// makeDirectory creates dir, or the directory above it if that is missing: then the caller calls
// it again. Directories are containers: the server deletes one some time after its last child.
// So those of keys that are no longer used vanish, and their sequence numbers begin anew.
func (s *session) makeDirectory(ctx context.Context, dir string) error {
	_, err := s.do(ctx, client.Create(dir, nil, s.backend.options.ACL, zk.FlagContainer))
	switch {
	case isNoNode(err):
		return s.makeDirectory(ctx, path.Dir(dir))
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	}
	return err
}

func isNoNode(err error) bool { return errors.Is(err, zk.ErrNoNode) }

// committed reports whether a majority has taken the write that ended with err. The leader also has
// a majority take a refusal for one of these reasons.
func committed(err error) bool {
	answers := []error{nil, zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrNoAuth, zk.ErrBadVersion}
	return slices.ContainsFunc(answers, func(answer error) bool { return errors.Is(err, answer) })
}

func unanswered(err error) bool { return errors.Is(err, client.ErrNoAnswer) }

// final reports whether another attempt would end with the same err.
func final(err error) bool {
	return errors.Is(err, driver.ErrConflict) || errors.Is(err, errTooManyElections)
}

// explained adds to err what was tried, and how to mend it where that is known.
func explained(err error, what, path string) error {
	switch {
	case err == nil, engine.HeldBy(err) != nil:
		return err
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("zookeeper refuses to %s at %s; give Options.Auth whose ACL there allows create, delete and read, and write for what is no mutex: %w", what, path, err)
	case errors.Is(err, client.ErrAuth):
		return fmt.Errorf("%w; see Options.Auth", err)
	case errors.Is(err, zk.ErrInvalidACL):
		return fmt.Errorf("zookeeper takes Options.ACL for invalid (a scheme \"auth\" needs Options.Auth): %w", err)
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return fmt.Errorf("%w: %s is an ephemeral node, and no lock's directory: %w", driver.ErrConflict, path, err)
	case final(err) || errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrClosed):
		return err
	case unanswered(err):
		return fmt.Errorf("%w: zookeeper: %s at %s: %w", driver.ErrIndeterminate, what, path, err)
	}
	return fmt.Errorf("zookeeper: %s at %s: %w", what, path, err)
}
