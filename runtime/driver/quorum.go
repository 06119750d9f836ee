package driver

import (
	"context"
	"time"
)

// TokenRaiser is implemented by a [Backend] whose fencing tokens can be raised. A Backend that
// is made of several members needs it of each: each member counts its own tokens, and they must
// go on from the highest when other members decide than before.
type TokenRaiser interface {
	// RaiseToken makes every later lease of l's key have tokens above least, until the engine's
	// clock alone ensures that. l is a lease of this Backend; its own
	// tokens stay as they are. It may be called again after an error, and never lowers what
	// was raised. ErrLost says that the engine answered: not yours.
	RaiseToken(ctx context.Context, l Lease, least uint64) error
}

// Incarnated is implemented by a [Backend] whose engine may forget locks when it restarts. A
// Backend without it promises that its engine forgets none.
type Incarnated interface {
	// Incarnation asks the engine since when it remembers. It asks the server that locks are
	// taken at, and after it was called: the answer is no older one.
	Incarnation(ctx context.Context) (Incarnation, error)
}

// Incarnation is one life of a server, from a start to the next.
type Incarnation struct {
	ID  string        // which no other server has, nor another life of this one
	Age time.Duration // since its start, by its own clock, or less
}
