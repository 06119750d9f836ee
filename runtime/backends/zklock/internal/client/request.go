package client

import (
	"bytes"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// The operations, as org.apache.zookeeper.ZooDefs.OpCode numbers them.
const (
	opCreate          = 1
	opDelete          = 2
	opExists          = 3
	opGetData         = 4
	opSetData         = 5
	opSync            = 9
	opGetChildren2    = 12
	opMulti           = 14
	opCreate2         = 15
	opCreateContainer = 19
	opAuth            = 100
	opClose           = -11
	opError           = -1 // in the place of an operation in the answer to opMulti
)

// Request is one request to the ensemble. It may be sent any number of times.
type Request struct {
	Write bool // a majority of the servers has to agree on the answer
	op    int32
	body  encoder
	watch *Watch // of the node that the server is asked to watch
}

// Answer is what a server answered.
type Answer struct {
	// Err is nil, or an error of package zk that the server answered, or wraps
	// ErrNoAnswer.
	Err      error
	Path     string   // of a node that was created, with its sequence number
	Czxid    int64    // the transaction that created the node
	Ctime    int64    // when it was created, in ms since 1970 by the servers' clock
	Version  int32    // how often the data of the node or directory was replaced
	Data     int32    // how many bytes of data the node or directory holds
	Value    []byte   // the data of a node, if that was asked for
	Children []string // names
}

// AnyVersion is that of whatever node is there.
const AnyVersion = -1

// Create makes a node of the mode zk.FlagEphemeralSequential or zk.FlagContainer.
func Create(path string, data []byte, acl []zk.ACL, mode int32) Request {
	r := Request{op: opCreate2, Write: true}
	if mode == zk.FlagContainer {
		r.op = opCreateContainer
	}
	r.body.create(path, data, acl, mode)
	return r
}

func (e *encoder) create(path string, data []byte, acl []zk.ACL, mode int32) {
	e.string(path)
	e.bytes(data)
	e.int32(int32(len(acl)))
	for _, one := range acl {
		e.int32(one.Perms)
		e.string(one.Scheme)
		e.string(one.ID)
	}
	e.int32(mode)
}

// CreateBeside makes the node at path, of the mode zk.FlagSequence, if dir has this
// version, which the request counts up: of several such requests one is done. It fails with
// zk.ErrBadVersion.
func CreateBeside(dir string, version int32, path string, data []byte, acl []zk.ACL) Request {
	r := Request{op: opMulti, Write: true}
	r.body.operation(opSetData, false)
	r.body.string(dir)
	r.body.bytes(nil)
	r.body.int32(version)
	r.body.operation(opCreate, false)
	r.body.create(path, data, acl, zk.FlagSequence)
	r.body.operation(opError, true)
	return r
}

// operation begins one of those that a request of opMulti holds, or ends them.
func (e *encoder) operation(op int32, last bool) {
	e.int32(op)
	if last {
		*e = append(*e, 1)
	} else {
		*e = append(*e, 0)
	}
	e.int32(-1)
}

// Delete deletes a node of this version. It fails with zk.ErrBadVersion.
func Delete(path string, version int32) Request {
	r := Request{op: opDelete, Write: true}
	r.body.string(path)
	r.body.int32(version)
	return r
}

// Set replaces the data of a node of this version. It fails with zk.ErrBadVersion.
func Set(path string, data []byte, version int32) Request {
	r := Request{op: opSetData, Write: true}
	r.body.string(path)
	r.body.bytes(data)
	r.body.int32(version)
	return r
}

// Sync has the server catch up with what the leader has taken until then.
func Sync(path string) Request {
	r := Request{op: opSync}
	r.body.string(path)
	return r
}

// Get asks for a node's data.
func Get(path string) Request { return read(opGetData, path, 0) }

// Exists asks whether a node is there.
func Exists(path string) Request { return read(opExists, path, 0) }

// Children asks for the names of a node's children.
func Children(path string) Request { return read(opGetChildren2, path, 0) }

// Observe is Get of w's node, and has w told. It fails with zk.ErrNoNode, and w is not
// told, if the node is not there.
func Observe(w *Watch) Request {
	r := read(opGetData, w.Path, 1)
	r.watch = w
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
		a.Value = bytes.Clone(d.bytes())
	case opGetChildren2:
		for n := d.int32(); n > 0 && !d.short; n-- {
			a.Children = append(a.Children, string(d.bytes()))
		}
	case opExists, opSetData:
	case opMulti:
		return decodeBeside(d)
	default:
		return a
	}
	st := d.stat()
	a.Czxid, a.Ctime, a.Version, a.Data = st.czxid, st.ctime, st.version, st.data
	return a
}

// inconsistent is the error of an operation that was not done because another was refused.
const inconsistent = -2

// decodeBeside reads the answer to CreateBeside.
func decodeBeside(d *decoder) (a Answer) {
	for !d.short {
		op, last := d.int32(), d.take(1)[0] != 0
		d.int32()
		switch {
		case last:
			return a
		case op == opSetData:
			a.Czxid = d.stat().mzxid // one transaction has done both
		case op == opCreate:
			a.Path = string(d.bytes())
		case op == opError:
			if code := d.int32(); code != 0 && code != inconsistent {
				a.Err = errorOf(code)
			}
		default:
			d.short = true
		}
	}
	return a
}

var errorsByCode = map[int32]error{
	0:    nil,
	-101: zk.ErrNoNode,
	-102: zk.ErrNoAuth,
	-103: zk.ErrBadVersion,
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
