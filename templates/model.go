package templates

import "time"

// File is the content of one generated file.
type File struct {
	Package    string
	Constraint string // the builds it is in, as a go:build line has it; empty is all
	Names      Names
	Imports    []Import // all that the text below mentions
	Wrappers   []Wrapper
	Functions  []Method
	Guards     []Guard
}

// Names are the identifiers of the file that all templates share.
type Names struct {
	Lock    string // import name of the runtime: "lock"
	Reflect string // import name of reflect
	Slices  string // import name of slices
	Strconv string // import name of strconv
	Time    string // import name of time
	Errors  string // import name of errors

	// NoError is a package-level nil error, for methods in which a parameter
	// hides nil; empty where no method needs it.
	NoError string
}

// Import is one import of the file. Name is empty where the package's own name,
// the last element of Path, is used.
type Import struct {
	Name, Path string
}

// Field is a parameter, result or type parameter: "id", "int64".
type Field struct {
	Name, Type string
}

// Wrapper is the type that guards a user's type.
type Wrapper struct {
	Declared    bool    // here; else in another file of the package, and here are methods only
	Pointer     bool    // the target is embedded as a pointer; an interface is not
	Target      string  // the guarded type: "SeckillService"
	Name        string  // "SeckillServiceWithLock"
	Constructor string  // "NewSeckillServiceWithLock"
	Alias       string  // what the target is embedded as: "seckillServiceInner"
	Locker      string  // field that holds the Locker: "locker"
	TypeParams  []Field // of the type, with constraints
	Inner       string  // the constructor's first parameter: "inner"
	LockerParam string  // its second: "locker"
	Mergers     []Merger
	Methods     []Method
}

// Merger is a field of a wrapper, in which requests wait that share a lock.
type Merger struct {
	Field           string // "buyMerge"
	Request, Result string // the types
	Policy          string // the variable
	Most            int    // requests that share a lock
}

// One is the method that takes one request of a method which takes many.
type One struct {
	Name    string // "BuyOne"
	Merger  string // "w.buyMerge"
	Most    int
	Request Field // in place of the last parameter
	Result  Field // in place of the first result
}

// Method is one guarded method, or a function that guards another.
type Method struct {
	Name       string
	Receiver   string   // ours: "w"; empty for a function
	TypeParams []Field  // of a function, with constraints
	TypeArgs   []string // of the receiver, or of the function that is called
	Origin     string   // "SeckillService.CreateVoucherOrder"
	Doc        string   // what the user says of it, lines as they are
	Deprecated string   // the paragraph of Doc, "Deprecated: use …"

	Params      []Field // the first is the context
	LockerParam string  // of a function: what comes after the context
	Variadic    bool    // the last parameter's Type is "...T"
	Results     []Field // all named; the last is the error
	Held        string  // local that has the hold
	Nil         string  // "nil", or Names.NoError where a parameter hides nil

	Skip         bool   // no error where another holds the lock
	Fallback     string // what is called there instead: "w.seckillServiceInner.Refuse"; else empty
	FallbackName string // "SeckillService.Refuse"

	Locker  string // "w.locker"
	Callee  string // "w.seckillServiceInner.CreateVoucherOrder"
	Forward string // a function that a parameter hides, and Callee reaches; else empty

	One *One // beside it; nil where there is none

	Locks []Lock // in source order
}

// Lock is one directive at work in one method.
type Lock struct {
	Directive string // `"seckill:voucher:<id>" ttl=60s exclusive reentrant`: its text, as the mark has it
	Policy    Policy
	Key       KeyFunc
	Tick      KeyFunc // of Policy.Once; without a name where there is none
	Promoted  bool    // declared with the wrapper of the embedded type
}

// Policy is what one directive asks for: a package-level lock.Policy.
type Policy struct {
	Var     string // "seckillServiceCreateVoucherOrderLock"
	Method  string // "SeckillService.CreateVoucherOrder"
	Pattern string // "seckill:voucher:<id>"
	Backend string // one of the Locker's named backends; empty is its own

	TTL, Wait, Max, Delay, AtLeast, Sticky Duration
	Try, Reentrant, NoRenew, Skip          bool
	Read, Write, Fair                      bool
	Once, Leader                           bool
	Permits, Weight, Queue                 int // 0 where nothing was asked for
}

// special reports whether a Locker may not be able to do what p asks for.
func (p Policy) special() bool {
	return p.Sticky.Unit > 0 || p.Read || p.Write || p.Fair || p.Permits > 0 || p.Once || p.Leader || p.Backend != ""
}

// Duration is a length of time in the unit that the user chose.
type Duration struct {
	Count int64
	Unit  time.Duration // time.Second; 0 where nothing was asked for
}

// Length is d as one number.
func (d Duration) Length() time.Duration { return time.Duration(d.Count) * d.Unit }

// KeyFunc is the typed function that makes a directive's key, or its tick, and the call of
// it in a method.
type KeyFunc struct {
	Name       string
	Pattern    string // "seckill:voucher:<id>"
	Tick       bool   // it makes a tick
	TypeParams []Field
	Params     []Field
	Err        string // name of the local error; empty where no value can be invalid
	Steps      []Step // what comes before the result, in order
	Each       *Each  // it returns one key for each element, or nil
	Parts      []Part // the key, parted into literals and values

	Var      string   // local of the method that takes the key
	Args     []string // what the method passes
	TypeArgs []string // explicit type arguments, where they can't be inferred
}

// Step is one statement or check of a key function; exactly one field is set.
type Step struct {
	NotNil *NotNil
	Let    *Let
	Encode *Encode
	Mixed  *Mixed
}

// NotNil ends a key function with ErrInvalid where Expr is nil.
type NotNil struct {
	Expr        string // "order.Customer"
	Placeholder string // "<order.Customer.ID>"
	Path        string // what the user calls it; empty where it is the placeholder itself
}

// Let names the result of a method that is needed more than once.
type Let struct {
	Name, Expr string
}

// Encode is a value that may be invalid: the runtime's Func encodes it.
type Encode struct {
	Name        string // local that takes the result
	Func        string // "KeyString", "KeyStringer", "KeyText", "TickTime"
	Placeholder string
	Expr        string
}

// Mixed makes text of a value whose type is a parameter, for types of several kinds.
type Mixed struct {
	Name  string // local that takes the text
	Value string // local for the value as reflect has it
	Expr  string
	Kinds []PartKind // at least two, sorted; Encoded is a string
}

// PartKind says how a [Part] becomes text.
type PartKind int

// The kinds of a Part.
const (
	Literal PartKind = iota // Text as it stands
	Encoded                 // Text is a local that Encode made
	Int                     // Text is a signed integer
	Uint                    // Text is an unsigned integer
	Bool                    // Text is a bool
)

// Part is one piece of a key.
type Part struct {
	Kind PartKind
	Text string // the literal, or an expression
	Type string // of the expression: "int64"; decides the conversion
}
