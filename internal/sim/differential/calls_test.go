package differential

import (
	"strconv"
	"strings"
)

// acquire draws an attempt: a new one, or a repetition.
func (d *drawer) acquire() step { return d.step(d.acquiring()) }

func (d *drawer) acquiring() call {
	a := d.newcomer()
	if d.chance(35) {
		a = d.anyone()
	}
	k := namesOf(a.lock)
	c := call{script: "acquire", keys: []string{k.lock, k.queue, k.token, k.undone + a.id}, of: a}
	c.args = []string{a.id, strconv.Itoa(a.ttl), strconv.Itoa(a.tokens), ""}
	if a.queue {
		c.args[3] = a.entry()
	}
	switch {
	case a.queue && d.chance(20): // with a token, as an acquisition after another one of its process
		c.args = append(c.args, pick(d, "1", "1782907200123456", "4503599627370496"))
	case a.queue:
	case a.tokens > 1:
		c.args = c.args[:3]
	default:
		c.args = c.args[:2]
	}
	return c
}

// release draws a release or an undo.
func (d *drawer) release() step { return d.step(d.releasing()) }

func (d *drawer) releasing() call {
	a := d.holder()
	k := namesOf(a.lock)
	args := [5]string{a.id, k.channel}
	switch {
	case d.chance(35): // undone
		args[2] = "-" + strconv.Itoa(a.tokens)
		args[3] = a.entry()
	case a.tokens > 1:
		args[2] = strconv.FormatInt(a.first+int64(d.IntN(a.tokens)), 10)
		if d.chance(10) {
			args[2] = pick(d, "1", "9", "8500000000000000")
		}
	}
	c := call{script: "release", keys: []string{k.lock, k.queue, k.token}}
	if d.chance(20) {
		args[4] = strconv.Itoa(a.ttl + 60000)
		c.keys = append(c.keys, k.undone+a.id)
	}
	for i, arg := range args {
		if arg != "" {
			c.args = args[:i+1]
		}
	}
	return c
}

// renew draws a renewal, sometimes with only the lock's own key.
func (d *drawer) renew() step {
	c := d.renewing()
	if d.chance(20) {
		c.keys = c.keys[:1]
	}
	return d.step(c)
}

func (d *drawer) renewing() call {
	a := d.holder()
	k := namesOf(a.lock)
	return call{script: "renew", keys: []string{k.lock, k.token}, args: []string{a.id, strconv.Itoa(pick(d, a.ttl, 50, 500, 30000))}}
}

// raise draws a request that the later tokens of a lease be above a token of another server, as a
// quorum sends it.
func (d *drawer) raise() step {
	a := d.holder()
	k := namesOf(a.lock)
	least := a.first + int64(d.IntN(3)) - 1
	if d.chance(10) {
		least = pick(d, int64(1), 9, 8500000000000000)
	}
	return d.step(call{script: "raise", keys: []string{k.lock, k.token}, args: []string{a.id, strconv.FormatInt(least, 10)}})
}

// one draws a release with only the lock's own key.
func (d *drawer) one() step {
	a := d.holder()
	k := namesOf(a.lock)
	return d.step(call{script: "release", keys: []string{k.lock}, args: []string{a.id, k.channel}})
}

// together draws a command about several locks.
func (d *drawer) together() step {
	c := call{script: "together"}
	var shape strings.Builder
	var asked []*acquisition
	calls := 1 + d.IntN(5)
	if d.chance(1) {
		calls = 100
	}
	for range calls {
		what, one := byte('a'), call{}
		switch d.IntN(5) {
		case 0, 1:
			one = d.acquiring()
		case 2, 3:
			what, one = 'r', d.releasing()
		default:
			what, one = 'n', d.renewing()
		}
		d.garble(&one)
		shape.Write([]byte{what, byte('0' + len(one.keys)), byte('0' + len(one.args))})
		c.keys, c.args = append(c.keys, one.keys...), append(c.args, one.args...)
		asked = append(asked, one.of)
	}
	c.args = append([]string{shape.String()}, c.args...)
	s := d.step(c)
	d.asked = asked
	return s
}

// subscribe draws a subscription as our clients make it.
func (d *drawer) subscribe() step {
	on := d.drawn % subscribers
	channel := processChannel(on)
	return step{does: "listen", on: on + 1, args: []string{"SUBSCRIBE", channel}}
}

// listen draws that a subscriber subscribes to a channel, unsubscribes, or sends another command.
func (d *drawer) listen() step {
	on := d.IntN(subscribers)
	channel := processChannel(on)
	if d.chance(60) {
		channel = namesOf(pick(d, lockNames...)).channel
	}
	args := []string{"SUBSCRIBE", channel}
	switch d.IntN(10) {
	case 0, 1, 2:
		args[0] = "UNSUBSCRIBE"
	case 3:
		args = []string{"PING"}
	case 4:
		args = []string{"GET", clockSeconds}
	}
	return step{does: "listen", tick: d.tick(), on: on + 1, args: args}
}
