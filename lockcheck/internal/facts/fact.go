// Package facts collects, package by package, the facts that all checks need: which functions run
// under which locks, which wrappers take them, which functions call which, and which types
// implement which interfaces. Importing packages get them as a fact of package analysis.
package facts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Position is a place in a file, in a form that can be stored in a fact.
type Position struct {
	File         string
	Line, Column int
}

func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// Kind is the kind of text that a placeholder can become.
type Kind int

// The kinds of placeholders.
const (
	AnyText Kind = iota
	Signed
	Unsigned
	Boolean
	Opaque // text of a special form, such as a UUID
)

// Receiver is the Root of a placeholder that begins at the receiver. Unknown is the Root of a
// placeholder that can't be resolved.
const (
	Receiver = -1
	Unknown  = -2
)

// Part is a literal of a key or, without one, a placeholder.
type Part struct {
	Literal string
	Root    int    // the number of the parameter at which the placeholder begins
	Path    string // what follows: ".Customer.ID", or ""
	Text    string // "<order.Customer.ID>", "<ids...>"
	Kind    Kind
	Type    string // the type of the value, with its package
	Each    bool   // the lock has a key for each element of a list
}

// Lock describes one directive.
type Lock struct {
	Key                                        string // as written in the directive
	Parts                                      []Part
	Method                                     string // "order.Service.Place"
	Package                                    string
	Backend                                    string
	Pos                                        Position
	TTL                                        time.Duration
	Reentrant, Try, NoRenew, Read, Write, Hand bool
	Kind                                       string // as [generator.Lock] names it
	KindInWords                                string // "semaphore of 3"
	Items                                      string // all items of the directive: "ttl=30s permits=3"
}

// Class consists of what all keys of a template have in common: the literals and the backend.
// Locks of one class may be the same lock, and have placeholders at the same places.
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

// Func describes what a function does with locks.
type Func struct {
	ID       string // types.Func.FullName
	Name     string // "order.Service.Place"
	Pos      Position
	Guard    []Lock // the locks of its directives
	Fallback *Call  // the call that its wrappers make if another owner holds the lock
	Takes    []Lock // the locks that it takes as a wrapper
	Wraps    string // the ID of the function that a wrapper calls
	KeyOf    *Lock  // the lock whose keys it computes
	Fence    *Fence
	Tokens   bool          // whether it asks for a fencing token
	Sleeps   time.Duration // how long it sleeps at least
	Calls    []Call
}

// Fence says that a function is a writer that needs a fencing token.
type Fence struct {
	Param int // the number of the parameter with the token; Receiver means the context has it
	Name  string
	Pos   Position
}

// Call is a call that its caller waits for.
type Call struct {
	To      string // ID
	Name    string // as shown: "stock.Reserver.Reserve"
	Dynamic bool   // whether it calls a method of an interface
	Lost    string // the context that it passes, if that owns no lock
	Args    []string
	Pos     Position
}

// Bind says that a call of a method of an interface may call a method of a type.
type Bind struct {
	Method, Impl string // IDs
	Dynamic      bool   // whether Impl is a method of another interface
	Type         string
	Pos          Position
}

// Ignore silences a check on some lines.
type Ignore struct {
	Check    string
	File     string
	From, To int
}

// Summary has the facts of one package.
type Summary struct {
	Path    string
	Funcs   []*Func // by ID
	Binds   []Bind
	Ignores []Ignore
	Engines []string // imported engines for which a / in a key makes a path
}

// Func returns a function by its ID, or nil.
func (s *Summary) Func(id string) *Func {
	at, ok := slices.BinarySearchFunc(s.Funcs, id, func(f *Func, id string) int { return strings.Compare(f.ID, id) })
	if !ok {
		return nil
	}
	return s.Funcs[at]
}

// Empty reports whether the summary has nothing that importing packages need.
func (s *Summary) Empty() bool {
	return len(s.Funcs)+len(s.Binds)+len(s.Engines) == 0
}

// Closure is the fact: the summaries of a package and of all its imports, direct or not.
type Closure struct {
	Summaries []*Summary // by path
}

// AFact marks Closure as a fact.
func (*Closure) AFact() {}

func (c *Closure) String() string { return fmt.Sprintf("%d summaries", len(c.Summaries)) }
