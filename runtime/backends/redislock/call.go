package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
)

// request is one script with its arguments. It does not change once it is sent: the next
// attempt copies it while an attempt that was given up may still read it.
type request struct {
	script   *script
	keys     [4]string
	args     [5]string
	nkeys    int
	nargs    int
	replicas replicas

	takes            bool          // it takes a lock: at a server that is unfit for locks it fails
	renews           bool          // it renews a lease: the standby sends it
	readOnly         bool          // it changes nothing, so its outcome is never unknown
	tombstone        time.Duration // how long the tombstone that it leaves lasts, or 0
	oneKeySuffices   bool          // while a slot moves, the lock's own key is enough: see withOneKey
	waitsForFailover bool          // its caller may wait until another server has taken over
}

// call is one attempt to have a server do a request.
type call struct {
	request
	asking bool // the server was named by an ASK
	eval   bool // by EVAL, because the server does not know the script's hash
	alone  bool // in a command by itself: the server refused it together with others

	state  atomic.Int32 // pending, encoded or abandoned
	mark   *sentMark    // of the command that it is sent with
	reply  reply
	err    error
	waited *redis.IntCmd   // what WAIT was answered
	ctx    context.Context // the caller's
	done   chan struct{}

	batcher *batcher // that has sent it as one of several: see several.go
	failed  error    // of that attempt
}

// on returns a call that runs s on keys.
func (s *script) on(keys ...string) *call {
	c := &call{request: request{script: s}}
	c.nkeys = copy(c.keys[:], keys)
	return c
}

// with gives c these arguments, without the empty ones at the end.
func (c *call) with(args ...string) *call {
	copy(c.args[:], args)
	for c.nargs = len(args); c.nargs > 1 && args[c.nargs-1] == ""; c.nargs-- {
	}
	return c
}

const (
	pending   int32 = iota
	encoded         // it may have been sent
	abandoned       // its caller has gone, and it is not sent
)

var (
	// errNotSent says that a call did not reach the server and never will.
	errNotSent = errors.New("not sent")
	// errNoAnswer says that a call may have run, or may yet run.
	errNoAnswer = errors.New("no answer")
	// errNoHandshake goes with errNotSent if a server was reached, and fell
	// silent before the command was sent.
	errNoHandshake = errors.New("no connection")
	// errDial goes with errNotSent if no connection could be made.
	errDial = errors.New("dial")
)

// sent returns the instant from before c was sent.
func (c *call) sent() driver.Instant { return *c.mark.at.Load() }

// outcomeUnknown reports whether c, which ended with err, may have done more than its answer
// says: it had no answer, or a hook has sent it more than once, and only the last answer is known.
func (c *call) outcomeUnknown(err error) bool {
	return errors.Is(err, errNoAnswer) || (err == nil || isAnswer(err)) && c.mark != nil && c.mark.resent.Load()
}

// sentMark knows whether a command was sent, and when. go-redis does not tell, so the
// mark stands for the script in the command: go-redis asks it for its bytes when it encodes
// the command, just before it writes to the connection.
type sentMark struct {
	arg    string // what the server gets
	call   *call  // the call of the command, or nil if it has several
	at     atomic.Pointer[driver.Instant]
	resent atomic.Bool // a hook has sent it more than once
}

// MarshalBinary implements [encoding.BinaryMarshaler]. It fails if the caller has gone
// while the connection was made: then the command is not sent, and go-redis keeps the connection,
// as after an answer. The few bytes before the mark are in a buffer that the next command empties.
func (m *sentMark) MarshalBinary() ([]byte, error) {
	if m.call != nil && !m.call.encode() {
		return nil, answerError("not sent: the caller has gone")
	}
	now := driver.Now()
	if !m.at.CompareAndSwap(nil, &now) {
		m.resent.Store(true)
	}
	return []byte(m.arg), nil
}

// String is for hooks that log commands.
func (m *sentMark) String() string { return m.arg }

// failed returns the error of a command that ended with err, which is not an answer of the
// server.
func (m *sentMark) failed(err error) error {
	var unfit *unfitError
	switch {
	case m.at.Load() != nil:
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	case errors.As(err, &unfit):
		return unfit
	case errors.Is(err, errDial), errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	return fmt.Errorf("%w: %w: %w", errNotSent, errNoHandshake, err)
}

// encode notes that c may be sent from here on. It returns false if its caller has gone.
func (c *call) encode() bool {
	return c.state.CompareAndSwap(pending, encoded) || c.state.Load() == encoded
}

// command returns c as a command to a node of a Cluster, or a server by itself.
func (c *call) command(cluster bool) []any {
	c.mark = &sentMark{call: c}
	all := c.script.at(cluster).command(make([]any, 0, 3+c.nkeys+c.nargs), c.mark, c.eval, c.nkeys)
	for _, k := range c.keys[:c.nkeys] {
		all = append(all, k)
	}
	for _, a := range c.args[:c.nargs] {
		all = append(all, a)
	}
	return all
}

func isUnknownScript(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// isAnswer reports whether err is what the server said, and not about the way there.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}
