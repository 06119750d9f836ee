package driver

import (
	"context"
	"time"
)

// TokenRaiser is implemented by a [Backend] whose fencing tokens can be raised. A Backend that
// is made of several needs it of each: they count apart, and where other members decide
// than before, the tokens must go on from the highest.
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
	// Incarnation asks the engine since when it remembers. It answers for the server that
	// locks are taken at, by a question that is sent after the call.
	Incarnation(ctx context.Context) (Incarnation, error)
}

// Incarnation is one life of a server, from a start to the next.
type Incarnation struct {
	ID  string        // which no other server has, nor another life of this one
	Age time.Duration // since its start, by its own clock, or less
}
