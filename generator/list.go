package generator

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Lock describes one directive.
type Lock struct {
	Key       string // as written in the directive: "seckill:voucher:<id>"
	Method    string // "SeckillService.CreateVoucherOrder"
	Package   string // the import path
	File      string // the absolute path
	Line      int
	Column    int
	TTL       time.Duration
	Kind      string // "exclusive", "read", "write", "fair", "permits", "once" or "leader"
	Tick      string // of kind "once", as written in the directive: "<day>"
	Permits   int    // of kind "permits": how many permits there are, otherwise 0
	Weight    int    // how many of them a hold takes; 0 means 1
	Queue     int    // how many calls may wait in a process; 0 means any number
	Merge     int    // how many requests share a lock at most; 0 means that none do
	Delay     time.Duration
	AtLeast   time.Duration
	Sticky    time.Duration
	Wait      time.Duration // how long a call waits for the lock; 0 means until its context ends
	Max       time.Duration // how long the lease is renewed; 0 means until the method returns
	Try       bool          // a call does not wait
	NoRenew   bool          // renew=off
	Reentrant bool
	Skip      bool   // no error if another owner holds the lock
	Fallback  string // the method or function that is called instead; empty if there is none
	Backend   string // empty means the Locker's own

	parts  []part
	ownTTL bool // the directive sets one
}

// KindInWords returns what all locks of a key must have in common: "read-write lock", "semaphore of
// 3".
func (l *Lock) KindInWords() string { return kindInWords(l.Kind, l.Permits) }

func kindInWords(kind string, permits int) string {
	switch kind {
	case "read", "write":
		return "read-write lock"
	case "permits":
		return fmt.Sprintf("semaphore of %d", permits)
	case "fair":
		return "fair lock"
	case "once":
		return "job that runs once"
	case "leader":
		return "leadership"
	}
	return "mutex"
}

// Items returns the kind of lock, and then the items other than key, ttl and backend, in a fixed
// order and spelling: "permits=3 wait=2s".
func (l *Lock) Items() string {
	words := []string{l.Kind}
	if l.Permits > 0 {
		words[0] += fmt.Sprintf("=%d", l.Permits)
	}
	if l.Tick != "" {
		words[0] += fmt.Sprintf("=%q", l.Tick)
	}
	for _, n := range []struct {
		name string
		n    int
	}{{"weight", l.Weight}, {"queue", l.Queue}, {"merge", l.Merge}} {
		if n.n > 0 {
			words = append(words, fmt.Sprintf("%s=%d", n.name, n.n))
		}
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"wait", l.Wait}, {"max", l.Max}, {"delay", l.Delay}, {"atleast", l.AtLeast}, {"sticky", l.Sticky}} {
		if d.d > 0 {
			words = append(words, d.name+"="+ShortDuration(d.d))
		}
	}
	for _, flag := range []struct {
		name string
		set  bool
	}{{"try", l.Try}, {"renew=off", l.NoRenew}, {"reentrant", l.Reentrant}, {"skip", l.Skip}} {
		if flag.set {
			words = append(words, flag.name)
		}
	}
	if l.Fallback != "" {
		words = append(words, "fallback="+l.Fallback)
	}
	return strings.Join(words, " ")
}

// Text returns the directive in a form that does not depend on its spelling: "a:<id>" ttl=5s
// exclusive try.
func (l *Lock) Text() string {
	text := strconv.Quote(l.Key)
	if l.Backend != "" {
		text += " backend=" + l.Backend
	}
	if l.ownTTL {
		text += " ttl=" + ShortDuration(l.TTL)
	}
	return text + " " + l.Items()
}

// ShortDuration writes d as a directive does: 1m, not 1m0s.
func ShortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// DefaultTTL is the lease length if a directive sets none.
const DefaultTTL = 30 * time.Second

// List reads the directives of packages, and no types. Directives with a mistake are diagnostics
// and not in the list. There may be diagnostics together with an error.
func List(ctx context.Context, opts Options) ([]Lock, []Diagnostic, error) {
	r := newRun(ctx, opts)
	listed, err := r.list(ctx)
	if err != nil {
		return nil, r.unlisted().Diagnostics, err
	}
	pkgs := r.parse(listed)
	var out []Lock
	var wrong []Diagnostic
	for _, p := range pkgs {
		p.scan()
		wrong = append(wrong, p.diagnostics...)
		for _, t := range p.targets {
			for _, d := range t.directives {
				if !d.wrong {
					out = append(out, p.lock(t, d))
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Lock) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return out, sortDiagnostics(wrong), nil
}

func (p *pkg) lock(t *target, d *directive) Lock {
	at := p.run.position(d.pos)
	l := Lock{
		Key: d.key.text, Method: t.id.Name, Package: p.path, File: at.Filename, Line: at.Line, Column: at.Column,
		TTL: DefaultTTL, Kind: d.kind(), Permits: d.Permits, Weight: d.Weight, Queue: d.Queue, Reentrant: d.Reentrant, Backend: d.Backend, parts: d.key.parts,
	}
	if owner := t.owner(); owner != "" {
		l.Method = p.aliased(owner) + "." + t.id.Name
	}
	if d.TTL.Unit != 0 {
		l.TTL, l.ownTTL = d.TTL.Length(), true
	}
	l.Wait, l.Max, l.Try, l.NoRenew = d.Wait.Length(), d.Max.Length(), d.Try, d.NoRenew
	l.Delay, l.AtLeast, l.Skip, l.Sticky = d.Delay.Length(), d.AtLeast.Length(), d.Skip, d.Sticky.Length()
	l.Fallback, l.Tick, l.Merge = d.fallback, d.tick.text, d.merge
	return l
}

// Value is the value of a placeholder in a key.
type Value struct {
	Placeholder string // "id", or "ids..."
	Text        string
}

// Match reports whether the directive can make that key, and with which values. There is at most
// one way to read a key, because a directive whose placeholders are not separated is refused.
func (l Lock) Match(key string) (values []Value, ok bool) {
	var expr strings.Builder
	var names []string
	expr.WriteString(`^(?s)`)
	for _, p := range l.parts {
		if p.isPlaceholder() {
			names = append(names, strings.Trim(p.text, "<>"))
			expr.WriteString(`((?:[A-Za-z0-9_.-]|%[0-9A-F]{2})+)`)
		} else {
			expr.WriteString(regexp.QuoteMeta(bytewise(p.literal)))
		}
	}
	found := regexp.MustCompile(expr.String() + `$`).FindStringSubmatch(bytewise(key))
	if found == nil {
		return nil, false
	}
	for i, name := range names {
		text, err := url.PathUnescape(found[i+1])
		if err != nil || slices.ContainsFunc(values, func(v Value) bool { return v.Placeholder == name && v.Text != text }) {
			return nil, false
		}
		values = append(values, Value{name, text})
	}
	return values, true
}

// bytewise returns s with each byte as a character, because a literal may contain bytes that are
// not valid UTF-8, which no regular expression accepts. ASCII stays.
func bytewise(s string) string {
	out := make([]rune, len(s))
	for i := range len(s) {
		out[i] = rune(s[i])
	}
	return string(out)
}
