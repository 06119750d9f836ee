package redislock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// laneWidth is how many connections a lane sends on.
	laneWidth = 2
	// laneBatch is how many calls one pipeline carries at most, and laneLeast how
	// many go together before any are left for the one behind it.
	laneBatch, laneLeast = 128, 8
)

// lane sends the calls of concurrent goroutines to one server. A call that
// finds a connection free is sent at once, by its own goroutine; those that
// come while all are in use go together in the next pipeline. So a lone caller
// waits for nobody, and many callers share round trips.
type lane struct {
	client *redis.Client // for what must not wait behind calls: renewals

	mu      sync.Mutex
	waiting []*call
	free    []*link
	links   []*link // free or in use
	beat    chan struct{}

	single atomic.Bool // the server has all keys, by what it said last

	used   time.Time // when it was asked for last, in a Cluster; under the lanes' mutex
	outage outage    // likewise

	troubled atomic.Bool // there is an outage
}

// request is one script with its arguments.
type request struct {
	script *script
	keys   [3]string
	args   [7]string
	nkeys  int
	nargs  int
	copies copies

	splits  bool // its caller knows another way where keys are in two places
	patient bool // its caller would rather wait for another server than be refused
}

// call is one request on its way to one server.
type call struct {
	request
	asking bool // the server was named by an ASK
	probe  bool // find out first whether the server lets us set an expiry
	whole  bool // with its script, which the server does not know
	alone  bool // not with others: the server refused them together

	state atomic.Int32   // waiting, sent or left
	sent  driver.Instant // from before it was sent
	reply reply
	err   error
	done  chan struct{}
}

const (
	waiting int32 = iota
	sent
	left
)

var (
	// errNotSent says that a call did not reach the server and never will.
	errNotSent = errors.New("not sent")
	// errNoAnswer says that a call may have run, or may yet run.
	errNoAnswer = errors.New("no answer")
	// errNoGreeting goes with errNotSent where a server was reached, and fell
	// silent before anything was asked of it.
	errNoGreeting = errors.New("no connection")
	// errLost is of calls whose connection was lost before they were sent, for
	// another's sake.
	errLost = fmt.Errorf("%w: %w", errNotSent, errNoGreeting)
)

func newLane(client *redis.Client, wary bool) *lane {
	l := &lane{client: client}
	for range laneWidth {
		l.links = append(l.links, newLink(client, wary, &l.single))
	}
	l.free = append(l.free, l.links...)
	return l
}

// do runs c, whose reply is there if it returns nil. It returns when ctx ends:
// with errNotSent if c was not sent and will not be, else with errNoAnswer.
func (l *lane) do(ctx context.Context, c *call) error {
	l.mu.Lock()
	if len(l.free) > 0 {
		s := l.take()
		l.mu.Unlock()
		err := s.one(ctx, c)
		l.put(s)
		return err
	}
	if err := ctx.Err(); err != nil { // the beat would come later
		l.mu.Unlock()
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	c.done = make(chan struct{})
	l.waiting = append(l.waiting, c)
	beat := l.nextBeat()
	l.mu.Unlock()
	if end, ok := ctx.Deadline(); !ok || time.Until(end) > glance { // the beat comes before
		select {
		case <-c.done:
			return c.err
		case <-beat:
		}
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		if c.state.CompareAndSwap(waiting, left) {
			return fmt.Errorf("%w: %w", errNotSent, ctx.Err())
		}
		return fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
	}
}

// nextBeat returns a channel that is closed soon. Calls that are answered before
// need not ask to be told of the end of their context, which costs as much as a
// call. The lane is locked.
func (l *lane) nextBeat() <-chan struct{} {
	if l.beat == nil {
		l.beat = make(chan struct{})
		time.AfterFunc(glance, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			close(l.beat)
			l.beat = nil
		})
	}
	return l.beat
}

// take takes a free link, the one used last: its connection is warm. The lane
// is locked.
func (l *lane) take() *link {
	s := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	return s
}

// put frees s, or has it serve those who wait by now.
func (l *lane) put(s *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.free = append(l.free, s)
		return
	}
	go l.serve(s)
}

// serve sends pipelines on s until no call waits, each behind the one before it.
func (l *lane) serve(s *link) {
	var ahead flight
	for {
		batch := l.batch(len(ahead.calls))
		flying := len(ahead.calls) > 0
		if !flying && len(batch) == 0 {
			if l.rest(s) {
				return
			}
			continue
		}
		var next flight
		follows := flying && s.follows(ahead, batch)
		if follows {
			next = s.send(batch, true)
		}
		if flying {
			l.again(s.land(ahead))
		}
		if !follows && len(batch) > 0 {
			next = s.send(batch, false)
		}
		ahead = next
		if len(batch) > 0 {
			// Those who were answered may have something to send at once: one
			// pipeline for all of them.
			runtime.Gosched()
		}
	}
}

// batch takes those who go in the next pipeline: half of all who are under way, so
// that one half is at the server while the other is here; or all where replicas are
// asked, because nothing goes behind such a pipeline.
func (l *lane) batch(flying int) []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.waiting), laneBatch)
	if n > 0 && l.waiting[0].copies.want == 0 {
		n = min(n, max(laneLeast, (len(l.waiting)+flying+1)/2))
	}
	batch := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	return batch
}

// again puts calls before those who wait.
func (l *lane) again(calls []*call) {
	if len(calls) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(calls, l.waiting...)
}

// rest frees s if no call waits.
func (l *lane) rest(s *link) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 {
		return false
	}
	s.end()
	l.waiting = nil
	l.free = append(l.free, s)
	return true
}

// close ends all connections, those in use as well.
func (l *lane) close() error {
	var err error
	for _, s := range l.links {
		err = errors.Join(err, s.close())
	}
	return err
}

// appendTo appends c as it is sent: by the script's hash, or whole.
func (c *call) appendTo(b []byte) []byte {
	if c.asking {
		b = appendCommand(b, "asking")
	}
	n := c.nargs
	if c.probe {
		n = max(n, len(probing))
	}
	b = appendHead(b, 3+c.nkeys+n)
	b = c.script.appendName(b, c.whole)
	b = appendText(b, strconv.Itoa(c.nkeys))
	for _, k := range c.keys[:c.nkeys] {
		b = appendText(b, k)
	}
	for i, a := range c.args[:c.nargs] {
		switch {
		case !c.probe || i >= len(probing):
		case a == "":
			a = probing[i]
		case i == len(probing)-1: // it says something else as well
			a += " " + probing[i]
		}
		b = appendText(b, a)
	}
	if c.probe {
		for _, a := range probing[min(c.nargs, len(probing)):] {
			b = appendText(b, a)
		}
	}
	return b
}

// probing are the arguments of an acquire that finds out first whether it can
// give the lock an expiry.
var probing = [...]string{2: "1", 3: strconv.FormatInt(loneRemembered.Milliseconds(), 10), 4: "probe"}

func isUnknownScript(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") }

// isAnswer reports whether err is what the server said, and not about the way there.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}
