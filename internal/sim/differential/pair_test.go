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
	// clockSeconds and clockMicros are the keys from which the scripts read the time.
	clockSeconds, clockMicros = "clock:seconds", "clock:micros"
	// barrier is a channel of every subscriber. A message on it marks the end of the messages
	// of a step.
	barrier = "barrier"
	// subscribers is the number of connections that subscribe.
	subscribers = 3
	// stepLimit is how long a step may take at the real server, by its clock. Every key lives at
	// least twice as long, so none expires in a step within the limit.
	stepLimit = 20 * time.Millisecond
)

// epoch is the first time of the clock of each sequence.
var epoch = time.Date(2026, 7, 1, 12, 0, 0, 123456000, time.UTC)

// step is one event of a sequence.
type step struct {
	does string        // in words
	tick time.Duration // by how much the clock is moved before it; the keys do not age by that
	pass time.Duration // how much time passes for the keys and the clock, instead of a command
	on   int           // the connection: 0, or a subscriber from 1 on
	args []string      // the command, if there is one
	left byte          // which numbers of the reply are remaining ms; '-': the first of four, see isHeld; '+': positive ones
}

func (s step) String() string {
	switch {
	case s.pass > 0:
		return fmt.Sprintf("%v passes", s.pass)
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

// errSlow says that the step took so long at the real server that its reply may be different
// for that reason.
var errSlow = errors.New("the machine was too slow")

// pair is a real server and a miniredis that get the same commands.
type pair struct {
	real, mini *peer
	server     *miniredis.Miniredis
	load       map[string]string // scripts, by name
	clock      time.Time
	state      state // of miniredis, after the last step
	flushed    bool  // the servers may not have the scripts
	number     int   // number of the step, for the barrier
	tally      tally
}

// peer holds the test's connections to one of the two servers.
type peer struct {
	main        *wire
	subscribers [subscribers]*wire
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
	for i := range p.subscribers {
		p.subscribers[i] = connect(t, addr)
		must(t, p.subscribers[i], "SUBSCRIBE", barrier)
	}
	return p
}

// reset removes all data except the scripts from both servers, and sets the clock.
func (p *pair) reset() error {
	p.clock, p.state = epoch, state{}
	for _, peer := range []*peer{p.real, p.mini} {
		for _, subscriber := range peer.subscribers {
			if err := subscriber.unsubscribeAll(); err != nil {
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

// unsubscribeAll ends all subscriptions except that to the barrier.
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

// heard is the result of a step at one of the two servers.
type heard struct {
	reply    value
	messages [subscribers][]string
}

// run does s at both servers. It returns the result of miniredis, and a description of how
// Redis differs, or "".
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
	if len(differences) > 0 && (took > stepLimit || took.Milliseconds() >= p.state.shortest(before.shortest(1000))) {
		return heard{}, "", errSlow
	}
	return mini, strings.Join(differences, "\n"), nil
}

// atReal does s at the real server, after the commands that make its keys as old as
// those of miniredis. It returns the keys of the server after that, and the time that passed there.
// Keys have ttls only during that time.
func (p *pair) atReal(s step, aging [][]string) (h heard, after state, took time.Duration, err error) {
	commands := append([][]string{{"TIME"}, p.setClock()}, aging...)
	switch {
	case s.on > 0:
		if h.reply, err = p.real.subscribers[s.on-1].do(s.args...); err != nil {
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
// miniredis, minus the time that has passed since.
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

// setClock returns the command that sets the time for the scripts.
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
		if h.reply, err = p.mini.subscribers[s.on-1].do(s.args...); err != nil {
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

// listen returns the messages of each subscriber before the barrier with this number.
func (p *peer) listen(number int) (messages [subscribers][]string, err error) {
	end := value{kind: '*', list: []value{
		{kind: '$', text: "message"}, {kind: '$', text: barrier}, {kind: '$', text: strconv.Itoa(number)},
	}}.String()
	for i, subscriber := range p.subscribers {
		for {
			v, err := subscriber.read()
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
