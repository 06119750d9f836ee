package generator

import (
	"cmp"
	"fmt"
)

// exclusions are the items that exclude each other, with the reasons. docs/directive.md has the
// same list.
var exclusions = []struct{ a, b, hint string }{
	{"wait", "try", "try means not to wait at all"},
	{"renew", "max", "max bounds the renewal that renew=off turns off"},
	{"try", "queue", "try means not to wait at all, so there is no queue"},
	{"read", "write", "read is the shared side of a lock, write its exclusive one"},
	{"read", "fair", "readers and writers take turns without it"},
	{"write", "fair", "readers and writers take turns without it"},
	{"read", "permits", "readers are any number; permits=N without read is a semaphore"},
	{"write", "permits", "a writer is alone; permits=N without write is a semaphore"},
	{"fair", "permits", "permits are given in the order in which they were asked for without it"},
	{"once", "read", "a run is alone"},
	{"once", "write", "a run is alone"},
	{"once", "fair", "a run that is over has its turn, whoever came first"},
	{"once", "permits", "a run is alone"},
	{"once", "reentrant", "a run inside a run of the same key would wait for itself"},
	{"leader", "read", "one leads"},
	{"leader", "write", "one leads"},
	{"leader", "fair", "a leader's lock is fair"},
	{"leader", "permits", "one leads"},
	{"leader", "once", "a leader is called again whenever it has lost the lock"},
	{"leader", "skip", "a leader campaigns for as long as its context lasts"},
	{"leader", "fallback", "a leader campaigns for as long as its context lasts"},
	{"leader", "atleast", "who leads for as long as it likes resigns by returning"},
	{"merge", "read", "readers share the lock without it"},
	{"merge", "permits", "one section is under way at a time"},
	{"merge", "once", "requests are taken once each"},
	{"merge", "leader", "a leader takes no requests"},
	{"merge", "reentrant", "a section has the requests of several calls, and is inside none of them"},
	{"merge", "try", "who does not wait can't be taken along"},
	{"merge", "skip", "who waits is taken along"},
	{"merge", "fallback", "who waits is taken along"},
	{"sticky", "renew", "the next holder would begin on what is left of a fixed lease"},
	{"sticky", "delay", "a lock that is lost while nobody uses it would stay closed"},
	{"sticky", "read", "readers share the lease without it; for a mutex leave out read"},
	{"sticky", "write", "readers and writers take turns; for a mutex leave out write"},
	{"sticky", "fair", "a fair lock goes to whoever came first; for a mutex leave out fair"},
	{"sticky", "permits", "a permit goes to whoever asks next; for a mutex leave out permits"},
	{"sticky", "once", "a run that is over is over"},
	{"sticky", "leader", "who leads keeps the lock without it"},
	{"skip", "fallback", "skip means that nothing runs in the method's place"},
}

// conflicts reports items that exclude each other, at the later one.
func (d *directive) conflicts() []problem {
	var out []problem
	for _, pair := range exclusions {
		a, b := d.items[pair.a], d.items[pair.b]
		if a == nil || b == nil {
			continue
		}
		out = append(out, problem{max(a.at, b.at), pair.a + " and " + pair.b + " exclude each other", pair.hint})
	}
	out = append(out, d.lacking()...)
	out = append(out, d.tooLong()...)
	return append(out, d.ttlBeyondMax()...)
}

// lacking reports items that need another item.
func (d *directive) lacking() (out []problem) {
	weight, permits := d.items["weight"], d.items["permits"]
	switch {
	case weight == nil:
	case permits == nil:
		out = append(out, problem{weight.at, "weight needs permits", "it is how many of the permits a hold takes: permits=3 weight=2"})
	case d.Permits > 0 && d.Weight > d.Permits:
		out = append(out, problem{weight.at, fmt.Sprintf("weight=%d is more than there are: permits=%d", d.Weight, d.Permits), "such a hold would never begin"})
	}
	return out
}

// tooLong reports an atleast that is longer than a lease can last.
func (d *directive) tooLong() []problem {
	it, atLeast := d.items["atleast"], d.AtLeast.Length()
	if it == nil {
		return nil
	}
	if ttl := cmp.Or(d.TTL.Length(), DefaultTTL); d.NoRenew && atLeast > ttl {
		return []problem{{it.at, fmt.Sprintf("atleast=%s is longer than the lease, which ends after %v", it.value, ttl), "leave out renew=off, or give it a longer ttl"}}
	}
	if most := d.Max.Length(); most > 0 && atLeast > most {
		return []problem{{it.at, fmt.Sprintf("atleast=%s is longer than max=%s", it.value, d.items["max"].value), "the lease is renewed no longer than max"}}
	}
	return nil
}

// ttlBeyondMax reports a ttl longer than max: such a lease is never renewed.
func (d *directive) ttlBeyondMax() []problem {
	ttl, most := d.items["ttl"], d.items["max"]
	if ttl == nil || most == nil || d.Max.Length() == 0 || d.TTL.Length() <= d.Max.Length() {
		return nil
	}
	return []problem{{ttl.at, fmt.Sprintf("ttl=%s is longer than max=%s", ttl.value, most.value),
		"max bounds the renewal: give it a shorter ttl, or write renew=off in place of max"}}
}
