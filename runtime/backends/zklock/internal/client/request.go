package client

import (
	"fmt"

	"github.com/go-zookeeper/zk"
)

// The operations, as org.apache.zookeeper.ZooDefs.OpCode numbers them.
const (
	opDelete          = 2
	opExists          = 3
	opGetData         = 4
	opGetChildren2    = 12
	opCreate2         = 15
	opCreateContainer = 19
	opAuth            = 100
	opSetWatches      = 101
	opClose           = -11
)

// Request is one request to the ensemble. It may be sent any number of times.
type Request struct {
	Write bool // a majority of the servers has to agree on the answer
	op    int32
	body  encoder
	watch string // the node that the server is asked to watch
}

// Answer is what a server answered.
type Answer struct {
	// Err is nil, or an error of package zk that the server answered, or wraps
	// ErrNoAnswer.
	Err      error
	Link     uint64   // the number of the connection that brought the answer
	Path     string   // of a node that was created, with its sequence number
	Czxid    int64    // the transaction that created the node
	Data     int32    // how many bytes of data the node or directory holds
	Children []string // names
}

// Create makes a node of the mode zk.FlagEphemeralSequential or zk.FlagContainer.
func Create(path string, data []byte, acl []zk.ACL, mode int32) Request {
	r := Request{op: opCreate2, Write: true}
	if mode == zk.FlagContainer {
		r.op = opCreateContainer
	}
	r.body.string(path)
	r.body.bytes(data)
	r.body.int32(int32(len(acl)))
	for _, one := range acl {
		r.body.int32(one.Perms)
		r.body.string(one.Scheme)
		r.body.string(one.ID)
	}
	r.body.int32(mode)
	return r
}

// Delete deletes a node, of whatever version.
func Delete(path string) Request {
	r := Request{op: opDelete, Write: true}
	r.body.string(path)
	r.body.int32(-1)
	return r
}

// Exists asks whether a node is there.
func Exists(path string) Request { return read(opExists, path, 0) }

// Children asks for the names of a node's children.
func Children(path string) Request { return read(opGetChildren2, path, 0) }

// Watch asks to be told once when a node changes or goes: see Config.Event. It fails
// with zk.ErrNoNode, and watches nothing, if the node is not there.
func Watch(path string) Request {
	r := read(opGetData, path, 1)
	r.watch = path
	return r
}

func read(op int32, path string, watch byte) Request {
	r := Request{op: op}
	r.body.string(path)
	r.body = append(r.body, watch)
	return r
}

// decode reads the answer to r behind its header.
func (r Request) decode(d *decoder) (a Answer) {
	switch r.op {
	case opCreate2, opCreateContainer:
		a.Path = string(d.bytes())
	case opGetData:
		d.bytes()
	case opGetChildren2:
		for n := d.int32(); n > 0 && !d.short; n-- {
			a.Children = append(a.Children, string(d.bytes()))
		}
	case opExists:
	default:
		return a
	}
	a.Czxid, a.Data = d.stat()
	return a
}

var errorsByCode = map[int32]error{
	0:    nil,
	-101: zk.ErrNoNode,
	-102: zk.ErrNoAuth,
	-108: zk.ErrNoChildrenForEphemerals,
	-110: zk.ErrNodeExists,
	-111: zk.ErrNotEmpty,
	-114: zk.ErrInvalidACL,
	-115: zk.ErrAuthFailed,
	// Of a session that ends, or has gone elsewhere: nothing is known.
	-112: fmt.Errorf("%w: %w", ErrNoAnswer, zk.ErrSessionExpired),
	-118: fmt.Errorf("%w: %w", ErrNoAnswer, zk.ErrSessionMoved),
}

// errorOf returns the error that a server means by code.
func errorOf(code int32) error {
	if err, known := errorsByCode[code]; known {
		return err
	}
	return fmt.Errorf("zookeeper: error %d", code)
}
