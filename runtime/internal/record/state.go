package record

import (
	"slices"

	"github.com/lockgen/lockgen/runtime/driver"
)

// State is what the engine keeps at one key. The zero State is that of a key where nobody
// is inside and nobody waits.
type State struct {
	Token   Token   `json:"token,omitempty"`   // the highest that was given
	Written Token   `json:"written,omitempty"` // that of the last writer
	Last    string  `json:"last,omitempty"`    // the kind of the last one that was let in
	In      []Party `json:"in,omitempty"`      // who is inside
	Queue   []Party `json:"queue,omitempty"`   // who waits, in the order of arrival
	Keep    Time    `json:"keep,omitempty"`    // until then the record is not deleted: see Write
	Done    []Text  `json:"done,omitempty"`    // the ticks that were completed, the last of them last
	Value   Text    `json:"value,omitempty"`   // of a register, which is no lock: see driver.Agreement

	KeepBeat  beat `json:"keepbeat,omitzero"` // of Keep, at an engine without a clock
	clockless bool // its tokens come from the engine's revision
}

// Party is one acquisition that is inside or waits.
type Party struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"` // as driver.Kind has it
	Weight int    `json:"weight,omitempty"`
	Limit  int    `json:"limit,omitempty"`  // the permits that it knows of
	Grant  int64  `json:"grant"`            // how long the lease is that it gets when its turn comes, in µs
	Until  Time   `json:"until,omitempty"`  // when its lease or its place in the queue ends
	Beat   beat   `json:"beat,omitzero"`    // of Until, at an engine without a clock
	Tokens uint64 `json:"tokens,omitempty"` // how many fencing tokens it gets; 0 is 1
	Token  Token  `json:"token,omitempty"`  // the first of them, once it is inside
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

// family is what parties of one key have in common, so that it can be said who excludes whom.
func family(kind string) string {
	if kind == kindRead || kind == kindWrite {
		return "read-write"
	}
	return kind
}

// ends calls do with each instant at which something in s ends, and its beat.
func (s *State) ends(do func(until *Time, b *beat)) {
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

// remove takes the party with this ID out, wherever it is, and lets in whom that makes
// room for. It reports whether it was inside, and whether it was anywhere.
func (s *State) remove(id string, now Time) (inside, anywhere bool) {
	before := len(s.Queue)
	s.Queue = slices.DeleteFunc(s.Queue, func(p Party) bool { return p.ID == id })
	anywhere = len(s.Queue) < before
	if i := find(s.In, id); i >= 0 {
		s.left(s.In[i])
		s.In = slices.Delete(s.In, i, i+1)
		inside, anywhere = true, true
	}
	s.admit(now)
	return inside, anywhere
}

// left notes that p is not inside any more.
func (s *State) left(p Party) {
	if p.Kind == kindWrite {
		s.Written = p.last()
	}
}

// last is the highest token of p.
func (p Party) last() Token { return p.Token + Token(max(p.Tokens, 1)) - 1 }

// expire takes out whose time is over, and reports whether there was anybody.
func (s *State) expire(now Time) (changed bool) {
	inside, waiting := len(s.In), len(s.Queue)
	over := func(p Party) bool { return p.Until <= now }
	s.In = slices.DeleteFunc(s.In, func(p Party) bool {
		if over(p) {
			s.left(p)
		}
		return over(p)
	})
	s.Queue = slices.DeleteFunc(s.Queue, over)
	unheard := inside - len(s.In)
	if changed = unheard > 0 || len(s.Queue) < waiting; changed {
		s.admit(now)
		s.passOn(unheard, now)
	}
	return changed
}

// passOn calls others in place of so many who have not heard that they were called.
func (s *State) passOn(unheard int, now Time) {
	if len(s.Queue) > 0 && s.Queue[0].Kind == kindCondition {
		s.call(unheard, now)
	}
}

// call lets in the first n of those that wait for a condition, all if n is negative. It
// reports whether there was any.
func (s *State) call(n int, now Time) (any bool) {
	for ; n != 0 && len(s.Queue) > 0; n-- {
		p := s.Queue[0]
		s.Queue = slices.Delete(s.Queue, 0, 1)
		s.enter(p, now, p.Grant)
		any = true
	}
	return any
}

// giveBack keeps of p's tokens those up to used. Tokens in use then do not run ahead of the
// engine's clock. Those that readers have stay below the next writer's.
func (s *State) giveBack(p *Party, used Token) {
	if p.Tokens > 1 && p.Token <= used && used < p.last() {
		if s.Token == p.last() {
			s.Token = max(used, s.Written)
		}
		p.Tokens = uint64(used-p.Token) + 1
	}
}

// admit lets in those of the queue whose turn it is.
func (s *State) admit(now Time) {
	if len(s.Done) > 0 { // who waits to run what is completed has nothing to wait for
		s.Queue = slices.DeleteFunc(s.Queue, func(p Party) bool { return s.isDone(p.Tick) })
	}
	for turn := s.turn(); len(turn) > 0; turn = s.turn() {
		s.Queue = slices.DeleteFunc(s.Queue, func(p Party) bool { return find(turn, p.ID) >= 0 })
		for _, p := range turn {
			s.enter(p, now, p.Grant)
		}
	}
}

// turn returns those of the queue who may come in together now. Writers and readers take
// turns (a phase-fair lock: Brandenburg and Anderson, 2009): whoever reads waits for one
// writer at most, and whoever writes for the readers that are inside.
func (s *State) turn() []Party {
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

// fits reports whether there is room for p beside who is inside. While they know of
// different numbers of permits, the smallest counts.
func (s *State) fits(p Party) bool {
	switch p.Kind {
	case kindRead:
		return !s.writing()
	case kindCondition:
		return false // it is called
	case kindPermits:
		limit, taken := p.Limit, p.Weight
		for _, other := range s.In {
			limit, taken = min(limit, other.Limit), taken+other.Weight
		}
		return taken <= limit
	}
	return len(s.In) == 0
}

// enter lets p in, with a lease of so many µs.
func (s *State) enter(p Party, now Time, lease int64) {
	p.Until = After(lease)
	if p.Kind == kindRead {
		p.Token = s.Written // of what the last writer has left
		if p.Token == 0 {
			p.Token = s.nextToken(now)
			s.Token, s.Written = p.Token, p.Token
		}
	} else {
		p.Token = s.nextToken(now)
		s.Token = p.last()
	}
	s.Last = p.Kind
	s.In = append(s.In, p)
}

// nextToken is above all that were given. In a record that is new the engine puts it in.
func (s *State) nextToken(now Time) Token {
	if s.Token == 0 {
		return fromClock
	}
	if s.clockless {
		return s.Token + 1
	}
	return max(s.Token+1, Token(now)*driver.TokensPerMicrosecond)
}

// arrive lets p in, or has it wait if it will. It reports whether anything has changed.
func (s *State) arrive(p Party, now Time, lease int64, waits bool) (changed bool) {
	changed = s.expire(now)
	if s.holder(p.ID) != nil {
		return changed
	}
	if i := find(s.Queue, p.ID); i >= 0 {
		if s.Queue[i].Until > now+Time(waitLimit.Microseconds())/2 {
			return changed
		}
		s.Queue[i].Until = After(waitLimit.Microseconds())
		return true
	}
	if !s.excludes(p) {
		s.enter(p, now, lease)
		return true
	}
	if waits {
		p.Until = After(waitLimit.Microseconds())
		s.Queue = append(s.Queue, p)
	}
	return changed || waits
}

// excludes reports whether p, who comes now, may not come in.
func (s *State) excludes(p Party) bool { return !s.fits(p) || s.isPassed(p) }

// isPassed reports whether p would come in before somebody who waits and goes first.
func (s *State) isPassed(p Party) bool {
	if p.Kind == kindRead {
		return slices.ContainsFunc(s.Queue, func(w Party) bool { return w.Kind == kindWrite })
	}
	return len(s.Queue) > 0
}

// downgrade makes a reader of p, a writer that is inside. The readers that wait come in.
func (s *State) downgrade(p *Party, now Time) {
	s.left(*p)
	p.Kind = kindRead
	s.admit(now)
	s.Last = kindRead // whoever comes to read from here on did not wait for this writer
}
