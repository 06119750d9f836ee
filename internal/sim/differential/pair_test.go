package differential

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockgen/lockgen/internal/testserver"
)

const (
	// clockSeconds and clockMicros are the keys where the scripts read the time.
	clockSeconds, clockMicros = "clock:seconds", "clock:micros"
	// barrier is a channel on which each ear listens for the end of what a step made
	// it hear.
	barrier = "barrier"
	// ears is how many connections listen.
	ears = 3
	// hiccup is how long a step may take at the real server, by its clock. No key has a shorter
	// life than twice that, so none expires in a step that takes no longer.
	hiccup = 20 * time.Millisecond
)

// epoch is where the clock of each sequence begins.
var epoch = time.Date(2026, 7, 1, 12, 0, 0, 123456000, time.UTC)

// step is one event of a sequence.
type step struct {
	does string        // in words
	tick time.Duration // by how much the clock moves before it, keys do not age by that
	pass time.Duration // how much time passes, for the keys and the clock, instead of a command
	on   int           // the connection: 0, or one of the ears from 1 on
	args []string      // the command, if there is one
	left byte          // '-': as isHeld says, the first number of four is ms that are left; '+': positive ones
}

func (s step) String() string {
	switch {
	case s.pass > 0:
		return fmt.Sprintf("%v pass", s.pass)
	case len(s.args) == 0:
		return fmt.Sprintf("the clock is set by %v", s.tick)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s, after %v: %s", s.does, s.tick, s.args[0])
	for i, a := range s.args[1:] {
		if i == 0 && s.args[0] == "EVAL" {
			a = "(its text)"
		}
		text.WriteString(" " + strconv.Quote(a))
	}
	if s.on > 0 {
		fmt.Fprintf(&text, ", on connection %d", s.on)
	}
	return text.String()
}

// errSlow says that so much time passed at the real server that it may have
// answered otherwise for that.
var errSlow = errors.New("the machine was too slow")

// pair is a real server and a miniredis, which are sent the same.
type pair struct {
	real, mini *peer
	server     *miniredis.Miniredis
	load       map[string]string // scripts
	clock      time.Time
	state      state // of miniredis, after the last step
	flushed    bool  // perhaps: the servers do not know the scripts
	number     int   // of the step, for the barrier
	tally      tally
}

// peer is the test's connections to one of the two.
type peer struct {
	main *wire
	ears [ears]*wire
}

func newPair(t *testing.T, load map[string]string) *pair {
	t.Helper()
	p := &pair{server: miniredis.RunT(t), load: load, flushed: true, tally: tally{}}
	Repair(p.server, nil)
	p.real = newPeer(t, testserver.StartRedis(t).Addr())
	p.mini = newPeer(t, p.server.Addr())
	return p
}

func newPeer(t *testing.T, addr string) *peer {
	t.Helper()
	p := &peer{main: connect(t, addr)}
	for i := range p.ears {
		p.ears[i] = connect(t, addr)
		must(t, p.ears[i], "SUBSCRIBE", barrier)
	}
	return p
}

// reset makes both servers empty, but for the scripts, and sets the clock.
func (p *pair) reset() error {
	p.clock, p.state = epoch, state{}
	for _, peer := range []*peer{p.real, p.mini} {
		for _, ear := range peer.ears {
			if err := ear.unsubscribeAll(); err != nil {
				return err
			}
		}
		commands := [][]string{{"FLUSHALL"}}
		for _, text := range p.load {
			if p.flushed {
				commands = append(commands, []string{"SCRIPT", "LOAD", text})
			}
		}
		replies, err := peer.main.exchange(commands...)
		if err != nil {
			return err
		}
		for _, v := range replies {
			if v.kind == '-' {
				return errors.New(v.text)
			}
		}
	}
	p.flushed = false
	return nil
}

// unsubscribeAll leaves the barrier alone.
func (w *wire) unsubscribeAll() error {
	w.add("UNSUBSCRIBE")
	w.add("SUBSCRIBE", barrier)
	if err := w.send(); err != nil {
		return err
	}
	for {
		v, err := w.read()
		if err != nil || len(v.list) == 3 && v.list[0].text == "subscribe" {
			return err
		}
	}
}

// heard is what a step led to at one of the two.
type heard struct {
	reply    value
	messages [ears][]string
}

// run does s at both, and returns what miniredis answered and in what Redis
// differs, or "".
func (p *pair) run(s step) (mini heard, difference string, err error) {
	p.number++
	p.flushed = p.flushed || len(s.args) > 1 && s.args[1] == "FLUSH"
	p.clock = p.clock.Add(s.tick + s.pass)
	before := p.state
	var real heard
	var after state
	var took time.Duration
	done := make(chan error)
	go func() {
		var err error
		real, after, took, err = p.atReal(s, aging(before, s.pass))
		done <- err
	}()
	mini, err = p.atMini(s)
	if realErr := <-done; realErr != nil {
		return heard{}, "", fmt.Errorf("redis: %w", realErr)
	}
	if err == nil {
		p.state, err = miniState(p.server)
	}
	if err != nil {
		return heard{}, "", fmt.Errorf("miniredis: %w", err)
	}
	differences := append(compare(real, mini, s.left, took), compareStates(after, p.state, took)...)
	if len(differences) > 0 && (took > hiccup || took.Milliseconds() >= p.state.shortest(before.shortest(1000))) {
		return heard{}, "", errSlow
	}
	return mini, strings.Join(differences, "\n"), nil
}

// atReal does s at the real server, behind the commands that make its keys as old as
// those of miniredis. It returns what keys the server has then, and how much time passed there:
// keys have ttls for no longer than that.
func (p *pair) atReal(s step, aging [][]string) (h heard, after state, took time.Duration, err error) {
	commands := append([][]string{{"TIME"}, p.setClock()}, aging...)
	switch {
	case s.on > 0:
		if h.reply, err = p.real.ears[s.on-1].do(s.args...); err != nil {
			return heard{}, nil, 0, err
		}
	case len(s.args) > 0:
		commands = append(commands, s.args)
	}
	commands = append(commands, []string{"EVAL", dumpScript, "0"}, []string{"TIME"}, []string{"PUBLISH", barrier, strconv.Itoa(p.number)})
	replies, err := p.real.main.exchange(commands...)
	if err != nil {
		return heard{}, nil, 0, err
	}
	if s.on == 0 && len(s.args) > 0 {
		h.reply = replies[len(aging)+2].withErrors()
	}
	last := len(replies) - 2
	if after, err = stateOf(replies[last-1]); err != nil {
		return heard{}, nil, 0, err
	}
	h.messages, err = p.real.listen(p.number)
	return h, after, replies[last].instant().Sub(replies[0].instant()), err
}

// aging returns the commands that give each key the ttl that it had in a state of
// miniredis, less what has passed since.
func aging(then state, passed time.Duration) [][]string {
	var commands [][]string
	for key, e := range then {
		switch left := e.ttl - passed.Milliseconds(); {
		case e.ttl == 0:
		case left <= 0:
			commands = append(commands, []string{"DEL", key})
		default:
			commands = append(commands, []string{"PEXPIRE", key, strconv.FormatInt(left, 10)})
		}
	}
	return commands
}

// setClock returns the command that tells the scripts the time.
func (p *pair) setClock() []string {
	micros := p.clock.UnixMicro()
	return []string{"MSET", clockSeconds, strconv.FormatInt(micros/1e6, 10), clockMicros, strconv.FormatInt(micros%1e6, 10)}
}

// atMini does s at miniredis.
func (p *pair) atMini(s step) (h heard, err error) {
	p.server.FastForward(s.pass)
	commands := [][]string{p.setClock()}
	switch {
	case s.on > 0:
		if h.reply, err = p.mini.ears[s.on-1].do(s.args...); err != nil {
			return heard{}, err
		}
	case len(s.args) > 0:
		commands = append(commands, s.args)
	}
	commands = append(commands, []string{"PUBLISH", barrier, strconv.Itoa(p.number)})
	replies, err := p.mini.main.exchange(commands...)
	if err != nil {
		return heard{}, err
	}
	if s.on == 0 && len(s.args) > 0 {
		h.reply = replies[1].withErrors()
	}
	h.messages, err = p.mini.listen(p.number)
	return h, err
}

// listen returns what each ear heard before the barrier of this number.
func (p *peer) listen(number int) (messages [ears][]string, err error) {
	end := value{kind: '*', list: []value{
		{kind: '$', text: "message"}, {kind: '$', text: barrier}, {kind: '$', text: strconv.Itoa(number)},
	}}.String()
	for i, ear := range p.ears {
		for {
			v, err := ear.read()
			if err != nil {
				return messages, err
			}
			if v.String() == end {
				break
			}
			messages[i] = append(messages[i], v.String())
		}
	}
	return messages, nil
}
