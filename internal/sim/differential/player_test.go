package differential

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// unit is a tick of the specification, in ms. It is so long that no tick passes during a
// test. The test lets time pass by PEXPIRE.
const unit = 100_000

// player makes calls of the specification at one server, on one lock.
type player struct {
	*peer
	names  names
	hashes map[string]string // of the scripts, by name
	clock  time.Time
	token  int64  // the highest token so far
	deaf   string // the processes that are not subscribed
	number int    // number of the call
}

func newPlayer(t *testing.T, addr string) *player {
	t.Helper()
	p := &player{peer: newPeer(t, addr), names: namesOf("lock"), hashes: map[string]string{}, clock: epoch, deaf: specNames}
	for name, text := range scripts(t) {
		sum := sha1.Sum([]byte(text))
		p.hashes[name] = hex.EncodeToString(sum[:])
		if v := must(t, p.main, "SCRIPT", "LOAD", text); v.kind == '-' {
			t.Fatal(v)
		}
	}
	return p
}

// idOf returns the owner ID of an acquisition of the specification, or "" for "-".
func idOf(name string) string {
	if i := strings.Index(specNames, name); i >= 0 {
		return processes[i] + ":1"
	}
	return ""
}

// do makes a call, and returns an error unless the results are those of c.
func (p *player) do(c specCall) error {
	if err := p.listenAll(strings.Trim(c.deaf, "-")); err != nil {
		return err
	}
	p.number++
	p.clock = p.clock.Add(time.Millisecond)
	micros := p.clock.UnixMicro()
	w := p.main
	replies, err := w.exchange(
		[]string{"MSET", clockSeconds, strconv.FormatInt(micros/1e6, 10), clockMicros, strconv.FormatInt(micros%1e6, 10)},
		[]string{"PEXPIRE", p.names.queue, strconv.Itoa(unit)}, // so that the queue ends only when the specification says so
		p.command(c),
		[]string{"PUBLISH", barrier, strconv.Itoa(p.number)},
		[]string{"HKEYS", p.names.lock}, []string{"PTTL", p.names.lock}, []string{"ZRANGE", p.names.queue, "0", "-1"},
		[]string{"EXISTS", p.names.undone + idOf("a")}, []string{"EXISTS", p.names.undone + idOf("b")}, []string{"EXISTS", p.names.undone + idOf("d")},
	)
	if err != nil {
		return err
	}
	messages, err := p.listen(p.number)
	if err != nil {
		return err
	}
	answer := p.answer(c, replies[2])
	granted, wanted := p.told(messages)
	if to := stateIn(replies[4:]); to != c.to || answer != c.answer || granted != c.granted || wanted != c.wanted {
		return fmt.Errorf("the specification says\n\t%v\nand the server does\n\t%s %s %s %s\nand replies %v", c, to, answer, granted, wanted, replies[2])
	}
	return nil
}

// listenAll subscribes all processes except those in deaf.
func (p *player) listenAll(deaf string) error {
	for i, name := range specNames {
		was, is := strings.ContainsRune(p.deaf, name), strings.ContainsRune(deaf, name)
		if was == is {
			continue
		}
		command := "SUBSCRIBE"
		if is {
			command = "UNSUBSCRIBE"
		}
		if _, err := p.subscribers[i].do(command, processChannel(i)); err != nil {
			return err
		}
	}
	p.deaf = deaf
	return nil
}

// command returns the command that redislock would send: see acquire and freeing there.
func (p *player) command(c specCall) []string {
	n, id := p.names, idOf(c.who)
	lease, entry := strconv.Itoa(2*unit), fmt.Sprintf("%s %d 1", id, unit)
	script := func(name string, keys []string, args ...string) []string {
		return append(append([]string{"EVALSHA", p.hashes[name], strconv.Itoa(len(keys))}, keys...), args...)
	}
	keys := []string{n.lock, n.queue, n.token}
	switch c.op {
	case "attempt":
		args := []string{id, lease, "1", entry}
		if c.how == "tries" {
			args = args[:2]
		}
		return script("acquire", append(keys, n.undone+id), args...)
	case "release", "undo":
		args := []string{id, n.channel, "", ""}
		if c.op == "undo" {
			args = []string{id, n.channel, "-1", entry}
		}
		if c.how == "bury" {
			return script("release", append(keys, n.undone+id), append(args, strconv.Itoa(10*unit))...)
		}
		return script("release", keys, args...)
	case "renew":
		return script("renew", []string{n.lock, n.token}, id, lease)
	case "tick":
		if strings.HasPrefix(c.from[1:], "2") {
			return []string{"PEXPIRE", n.lock, strconv.Itoa(unit)}
		}
		return []string{"DEL", n.lock}
	case "forget":
		return []string{"DEL", n.undone + id}
	case "lineends":
		return []string{"DEL", n.queue}
	default: // restart
		return []string{"DEL", n.lock, n.queue, n.token, n.undone + idOf("a"), n.undone + idOf("b"), n.undone + idOf("d")}
	}
}

// answer returns the reply to a call in the words of the specification.
func (p *player) answer(c specCall, v value) string {
	switch c.op {
	case "attempt":
		switch first, isNumber := v.number(); {
		case isNumber:
			return "taken" + p.given(first)
		case v.kind == '+':
			return v.text
		case isHeld(v):
			return "held"
		}
	case "release", "undo":
		return map[string]string{":1": "freed", ":0": "not"}[v.String()]
	case "renew":
		return map[string]string{":1": "renewed", ":0": "not"}[v.String()]
	default:
		return "-"
	}
	return v.String()
}

// given records a token, and returns a complaint if it is not above all earlier ones.
func (p *player) given(token int64) string {
	if token <= p.token {
		return fmt.Sprintf(", but token %d is not above %d", token, p.token)
	}
	p.token = token
	return ""
}

// told returns which process got the message that it has the lock, and which got the message that the lock is wanted.
func (p *player) told(messages [subscribers][]string) (granted, wanted string) {
	granted, wanted = "-", "-"
	for i, heard := range messages {
		for _, text := range heard {
			name := specNames[i : i+1]
			_, said, _ := strings.Cut(text, `"message" "`+processChannel(i)+`" "`)
			f := strings.Fields(strings.Trim(said, `"]`))
			switch {
			case len(f) == 6 && f[0] == "granted" && f[1] == idOf(name) && f[5] == p.names.lock && granted == "-":
				first, _ := strconv.ParseInt(f[2], 10, 64)
				granted = name + p.given(first)
			case len(f) == 2 && f[0] == "wanted" && f[1] == idOf(name) && wanted == "-":
				wanted = name
			default:
				granted += " and " + text
			}
		}
	}
	return granted, wanted
}

// stateIn returns the state of the server in the words of the specification.
func stateIn(replies []value) string {
	nameOf := func(v value) string {
		if i := slices.Index(processes, v.text[:min(36, len(v.text))]); i >= 0 && i < len(specNames) {
			return specNames[i : i+1]
		}
		return "?"
	}
	owner := "-"
	for i, v := range replies[0].list {
		owner = strings.Repeat("?", i) + nameOf(v)
	}
	left, _ := replies[1].number()
	text := fmt.Sprintf("%s%d/", owner, (max(left, 0)+unit-1)/unit)
	for _, v := range replies[2].list {
		text += nameOf(v)
	}
	text += "/"
	for i := range specNames {
		if replies[3+i].text == "1" {
			text += specNames[i : i+1]
		}
	}
	return text
}
