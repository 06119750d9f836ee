package main

import "github.com/lockgen/lockgen/example/seckill/order"

// The front desk and a worker talk in JSON, one object per line: first the
// assignment, then requests on the worker's stdin; replies on its stdout.

// assignment is what a worker is told before anything else. It goes through
// the pipe because an address may hold a password, which a command line shows
// to every user of the machine.
type assignment struct {
	Folder   string // the demo's temporary folder
	Database string // a file in it
	Voucher  int64
	Guarded  bool
	Backend  string
	Address  string
	Page     string // where to serve the page of its locks, HOST:PORT, or empty
}

type request struct {
	Op   string // one of the ops below
	ID   int64  // of the click
	User int64
	By   order.Payment `json:",omitempty"`
}

// The requests of the front desk.
const (
	opClick = "click" // place an order
	opPaid  = "paid"  // the transfer of User has arrived
	opBye   = "bye"   // end. Stdin that ends without it means that the front desk died
)

type reply struct {
	Op      string // one of the ops below
	ID      int64  // of the click
	Page    string `json:",omitempty"` // of opReady: the address of the page of its locks
	Outcome string `json:",omitempty"`
	Error   string `json:",omitempty"`
	Lost    bool   `json:",omitempty"` // the error says that the lock was lost
	Unsure  bool   `json:",omitempty"` // the error says that the lock's outcome is unknown
	Down    bool   `json:",omitempty"` // the error says that the engine is unavailable
	Fenced  bool   `json:",omitempty"` // the error says that the fence refused the write
}

// The replies of a worker.
const (
	opReady   = "ready"   // the assignment is understood, the engine is there
	opFatal   = "fatal"   // something is wrong: the worker ends
	opHolding = "holding" // click ID holds the stock's lock and waits for its transfer
	opAnswer  = "answer"  // click ID is over, with an Outcome
)

// How a click ends.
const (
	placed    = "placed"
	soldOut   = "sold out"
	repeated  = "ordered already"
	failed    = "failed"
	abandoned = "abandoned" // the worker died before it answered
)
