package differential

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// lockNames are the locks of sequences: one has a hash tag, one is not valid text.
var lockNames = []string{"lock", "seckill:{item}:7", "a \r\n\x01\xff%s"}

// processes are the UUIDs of the processes that lock.
var processes = []string{
	"00000000-0000-8000-8000-000000000000",
	"9f3c2b1a-77de-8c05-9b1e-0242ac120002",
	"ffffffff-ffff-8fff-bfff-ffffffffffff",
	"285475da-9152-4c83-822a-67ee2f116a79",
}

// names are the names of the keys and the channel of one lock.
type names struct{ lock, queue, token, strangers, undone, channel string }

func namesOf(lock string) names {
	tag := lock
	if !strings.Contains(lock, "{") {
		tag = "{" + lock + "}"
	}
	return names{lock, "lockgen:queue:" + tag, "lockgen:token:" + tag, "lockgen:strangers:" + tag, "lockgen:undone:" + tag + ":", "redisson_lock__channel:" + tag}
}

// processChannel returns the channel for messages to the process with this index.
func processChannel(process int) string { return "lockgen:process:" + processes[process] }

// entry returns the entry of a in the queue.
func (a *acquisition) entry() string { return fmt.Sprintf("%s %d %d", a.id, min(a.ttl, 500), a.tokens) }

// acquisition is one acquisition of the sequence.
type acquisition struct {
	id      string
	process int
	lock    string
	ttl     int // ms
	tokens  int
	queue   bool
	first   int64 // its first token, or 0 if it was not granted
}

// drawer draws the steps of a sequence. It gets the replies of miniredis.
type drawer struct {
	*rand.Rand
	load    map[string]string // scripts, by name
	hashes  map[string]string // of the scripts, by name
	drawn   int
	count   int // number of acquisitions
	all     []*acquisition
	last    *step          // the last call of one of our scripts
	asked   []*acquisition // those of the last step, in the order of its replies
	unknown string         // the script that the server did not know
}

func newDrawer(seed uint64, load map[string]string) *drawer {
	d := &drawer{Rand: rand.New(rand.NewPCG(seed, 7)), load: load, hashes: map[string]string{}}
	for name, text := range load {
		sum := sha1.Sum([]byte(text))
		d.hashes[name] = hex.EncodeToString(sum[:])
	}
	return d
}

// pick draws one of some.
func pick[T any](d *drawer, some ...T) T { return some[d.IntN(len(some))] }

// chance returns true in percent of a hundred cases.
func (d *drawer) chance(percent int) bool { return d.IntN(100) < percent }

// next draws a step, unless the sequence has its length.
func (d *drawer) next() (s step, ok bool) {
	if d.drawn == length {
		return step{}, false
	}
	d.drawn++
	return d.draw(), true
}

func (d *drawer) draw() step {
	var s step
	d.asked = nil
	switch n := d.IntN(100); {
	case d.drawn <= 2*subscribers && d.chance(70): // so that most grants have a subscriber
		s = d.subscribe()
	case d.unknown != "": // redislock then sends the text
		s = *d.last
		s.does, s.args = s.does+", as text", append([]string{"EVAL", d.load[d.unknown]}, s.args[2:]...)
		d.unknown = ""
	case n < 30:
		s = d.acquire()
	case n < 45:
		s = d.release()
	case n < 51:
		s = d.renew()
	case n < 54:
		s = d.one()
	case n < 56:
		s = d.raise()
	case n < 62:
		s = d.together()
	case n < 68 && d.last != nil:
		s = *d.last
		s.does = strings.TrimSuffix(s.does, ", again") + ", again"
	case n < 77:
		return d.time()
	case n < 85:
		return d.listen()
	default:
		s = d.otherClient()
	}
	s.tick = d.tick()
	return s
}

// tick draws by how much the clock moves between two commands.
func (d *drawer) tick() time.Duration {
	return time.Duration(d.IntN(3000)) * time.Microsecond
}

// time draws that time passes, or that the clock is set.
func (d *drawer) time() step {
	if d.chance(15) {
		return step{tick: pick(d, -time.Hour, -time.Second, -time.Millisecond, time.Second, time.Hour)}
	}
	// All ttls are multiples of 50 ms, so no key is left with a shorter life.
	return step{pass: time.Duration(pick(d, 50, 100, 250, 450, 500, 550, 1000, 1500, 3000, 10000, 11000, 60000)) * time.Millisecond}
}

// heard tells d the reply to the step.
func (d *drawer) heard(s step, reply value) {
	if s.args == nil || s.on > 0 {
		return
	}
	if len(s.args) > 1 && (s.args[0] == "EVALSHA" || s.args[0] == "EVAL") {
		for name, hash := range d.hashes {
			if s.args[1] == hash || s.args[1] == d.load[name] {
				d.last = &s
				if strings.HasPrefix(reply.text, "NOSCRIPT") {
					d.unknown = name
				}
			}
		}
	}
	replies := []value{reply}
	if reply.kind == '*' {
		replies = reply.list
	}
	for i, a := range d.asked {
		if a != nil && i < len(replies) {
			if first, ok := replies[i].number(); ok && first > 0 {
				a.first = first
			}
		}
	}
}

// call is one use of one of our scripts.
type call struct {
	script     string
	keys, args []string
	of         *acquisition // the acquisition, if it acquires
}

// step returns the command of c.
func (d *drawer) step(c call) step {
	d.garble(&c)
	d.asked = []*acquisition{c.of}
	args := append([]string{"EVALSHA", d.hashes[c.script], strconv.Itoa(len(c.keys))}, c.keys...)
	s := step{does: c.script, args: append(args, c.args...)}
	if c.script == "acquire" || c.script == "together" {
		s.left = '-'
	}
	return s
}

// odd lists arguments that no correct call has.
var odd = []string{"", "0", "-1", "-", "abc", "1.5", "-50", " 50", "--3", "1000000000000", "try", "a b c"}

// garble changes some calls into mistakes.
func (d *drawer) garble(c *call) {
	if !d.chance(6) {
		return
	}
	switch d.IntN(6) {
	case 0:
		c.keys = c.keys[:len(c.keys)-1]
	case 1:
		d.Shuffle(len(c.keys), func(i, j int) { c.keys[i], c.keys[j] = c.keys[j], c.keys[i] })
	case 2:
		c.args = c.args[:len(c.args)-1]
	case 3:
		c.args = append(c.args, pick(d, odd...))
	default:
		if len(c.args) == 0 {
			return
		}
		i := d.IntN(len(c.args))
		switch {
		case c.script == "together": // its other arguments belong to the calls in it, which may be garbled already
			c.args[0] = pick(d, "", "x", "a3", "r22", "abc:1", c.args[0]+"a22")
		case i == 0: // an owner's id must not be any text: see doc.go on tonumber
			c.args[0] = pick(d, "", "x", "abc:1", "00000000-0000")
		default:
			c.args[i] = pick(d, odd...)
		}
	}
}

// anyone returns an acquisition that was sent, preferably a late one, or sometimes a
// new one.
func (d *drawer) anyone() *acquisition {
	if len(d.all) == 0 || d.chance(5) {
		return d.newcomer()
	}
	return d.all[len(d.all)-1-min(d.IntN(len(d.all)), d.IntN(len(d.all)))]
}

// holder returns an acquisition that was granted, if there is one.
func (d *drawer) holder() *acquisition {
	for i := len(d.all) - 1; i >= 0; i-- {
		if d.all[i].first > 0 && d.chance(50) {
			return d.all[i]
		}
	}
	return d.anyone()
}

// newcomer returns a new acquisition.
func (d *drawer) newcomer() *acquisition {
	d.count++
	process := min(d.IntN(len(processes)), d.IntN(len(processes)))
	a := &acquisition{
		id:      fmt.Sprintf("%s:%d", processes[process], d.count),
		process: process,
		lock:    lockNames[min(d.IntN(3), d.IntN(3))],
		ttl:     pick(d, 50, 300, 450, 500, 1000, 10000, 30000),
		tokens:  pick(d, 1, 1, 1, 3, 80001),
		queue:   d.chance(75),
	}
	d.all = append(d.all, a)
	return a
}
