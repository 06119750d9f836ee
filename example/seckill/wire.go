package main

import "github.com/lockgen/lockgen/example/seckill/order"

// The front desk and a worker exchange JSON, one object per line. The front desk writes the
// assignment and then requests to the worker's stdin; the worker writes replies to its stdout.

// assignment is the first message to a worker. It goes through the pipe because an address may
// contain a password, and a command line shows it to every user of the machine.
type assignment struct {
	Folder   string // the temporary folder of the demo
	Database string // the path of a file in it
	Voucher  int64
	Guarded  bool
	Backend  string
	Address  string
	Page     string // where to serve the page of the worker's locks, HOST:PORT, or empty
}

type request struct {
	Op   string // one of the ops below
	ID   int64  // the number of the click
	User int64
	By   order.Payment `json:",omitempty"`
}

// The requests of the front desk.
const (
	opClick = "click" // place an order
	opPaid  = "paid"  // the transfer of User has arrived
	opBye   = "bye"   // end. If stdin ends without it, the front desk has died
)

type reply struct {
	Op      string // one of the ops below
	ID      int64  // the number of the click
	Page    string `json:",omitempty"` // for opReady: the address of the page of its locks
	Outcome string `json:",omitempty"`
	Error   string `json:",omitempty"`
	Lost    bool   `json:",omitempty"` // the error says that the lock was lost
	Unsure  bool   `json:",omitempty"` // the error says that the lock's outcome is unknown
	Down    bool   `json:",omitempty"` // the error says that the engine is unavailable
	Fenced  bool   `json:",omitempty"` // the error says that the fence refused the write
}

// The replies of a worker.
const (
	opReady   = "ready"   // the assignment is understood, and the engine answers
	opFatal   = "fatal"   // something is wrong, and the worker ends
	opHolding = "holding" // click ID holds the stock's lock and waits for its transfer
	opAnswer  = "answer"  // click ID has ended with an Outcome
)

// The outcomes of a click.
const (
	placed    = "placed"
	soldOut   = "sold out"
	repeated  = "ordered already"
	failed    = "failed"
	abandoned = "abandoned" // the worker died before it answered
)
