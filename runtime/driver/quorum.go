package driver

import (
	"context"
	"time"
)

// TokenRaiser is implemented by a [Backend] whose fencing tokens can be raised. A Backend that is
// made of several members needs this ability of each of them. Each member counts its own tokens,
// and they must continue from the highest when other members decide than before.
type TokenRaiser interface {
	// RaiseToken makes every later lease of l's key have tokens above least, until the engine's
	// clock alone ensures that. l is a lease of this Backend; its own tokens stay as they are. It
	// may be called again after an error, and never lowers what was raised. ErrLost means that the
	// engine answered "not the owner".
	RaiseToken(ctx context.Context, l Lease, least uint64) error
}

// Incarnated is implemented by a [Backend] whose engine may forget locks when it restarts. A
// Backend without it promises that its engine forgets none.
type Incarnated interface {
	// Incarnation asks the engine since when it has kept its locks. It asks the server at which
	// locks are taken, after it was called: the answer is never an older one.
	Incarnation(ctx context.Context) (Incarnation, error)
}

// Incarnation is one run of a server, from a start to the next.
type Incarnation struct {
	ID  string        // no other server has this ID, nor another run of this one
	Age time.Duration // the time since its start, by its own clock, or less
}
