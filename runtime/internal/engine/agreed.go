package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Agreed is one process's view of a record on which processes agree, a small value of type S at an engine.
// A lease that it allows may last for Bound from the last look, whatever others write meanwhile.
type Agreed[S any] struct {
	Of    string // what the record is about, for errors
	Key   string // where it is
	At    driver.Agreement
	Terms Terms
	Life  *Life
	// Learn is called with the answer to a question and when that was sent, in the order of the questions.
	// text is s as the engine has it, or "" if there is no record.
	Learn func(s S, text string, sent driver.Instant) error

	turns KeyedMutex[struct{}]
	looks SingleFlight
}

// Look reads the record. Callers at the same time share one request.
func (r *Agreed[S]) Look(ctx context.Context) error {
	return r.looks.Do(ctx, r.Life, func(ctx context.Context) error { return r.Ask(ctx, "", nil) })
}

// Ask replaces the record by next if its text is old, and then learns what the record is. Without next
// it only reads.
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

// Foreign returns the error for a value at Key that is no record.
func (r *Agreed[S]) Foreign(text string) error {
	return fmt.Errorf("%w: a value is at %q that is no record of %s: %.40q; set Options.Key", driver.ErrConflict, r.Key, r.Of, text)
}

// Terms say how long a process may rely on what it has read of a record. All processes have the same.
type Terms struct {
	LongestTTL time.Duration // of leases
	Silence    time.Duration // for how long a record may stay unread before nothing is granted by it
	Probe      time.Duration // how often it is read
	Timeout    time.Duration // of one question
}

// Complete returns t with defaults for what is not set.
func (t Terms) Complete() Terms {
	return Terms{
		LongestTTL: DurationOr(t.LongestTTL, time.Minute), Silence: DurationOr(t.Silence, 10*time.Second),
		Probe: DurationOr(t.Probe, time.Second), Timeout: DurationOr(t.Timeout, time.Second),
	}
}

// Bound is how long a lease may last from the last look that allowed it.
func (t Terms) Bound() time.Duration { return t.LongestTTL + t.Silence }

// Drain is how long to wait after a change of a record until no lease that the old one allowed can last:
// longer than Bound by a fiftieth, because clocks do not run equally fast.
func (t Terms) Drain() time.Duration { return t.Bound() + t.Bound()/50 }
