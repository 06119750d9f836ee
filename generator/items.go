package generator

import (
	"cmp"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lockgen/lockgen/templates"
)

// settings is what the items of a directive, except the key, ask for: from the Locker, and from the
// wrapper.
type settings struct {
	templates.Policy // names and the key are not set yet
	merge            int
	fallback         string
}

// kind returns the name of the lock's kind.
func (s *settings) kind() string {
	switch {
	case s.Read:
		return "read"
	case s.Write:
		return "write"
	case s.Fair:
		return "fair"
	case s.Permits > 0:
		return "permits"
	case s.Once:
		return "once"
	case s.Leader:
		return "leader"
	}
	return "exclusive"
}

// itemSpec describes an item. read checks the value and stores it; it is nil for a flag, for which
// set is called.
type itemSpec struct {
	name    string
	example string // the item as it is written
	read    func(s *settings, it *item) *problem
	set     func(s *settings)
}

// itemSpecs are all items, in the order in which messages list them. "key" has its own parser, in
// pattern.go.
var itemSpecs = []itemSpec{
	{name: "key", example: `key="seckill:voucher:<id>"`, read: func(*settings, *item) *problem { return nil }},
	{name: "ttl", example: "ttl=60s", read: func(s *settings, it *item) *problem { return readDuration(it, &s.TTL) }},
	{name: "reentrant", set: func(s *settings) { s.Reentrant = true }},
	{name: "wait", example: "wait=2s", read: func(s *settings, it *item) *problem { return readDuration(it, &s.Wait) }},
	{name: "try", set: func(s *settings) { s.Try = true }},
	{name: "renew", example: "renew=off", read: readRenew},
	{name: "max", example: "max=10m", read: func(s *settings, it *item) *problem { return readDuration(it, &s.Max) }},
	{name: "read", set: func(s *settings) { s.Read = true }},
	{name: "write", set: func(s *settings) { s.Write = true }},
	{name: "fair", set: func(s *settings) { s.Fair = true }},
	{name: "permits", example: "permits=3", read: func(s *settings, it *item) *problem { return readCount(it, &s.Permits) }},
	{name: "weight", example: "weight=2", read: func(s *settings, it *item) *problem { return readCount(it, &s.Weight) }},
	{name: "queue", example: "queue=100", read: func(s *settings, it *item) *problem { return readCount(it, &s.Queue) }},
	{name: "delay", example: "delay=5s", read: func(s *settings, it *item) *problem { return readDuration(it, &s.Delay) }},
	{name: "fallback", example: "fallback=Method", read: readFallback},
	{name: "skip", set: func(s *settings) { s.Skip = true }},
	{name: "atleast", example: "atleast=10s", read: func(s *settings, it *item) *problem { return readDuration(it, &s.AtLeast) }},
	{name: "sticky", example: "sticky=2s", read: func(s *settings, it *item) *problem { return readDuration(it, &s.Sticky) }},
	{name: "once", example: `once="<day>"`, read: func(s *settings, _ *item) *problem { s.Once = true; return nil }},
	{name: "leader", set: func(s *settings) { s.Leader = true }},
	{name: "merge", example: "merge=64", read: readMerge},
	{name: "backend", example: "backend=name", read: readBackend},
}

// itemPattern matches the name of any item.
const itemPattern = `key|ttl|reentrant|wait|try|renew|max|read|write|fair|permits|weight|queue|delay|fallback|skip|atleast|sticky|once|leader|merge|backend`

func findItem(name string) *itemSpec {
	for i := range itemSpecs {
		if itemSpecs[i].name == name {
			return &itemSpecs[i]
		}
	}
	return nil
}

// parseDirective reads the text after "//lock:".
func parseDirective(text string) (*directive, []problem) {
	items, problems := readItems(text)
	d := &directive{items: map[string]*item{}}
	for i := 0; i < len(items); i++ {
		it := &items[i]
		if strings.HasPrefix(it.name, "//") {
			problems = append(problems, problem{it.at, "a remark after the items", "put it on a line of its own"})
			items = items[:i]
			break
		}
		spec := findItem(it.name)
		switch {
		case it.name == "": // reported by readItems
		case spec == nil:
			problems = append(problems, unknownItem(it))
		case d.items[it.name] != nil:
			problems = append(problems, problem{it.at, it.name + " is given twice", "say it once"})
		default:
			d.items[it.name] = it
			if spec.read != nil && !it.valued && i+1 < len(items) && isStrayValue(items[i+1]) {
				i++
				problems = append(problems, problem{it.at, it.name + " needs a value", "write " + it.name + "=" + items[i].name})
			} else if p := spec.apply(&d.settings, it); p != nil {
				problems = append(problems, *p)
			}
		}
	}
	if key := d.items["key"]; key != nil {
		problems = append(problems, d.parseKey(key)...)
	} else if !triedKey(items) {
		problems = append(problems, problem{0, "the directive has no key", `write key="seckill:voucher:<id>"`})
	}
	if tick := d.items["once"]; tick != nil {
		problems = append(problems, d.parseTick(tick)...)
	}
	return d, append(problems, d.conflicts()...)
}

// isStrayValue reports whether an item is probably the value of the item before it.
func isStrayValue(it item) bool { return !it.valued && findItem(it.name) == nil }

// triedKey reports whether an item without a name, or with an unknown one, was meant to be the key.
// Then a missing key is not another mistake.
func triedKey(items []item) bool {
	for _, it := range items {
		if it.name == "" || strings.HasPrefix(otherNames[strings.ToLower(it.name)], "key=") || findItem(it.name) == nil && nearest(strings.ToLower(it.name), itemNames()) == "key" {
			return true
		}
	}
	return false
}

// otherNames maps names of items in other tools to the items of lockgen.
var otherNames = map[string]string{
	"expire": "ttl=60s", "expires": "ttl=60s", "expiry": "ttl=60s", "expiration": "ttl=60s", "lease": "ttl=60s",
	"leasetime": "ttl=60s", "duration": "ttl=60s", "timeout": "wait=2s, how long to wait for the lock", "waittime": "wait=2s",
	"watchdog": "renew=off? A lease is renewed without it", "autorenew": "renew=off? A lease is renewed without it",
	"retry": "wait=2s, how long to wait for the lock", "retries": "wait=2s, how long to wait for the lock",
	"nowait": "try", "trylock": "try", "shared": "read", "semaphore": "permits=3", "name": "key=\"…\"", "resource": "key=\"…\"",
}

func unknownItem(it *item) problem {
	if it.name == "+" {
		return problem{it.at, "+ joins nothing here", `a key has its values in it: key="order:<id>"`}
	}
	if other := otherNames[strings.ToLower(it.name)]; other != "" {
		if !strings.Contains(other, "?") {
			other += "?"
		}
		return problem{it.at, "unknown item " + it.name, "did you mean " + other}
	}
	if word := nearest(strings.ToLower(it.name), itemNames()); word != "" {
		return problem{it.at, "unknown item " + it.name, "did you mean " + word + "?"}
	}
	return problem{it.at, "unknown item " + it.name, "have " + strings.Join(itemNames(), ", ")}
}

// Item is an item that a directive can have.
type Item struct {
	Name    string // "wait"
	Example string // "wait=2s"
}

// Items lists all items, in the order in which messages and help list them.
func Items() []Item {
	var out []Item
	for _, s := range itemSpecs {
		out = append(out, Item{s.name, cmp.Or(s.example, s.name)})
	}
	return out
}

func itemNames() []string {
	out := make([]string, len(itemSpecs))
	for i, s := range itemSpecs {
		out[i] = s.name
	}
	return out
}

func (spec *itemSpec) apply(s *settings, it *item) *problem {
	switch {
	case it.broken: // reported by readItems
		return nil
	case spec.read == nil && it.valued:
		return &problem{it.at, it.name + " takes no value", "write " + it.name}
	case spec.read != nil && !it.valued:
		return &problem{it.at, it.name + " needs a value", "write " + spec.example}
	case spec.read != nil && it.value == "" && it.name != "key":
		return &problem{it.valueAt, it.name + " is empty", "write " + spec.example}
	case spec.read != nil:
		if p := spec.read(s, it); p != nil {
			return p
		}
	}
	if spec.set != nil {
		spec.set(s)
	}
	return nil
}

var (
	plainDuration = regexp.MustCompile(`^([0-9]+)(ns|us|µs|μs|ms|s|m|h)$`)
	durationShape = regexp.MustCompile(`^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)`)
	numberShape   = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
)

var units = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond,
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour,
}

// maxTTL is the longest lease that the runtime accepts.
const maxTTL = 100 * 365 * 24 * time.Hour

// maxSticky is the longest time for which the runtime keeps an idle lease.
const maxSticky = maxTTL / 10

func readDuration(it *item, into *templates.Duration) *problem {
	fail := func(message, hint string) *problem {
		return &problem{it.valueAt, it.name + "=" + it.value + ": " + message, hint}
	}
	d, err := time.ParseDuration(it.value)
	switch {
	case err != nil && numberShape.MatchString(it.value):
		return fail("a unit is missing", "write "+it.name+"="+it.value+"s or "+it.value+"ms")
	case (it.name == "ttl" || it.name == "delay") && (d > maxTTL || err != nil && isOverflow(it.value)):
		return fail("too long", "the longest lease is 876000h; Redis takes a tenth of that")
	case err != nil && isOverflow(it.value):
		return fail("too long", "the longest duration is about 290 years")
	case err != nil:
		return fail("not a duration", "write it as 500ms, 60s, 10m or 1h30m")
	case d <= 0 && it.name == "wait":
		return fail("must be at least 1ms", "not to wait at all, say try; to wait until the context ends, leave wait out")
	case d <= 0 && it.name == "delay":
		return fail("must be at least 1ms", "without delay a lock that was lost is free when its ttl is over")
	case d <= 0 && it.name == "sticky":
		return fail("must be at least 1ms", "without sticky a release frees the lock at once")
	case it.name == "sticky" && d > maxSticky:
		return fail("too long", "the longest is 87600h")
	case d <= 0 && it.name == "ttl":
		return fail("must be at least 1ms", "without ttl a lease lasts 30s, and is renewed")
	case d < time.Millisecond:
		return fail("must be at least 1ms", "")
	}
	*into = inUnits(it.value, d)
	return nil
}

// isOverflow reports whether a duration that does not parse has too many digits.
func isOverflow(s string) bool {
	if !durationShape.MatchString(s) {
		return false
	}
	_, err := time.ParseDuration(regexp.MustCompile(`[0-9]+`).ReplaceAllString(s, "1"))
	return err == nil
}

// inUnits keeps the unit that the user wrote, or uses the largest unit that divides d.
func inUnits(text string, d time.Duration) templates.Duration {
	if m := plainDuration.FindStringSubmatch(text); m != nil {
		n, _ := strconv.ParseInt(m[1], 10, 64) // it was parsed as a duration
		return templates.Duration{Count: n, Unit: units[m[2]]}
	}
	for _, unit := range []time.Duration{time.Hour, time.Minute, time.Second, time.Millisecond, time.Microsecond} {
		if d%unit == 0 {
			return templates.Duration{Count: int64(d / unit), Unit: unit}
		}
	}
	return templates.Duration{Count: int64(d), Unit: time.Nanosecond}
}

func readRenew(s *settings, it *item) *problem {
	if it.value != "off" {
		return &problem{it.valueAt, "renew=" + it.value + ": the only value is off", "without it the lease is renewed until the method returns"}
	}
	s.NoRenew = true
	return nil
}

func readCount(it *item, into *int) *problem {
	n, err := strconv.ParseInt(it.value, 10, 32)
	if errors.Is(err, strconv.ErrRange) && n > 0 {
		return &problem{it.valueAt, it.name + "=" + it.value + ": too many", "the most is 2147483647"}
	}
	if err != nil || n < 1 {
		return &problem{it.valueAt, it.name + "=" + it.value + ": not a number above 0", "write " + it.name + "=3"}
	}
	*into = int(n)
	return nil
}

var identifierShape = regexp.MustCompile(`^[\pL_][\pL\p{Nd}_-]*$`)

func readBackend(s *settings, it *item) *problem {
	s.Backend = it.value
	if !identifierShape.MatchString(it.value) {
		return &problem{it.valueAt, "backend=" + it.value + ": not a name", ""}
	}
	return nil
}

func readFallback(s *settings, it *item) *problem {
	s.fallback = it.value
	if !isIdentifier(it.value) {
		return &problem{it.valueAt, "fallback=" + it.value + ": not a name", "name a method of the same type, or a function beside a function: fallback=Method"}
	}
	return nil
}
