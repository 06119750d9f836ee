package record

import (
	"slices"

	"github.com/lockgen/lockgen/runtime/driver"
)

// State is what the engine keeps at one key. The zero State is that of a key without holders and
// waiters.
type State struct {
	Token   Token   `json:"token,omitempty"`   // the highest token that was given
	Written Token   `json:"written,omitempty"` // the last token of the last writer
	Last    string  `json:"last,omitempty"`    // the kind of the party that was let in last
	In      []Party `json:"in,omitempty"`      // the holders
	Queue   []Party `json:"queue,omitempty"`   // the waiters, in the order of arrival
	Keep    Time    `json:"keep,omitempty"`    // the record is not deleted before this time: see Write
	Done    []Text  `json:"done,omitempty"`    // the ticks that were completed, the latest at the end
	Value   Text    `json:"value,omitempty"`   // of a register, which is not a lock: see driver.Agreement

	KeepBeat  beat `json:"keepbeat,omitzero"` // of Keep, at an engine without a clock
	clockless bool // its tokens come from the engine's revision
}

// Party is one acquisition, a holder or a waiter.
type Party struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"` // the name of the driver.Kind
	Weight int    `json:"weight,omitempty"`
	Limit  int    `json:"limit,omitempty"`  // how many permits there are, according to its Mode
	Grant  int64  `json:"grant"`            // the length of the lease that it gets when its turn comes, in µs
	Until  Time   `json:"until,omitempty"`  // when its lease or its place in the queue ends
	Beat   beat   `json:"beat,omitzero"`    // of Until, at an engine without a clock
	Tokens uint64 `json:"tokens,omitempty"` // how many fencing tokens it gets; 0 is 1
	Token  Token  `json:"token,omitempty"`  // the first of them, once it is a holder
	Tick   Text   `json:"tick,omitempty"`   // driver.Mode.Tick
	Name   Text   `json:"name,omitempty"`   // driver.Mode.Name
}

const (
	kindRead      = "read"
	kindWrite     = "write"
	kindFair      = "fair"
	kindPermits   = "permits"
	kindCondition = "condition"
	kindOnce      = "once"
)

// family is what all parties at a key must have in common: the kind, or "read-write".
func family(kind string) string {
	if kind == kindRead || kind == kindWrite {
		return "read-write"
	}
	return kind
}

// eachEnd calls do with each expiry in s, and its beat.
func (s *State) eachEnd(do func(until *Time, b *beat)) {
	for _, all := range [][]Party{s.In, s.Queue} {
		for i := range all {
			do(&all[i].Until, &all[i].Beat)
		}
	}
	do(&s.Keep, &s.KeepBeat)
}

func find(all []Party, id string) int {
	return slices.IndexFunc(all, func(p Party) bool { return p.ID == id })
}

// holder returns the party with this ID that is inside, or nil.
func (s *State) holder(id string) *Party {
	if i := find(s.In, id); i >= 0 {
		return &s.In[i]
	}
	return nil
}

// conflict returns an error if parties of another family than p's use the key.
func (s *State) conflict(p Party) error {
	if s.Value != "" {
		return Beside("a value that processes agree on", noun(p.Kind))
	}
	for _, other := range slices.Concat(s.In, s.Queue) {
		if family(other.Kind) != family(p.Kind) {
			return Beside(noun(other.Kind), noun(p.Kind))
		}
	}
	return nil
}

// remove removes the party with this ID, and lets in the waiters whose turn it then is. It reports
// whether the party was a holder, and whether it was a holder or a waiter.
func (s *State) remove(id string, now Time) (inside, anywhere bool) {
	before := len(s.Queue)
	s.Queue = slices.DeleteFunc(s.Queue, func(p Party) bool { return p.ID == id })
	anywhere = len(s.Queue) < before
	if i := find(s.In, id); i >= 0 {
		s.noteExit(s.In[i])
		s.In = slices.Delete(s.In, i, i+1)
		inside, anywhere = true, true
	}
	s.admit(now)
	return inside, anywhere
}

// noteExit is called when the holder p leaves: readers after a writer have its last token.
func (s *State) noteExit(p Party) {
	if p.Kind == kindWrite {
		s.Written = p.lastToken()
	}
}

// lastToken returns the highest token of p.
func (p Party) lastToken() Token { return p.Token + Token(max(p.Tokens, 1)) - 1 }

// expire removes the parties whose time is over, and reports whether there were any.
func (s *State) expire(now Time) (changed bool) {
	inside, waiting := len(s.In), len(s.Queue)
	over := func(p Party) bool { return p.Until <= now }
	s.In = slices.DeleteFunc(s.In, func(p Party) bool {
		if over(p) {
			s.noteExit(p)
		}
		return over(p)
	})
	s.Queue = slices.DeleteFunc(s.Queue, over)
	missed := inside - len(s.In) // at a condition: a waiter that saw its signal has left in time
	if changed = missed > 0 || len(s.Queue) < waiting; changed {
		s.admit(now)
		s.callNext(missed, now)
	}
	return changed
}

// callNext signals the next waiters of a condition in place of those that missed their signal.
func (s *State) callNext(missed int, now Time) {
	if len(s.Queue) > 0 && s.Queue[0].Kind == kindCondition {
		s.call(missed, now)
	}
}

// call lets in the first n waiters of a condition, or all if n is negative. It reports whether
// there were any.
func (s *State) call(n int, now Time) (any bool) {
	for ; n != 0 && len(s.Queue) > 0; n-- {
		p := s.Queue[0]
		s.Queue = slices.Delete(s.Queue, 0, 1)
		s.enter(p, now, p.Grant)
		any = true
	}
	return any
}

// giveBack returns p's tokens above used, so that tokens do not run ahead of the engine's clock.
// The next token stays above those of the readers.
func (s *State) giveBack(p *Party, used Token) {
	if p.Tokens > 1 && p.Token <= used && used < p.lastToken() {
		if s.Token == p.lastToken() {
			s.Token = max(used, s.Written)
		}
		p.Tokens = uint64(used-p.Token) + 1
	}
}

// admit lets in the waiters whose turn it is.
func (s *State) admit(now Time) {
	if len(s.Done) > 0 { // a party whose tick is completed need not wait
		s.Queue = slices.DeleteFunc(s.Queue, func(p Party) bool { return s.isDone(p.Tick) })
	}
	for next := s.admissible(); len(next) > 0; next = s.admissible() {
		s.Queue = slices.DeleteFunc(s.Queue, func(p Party) bool { return find(next, p.ID) >= 0 })
		for _, p := range next {
			s.enter(p, now, p.Grant)
		}
	}
}

// admissible returns the waiters that may come in together now. Writers and readers take turns (a
// phase-fair lock: Brandenburg and Anderson, 2009): a reader waits for at most one writer, and a
// writer for the readers that are inside.
func (s *State) admissible() []Party {
	switch {
	case len(s.Queue) == 0 || s.writing():
		return nil
	case family(s.Queue[0].Kind) != "read-write":
		if !s.fits(s.Queue[0]) {
			return nil
		}
		return slices.Clone(s.Queue[:1])
	}
	var readers, writers []Party
	for _, p := range s.Queue {
		if p.Kind == kindRead {
			readers = append(readers, p)
		} else {
			writers = append(writers, p)
		}
	}
	switch {
	case len(readers) > 0 && (s.Last == kindWrite || len(writers) == 0):
		return readers
	case len(s.In) == 0:
		return writers[:1]
	}
	return nil
}

func (s *State) writing() bool {
	return slices.ContainsFunc(s.In, func(p Party) bool { return p.Kind == kindWrite })
}

// fits reports whether there is room for p next to the holders. If they name different numbers of
// permits, the smallest counts.
func (s *State) fits(p Party) bool {
	switch p.Kind {
	case kindRead:
		return !s.writing()
	case kindCondition:
		return false // only call lets it in
	case kindPermits:
		limit, taken := p.Limit, p.Weight
		for _, other := range s.In {
			limit, taken = min(limit, other.Limit), taken+other.Weight
		}
		return taken <= limit
	}
	return len(s.In) == 0
}

// enter lets p in, with a lease of that many µs.
func (s *State) enter(p Party, now Time, lease int64) {
	p.Until = After(lease)
	if p.Kind == kindRead {
		p.Token = s.Written // the last writer's, whose data it reads
		if p.Token == 0 {
			p.Token = s.nextToken(now)
			s.Token, s.Written = p.Token, p.Token
		}
	} else {
		p.Token = s.nextToken(now)
		s.Token = p.lastToken()
	}
	s.Last = p.Kind
	s.In = append(s.In, p)
}

// nextToken returns a token above all that were given. For a new record the engine computes it.
func (s *State) nextToken(now Time) Token {
	if s.Token == 0 {
		return fromClock
	}
	if s.clockless {
		return s.Token + 1
	}
	return max(s.Token+1, Token(now)*driver.TokensPerMicrosecond)
}

// arrive lets p in, or puts it into the queue if it waits. It reports whether s has changed.
func (s *State) arrive(p Party, now Time, lease int64, waits bool) (changed bool) {
	changed = s.expire(now)
	if s.holder(p.ID) != nil {
		return changed
	}
	if i := find(s.Queue, p.ID); i >= 0 {
		if s.Queue[i].Until > now+Time(placeTTL.Microseconds())/2 {
			return changed
		}
		s.Queue[i].Until = After(placeTTL.Microseconds())
		return true
	}
	if !s.mustWait(p) {
		s.enter(p, now, lease)
		return true
	}
	if waits {
		p.Until = After(placeTTL.Microseconds())
		s.Queue = append(s.Queue, p)
	}
	return changed || waits
}

// mustWait reports whether p, which arrives now, may not come in.
func (s *State) mustWait(p Party) bool { return !s.fits(p) || s.overtakes(p) }

// overtakes reports whether p would come in before a waiter that has precedence.
func (s *State) overtakes(p Party) bool {
	if p.Kind == kindRead {
		return slices.ContainsFunc(s.Queue, func(w Party) bool { return w.Kind == kindWrite })
	}
	return len(s.Queue) > 0
}

// downgrade makes p, a writer that is inside, a reader. The waiting readers come in.
func (s *State) downgrade(p *Party, now Time) {
	s.noteExit(*p)
	p.Kind = kindRead
	s.admit(now)
	s.Last = kindRead // readers that come from now on did not wait for this writer
}
