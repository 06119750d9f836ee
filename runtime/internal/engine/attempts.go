package engine

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Outcome is what one attempt to send a request showed.
type Outcome int

// The outcomes of an attempt.
const (
	Done     Outcome = iota // answered: it was done
	Refused                 // answered: it was not done, and sending it again won't help
	Later                   // answered: it was not done now, but may be if it is sent again
	NotSent                 // it was not sent
	NoAnswer                // it may have been done, or may still be done
)

// Schedule says how often and when a request is sent. Requests are idempotent.
type Schedule struct {
	Pauses  []time.Duration // before each attempt after the first
	NotSent int             // how many attempts in a row may end as NotSent; 0 means any number
	Longest time.Duration   // no further attempt begins after this time; 0 means no limit
}

// Send calls attempt until its outcome is Done or Refused, no attempt of the schedule is left, or
// ctx ends. It returns the last outcome and error. mayHaveRun reports whether any attempt had no
// answer: then the request may have been done, whatever the last answer was.
func (s Schedule) Send(ctx context.Context, attempt func(context.Context) (Outcome, error)) (last Outcome, mayHaveRun bool, err error) {
	begin := time.Now()
	unsent := 0
	for i := 0; ; i++ {
		last, err = attempt(ctx)
		mayHaveRun = mayHaveRun || last == NoAnswer
		if last == NotSent {
			unsent++
		} else {
			unsent = 0
		}
		switch {
		case last == Done, last == Refused,
			i >= len(s.Pauses),
			s.NotSent > 0 && unsent >= s.NotSent,
			s.Longest > 0 && time.Since(begin) > s.Longest,
			!Pause(ctx, s.Pauses[i]):
			return last, mayHaveRun, err
		}
	}
}

// RetryFree calls free, which frees something at an engine, until it returns nil or
// [driver.ErrLost]. It pauses between the calls, longer each time. It returns the last error once d
// has passed or ctx has ended. No call begins after d, because by then others may use what free
// would free.
func RetryFree(ctx context.Context, d time.Duration, free func(context.Context) error) error {
	end := driver.Now().Add(d)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := free(ctx)
		if err == nil || errors.Is(err, driver.ErrLost) || end.Left() <= 0 || !Pause(ctx, pause) || end.Left() <= 0 {
			return err
		}
	}
}

// NotYet returns the error of an engine that grants no lock yet; why is the reason. A call that
// waits continues and tries again after d; any other call gets [driver.ErrUnavailable].
func NotYet(d time.Duration, why string) error {
	return &notYet{why, driver.HeldError{RetryAfter: d}}
}

type notYet struct {
	why  string
	held driver.HeldError
}

func (n *notYet) Error() string   { return driver.ErrUnavailable.Error() + ": " + n.why }
func (n *notYet) Unwrap() []error { return []error{driver.ErrUnavailable, &n.held} }

// HeldBy returns the HeldError in err, or nil.
func HeldBy(err error) *driver.HeldError {
	held, _ := errors.AsType[*driver.HeldError](err)
	return held
}
