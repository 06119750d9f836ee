// Package facts finds out, package by package, what all checks build on: which
// functions run under which locks, which wrappers take them, who calls whom, and
// which types stand behind which interfaces. What importing packages need of it
// travels as a fact.
package facts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Position is a place in a file, in a form that survives the way through facts.
type Position struct {
	File         string
	Line, Column int
}

func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// Kind is what text a placeholder can become.
type Kind int

// The kinds of placeholders.
const (
	AnyText Kind = iota
	Signed
	Unsigned
	Boolean
	Opaque // text of a form of its own, such as a UUID's
)

// Receiver is the Root of a placeholder that begins at the receiver; Unknown of
// one that could not be made out.
const (
	Receiver = -1
	Unknown  = -2
)

// Part is a literal of a key or, without one, a placeholder.
type Part struct {
	Literal string
	Root    int    // which parameter the placeholder begins at
	Path    string // what follows it: ".Customer.ID", or nothing
	Text    string // "<order.Customer.ID>", "<ids...>"
	Kind    Kind
	Type    string // of the value, with its package
	Each    bool   // it has a value, and the lock a key, for each element of a list
}

// Lock is what one directive asks for.
type Lock struct {
	Key                                        string // as the directive spells it
	Parts                                      []Part
	Method                                     string // "order.Service.Place"
	Package                                    string
	Backend                                    string
	Pos                                        Position
	TTL                                        time.Duration
	Reentrant, Try, NoRenew, Read, Write, Hand bool
	Kind                                       string // as [generator.Lock] names it
	KindInWords                                string // "semaphore of 3"
	Items                                      string // all that the directive asks for: "ttl=30s permits=3"
}

// Class is what all keys of a template have in common: its literals, and the backend. Locks
// of one class may be one lock, and have a placeholder at the same places.
func (l *Lock) Class() string {
	var b strings.Builder
	b.WriteString(l.Backend + "|")
	for _, p := range l.Parts {
		if p.Literal == "" {
			b.WriteByte(0)
			continue
		}
		b.WriteString(strconv.Quote(p.Literal))
	}
	return b.String()
}

// Literal reports whether the template has one key only.
func (l *Lock) Literal() bool {
	for _, p := range l.Parts {
		if p.Literal == "" {
			return false
		}
	}
	return true
}

// Func is what a function does, as far as locks are concerned.
type Func struct {
	ID       string // types.Func.FullName
	Name     string // "order.Service.Place"
	Pos      Position
	Guard    []Lock // it is annotated: it runs under these
	Fallback *Call  // it is annotated: its wrappers call this where another holds the lock
	Takes    []Lock // it is a wrapper: it takes these
	Wraps    string // the ID of what a wrapper calls
	KeyOf    *Lock  // it computes the keys of this lock
	Fence    *Fence
	Tokens   bool          // it asks for a fencing token
	Sleeps   time.Duration // in any case, at least
	Calls    []Call
}

// Fence says that a function writes what a fencing token protects.
type Fence struct {
	Param int // which parameter brings the token; Receiver: none, it is taken from the context
	Name  string
	Pos   Position
}

// Call is a call that its caller waits for.
type Call struct {
	To      string // ID
	Name    string // as shown: "stock.Reserver.Reserve"
	Dynamic bool   // of a method of an interface
	Lost    string // the context that it passes owns nothing: what that context is
	Args    []string
	Pos     Position
}

// Bind says that a method of an interface may be that of a type.
type Bind struct {
	Method, Impl string // IDs
	Dynamic      bool   // Impl is a method of another interface
	Type         string
	Pos          Position
}

// Ignore silences a check on some lines.
type Ignore struct {
	Check    string
	File     string
	From, To int
}

// Summary is what is known of one package.
type Summary struct {
	Path    string
	Funcs   []*Func // by ID
	Binds   []Bind
	Ignores []Ignore
	Engines []string // that it imports and for which a / in a key makes a path
}

// Func returns a function by its ID, or nil.
func (s *Summary) Func(id string) *Func {
	at, ok := slices.BinarySearchFunc(s.Funcs, id, func(f *Func, id string) int { return strings.Compare(f.ID, id) })
	if !ok {
		return nil
	}
	return s.Funcs[at]
}

// Empty reports whether importing packages need to know nothing of it.
func (s *Summary) Empty() bool {
	return len(s.Funcs)+len(s.Binds)+len(s.Engines) == 0
}

// Closure is the fact: the summaries of a package and of all that it imports,
// directly or not.
type Closure struct {
	Summaries []*Summary // by path
}

// AFact marks Closure as a fact.
func (*Closure) AFact() {}

func (c *Closure) String() string { return fmt.Sprintf("%d summaries", len(c.Summaries)) }
