package quorum

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/lockgen/lockgen/runtime/driver"
)

// baseKey is the key at which a member keeps its base.
const baseKey = "lockgen.quorum.base"

// tokenBase raises the tokens of a member that counts by revisions, as etcd does. A number is added
// to each of its tokens: the base, which is one for all of its keys, and only rises. A lease uses
// the base that was read after it was granted. Earlier leases of the key have raised the base
// only while they held the key, so the tokens of later ones are higher.
type tokenBase struct {
	record driver.Agreement

	mu   sync.Mutex
	text string // of the base, as last seen
}

// swap sets the base to next if it is old, and returns the base. If both are "" it only looks.
func (t *tokenBase) swap(ctx context.Context, old, next string) (uint64, error) {
	text, err := t.record.CompareAndSwap(ctx, baseKey, old, next)
	if err != nil {
		return 0, fmt.Errorf("the base of its tokens, %q: %w", baseKey, err)
	}
	is, err := parseBase(text)
	if err != nil {
		return 0, fmt.Errorf("%w: the value at %q is no base of tokens: %.40q", driver.ErrConflict, baseKey, text)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = text
	return is, nil
}

func parseBase(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	return strconv.ParseUint(text, 10, 64)
}

// RaiseToken implements [driver.TokenRaiser]. The key's later leases have tokens of the
// engine's own above the first of held, which is the engine's lease.
func (t *tokenBase) RaiseToken(ctx context.Context, held driver.Lease, least uint64) error {
	own, _ := held.Tokens()
	if least <= own {
		return nil
	}
	need := least - own
	for {
		t.mu.Lock()
		old := t.text
		t.mu.Unlock()
		next := old
		if is, _ := parseBase(old); is < need {
			next = strconv.FormatUint(need, 10)
		}
		is, err := t.swap(ctx, old, next)
		switch {
		case err != nil:
			return err
		case is < need: // another process has changed the base
		case held.Deadline().Left() <= 0: // the key's next lease may have read the old base
			return driver.ErrLost
		default:
			return nil
		}
	}
}
