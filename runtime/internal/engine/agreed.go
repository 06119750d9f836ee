package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Agreed is one process's view of a record on which processes agree: a small value of type S at an
// engine. A lease that the record allows may last for Bound after the last look, whatever others
// write meanwhile.
type Agreed[S any] struct {
	Of    string // the subject of the record, for errors
	Key   string // the key of the record
	At    driver.Agreement
	Terms Terms
	Life  *Life
	// Learn is called with the answer to each request, in the order of the requests. sent is when
	// the request was sent. text is s as the engine has it, or "" if there is no record.
	Learn func(s S, text string, sent driver.Instant) error

	turns KeyedMutex[struct{}]
	looks SingleFlight
}

// Look reads the record. Concurrent callers share one request.
func (r *Agreed[S]) Look(ctx context.Context) error {
	return r.looks.Do(ctx, r.Life, func(ctx context.Context) error { return r.Ask(ctx, "", nil) })
}

// Ask replaces the record with next if its text is old, and then calls Learn with the present
// record. If next is nil it only reads.
func (r *Agreed[S]) Ask(ctx context.Context, old string, next *S) error {
	leave, err := r.turns.Enter(ctx, struct{}{})
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, r.Terms.Timeout)
	defer cancel()
	text, done := old, "read"
	if next != nil {
		done = "written"
		encoded, err := json.Marshal(next)
		if err != nil {
			return err
		}
		text = string(encoded)
	}
	sent := driver.Now()
	text, err = r.At.CompareAndSwap(ctx, r.Key, old, text)
	switch {
	case errors.Is(err, driver.ErrConflict), errors.Is(err, driver.ErrInvalid):
		return fmt.Errorf("the record of %s can't be %s: %w", r.Of, done, err)
	case err != nil:
		return fmt.Errorf("the record of %s can't be %s: %v", r.Of, done, err) // %v, because the error says nothing about an acquire
	}
	var s S
	if text != "" && json.Unmarshal([]byte(text), &s) != nil {
		return r.Foreign(text)
	}
	return r.Learn(s, text, sent)
}

// Foreign returns the error for a value at Key that is not a record.
func (r *Agreed[S]) Foreign(text string) error {
	return fmt.Errorf("%w: a value is at %q that is no record of %s: %.40q; set Options.Key", driver.ErrConflict, r.Key, r.Of, text)
}

// Terms say how long a process may rely on a record that it has read. All processes have the same.
type Terms struct {
	LongestTTL time.Duration // the longest ttl of a lease
	Silence    time.Duration // how long a record may go unread before no lease is granted by it
	Probe      time.Duration // how often the record is read
	Timeout    time.Duration // how long one request may take
}

// Complete returns t with defaults for the fields that are not set.
func (t Terms) Complete() Terms {
	return Terms{
		LongestTTL: DurationOr(t.LongestTTL, time.Minute), Silence: DurationOr(t.Silence, 10*time.Second),
		Probe: DurationOr(t.Probe, time.Second), Timeout: DurationOr(t.Timeout, time.Second),
	}
}

// Bound returns how long a lease may last after the last look that allowed it.
func (t Terms) Bound() time.Duration { return t.LongestTTL + t.Silence }

// Drain returns how long to wait after a change of a record until no lease that the old record
// allowed can last. It is longer than Bound by a fiftieth, because clocks do not run equally fast.
func (t Terms) Drain() time.Duration { return t.Bound() + t.Bound()/50 }
