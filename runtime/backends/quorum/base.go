package quorum

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/lockgen/lockgen/runtime/driver"
)

// baseKey is where a member keeps its base.
const baseKey = "lockgen.quorum.base"

// base raises the tokens of a member that counts by revisions, as etcd does: to each of its
// tokens a number is added, one for all of its keys, which only rises. A lease counts by the
// base that was read after it was granted. So its tokens are above all that the leases of its
// key before it have raised the base to, since each did so while it held the key.
type base struct {
	record driver.Agreement

	mu   sync.Mutex
	text string // as last seen
}

// swap makes next the base if it is old, and returns what it is then. If both are "" it only looks.
func (s *base) swap(ctx context.Context, old, next string) (uint64, error) {
	text, err := s.record.CompareAndSwap(ctx, baseKey, old, next)
	if err != nil {
		return 0, fmt.Errorf("the base of its tokens, %q: %w", baseKey, err)
	}
	is, err := number(text)
	if err != nil {
		return 0, fmt.Errorf("%w: the value at %q is no base of tokens: %.40q", driver.ErrConflict, baseKey, text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = text
	return is, nil
}

func number(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	return strconv.ParseUint(text, 10, 64)
}

// RaiseToken implements [driver.TokenRaiser]. The key's later leases have tokens of the
// engine's own above the first of held, which is the engine's lease.
func (s *base) RaiseToken(ctx context.Context, held driver.Lease, least uint64) error {
	own, _ := held.Tokens()
	if least <= own {
		return nil
	}
	need := least - own
	for {
		s.mu.Lock()
		old := s.text
		s.mu.Unlock()
		next := old
		if is, _ := number(old); is < need {
			next = strconv.FormatUint(need, 10)
		}
		is, err := s.swap(ctx, old, next)
		switch {
		case err != nil:
			return err
		case is < need: // another process has changed it
		case held.Deadline().Left() <= 0: // the key's next lease may have read it before
			return driver.ErrLost
		default:
			return nil
		}
	}
}
