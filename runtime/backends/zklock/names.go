package zklock

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

const (
	// maxName is the longest name of a lock's directory, in bytes as encoded. A
	// server cuts the connection, and with it every lock of the session, when a
	// request is over its jute.maxbuffer, of 1 MiB unless set.
	maxName = 64 << 10
	// probeName names no node. A session deletes it to have the leader commit something: see
	// session.prove.
	probeName = "%probe"
)

// directory returns the path of key's directory.
func (b *Backend) directory(key string) (string, error) {
	name := encodeName(key)
	if b.root == "/" && key == "zookeeper" { // the server's own
		name = "%7Aookeeper"
	}
	if name == "" || len(name) > maxName {
		return "", fmt.Errorf("%w: a key of %d bytes makes a ZooKeeper node's name of %d; zklock takes from 1 to %d",
			driver.ErrInvalid, len(key), len(name), maxName)
	}
	return path.Join(b.root, name), nil
}

// errHoldsData says that dir is not the directory of a lock.
func errHoldsData(dir string, n int32) error {
	return fmt.Errorf("%w: %s holds %d bytes of data, which a lock's directory does not; nothing was changed: "+
		"use another key or Options.Root, or empty that node if it is for locks", driver.ErrConflict, dir, n)
}

// encodeName makes one node's name of any key, and of no two keys the same, as the package
// doc says. A percent sign is encoded where it would be read as the beginning of what
// encodeName makes: "%2F" becomes "%252F", while "%3A" stays.
func encodeName(key string) string {
	if key == "." || key == ".." || key == probeName || key == notesName {
		return fmt.Sprintf("%%%02X", key[0]) + encodeName(key[1:])
	}
	var out strings.Builder
	for i := 0; i < len(key); {
		r, n := utf8.DecodeRuneInString(key[i:])
		switch {
		case r == '%' && isEscape(key[i+1:]), forbidden(r, n):
			for _, c := range []byte(key[i : i+n]) {
				fmt.Fprintf(&out, "%%%02X", c)
			}
		default:
			out.WriteString(key[i : i+n])
		}
		i += n
	}
	return out.String()
}

// forbidden reports whether a node's name may not hold r, which has n bytes. It
// is the server's rule, which counts UTF-16 units, together with the client's.
func forbidden(r rune, n int) bool {
	return r == '/' || r < 0x20 || 0x7f <= r && r <= 0x9f || 0xd800 <= r && r <= 0xf8ff || r >= 0xfff0 ||
		r == utf8.RuneError && n == 1
}

// isEscape reports whether a percent sign before rest reads as one of ours.
func isEscape(rest string) bool {
	if len(rest) < 2 || strings.ToUpper(rest[:2]) != rest[:2] {
		return false
	}
	c, err := strconv.ParseUint(rest[:2], 16, 8)
	return err == nil && (c == '%' || c == '.' || c == 'z' || c >= 0x80 || forbidden(rune(c), 1))
}

// protectedPrefix returns the beginning of the name of acquisition id's node, in the form that
// Curator and go-zookeeper write and look for after a lost reply. It follows from the id, so
// that the node can be found by it.
func protectedPrefix(id string) string {
	u := sha256.Sum256([]byte(id))
	u[6] = u[6]&0x0f | 0x80 // a UUID of version 8, RFC 9562
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("_c_%x-%x-%x-%x-%x-lock-", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// nodeType is a kind of node that competes in a lock's directory, which its name tells. All of
// them, also readers, come before ours if their number is lower.
type nodeType struct {
	infix  string
	client string      // who names nodes so
	side   driver.Kind // of a read-write lock
	lock   string      // record.Mutex, or the kind of lock if it does not exclude a mutex
}

var nodeTypes = []nodeType{
	{"lock-", "Curator", 0, record.Mutex}, // and go-zookeeper
	{"__WRIT__", "Curator", driver.Write, "Curator's read-write lock"},
	{"__READ__", "Curator", driver.Read, "Curator's read-write lock"},
	{"__lock__", "kazoo", 0, record.Mutex},
	{"__rlock__", "kazoo", driver.Read, "kazoo's read lock"},
	recordType,
}

// recordType is that of records, which are numbered with the others. Their version stands before
// the number: see recordPrefix.
var recordType = nodeType{infix: recordPrefix, client: record.Client}

// contender is a node that competes, and the number that the server gave it.
type contender struct {
	name string
	nodeType
	seq int32
}

// contendersIn returns those of the names that compete, in their order. Numbers go on from
// 2^31-1 to -2^31, so that their difference tells the order, not their values.
func contendersIn(names []string) (queue []contender) {
	for _, name := range names {
		if c := contenderOf(name); c.name != "" {
			queue = append(queue, c)
		}
	}
	slices.SortFunc(queue, func(a, b contender) int { return int(a.seq - b.seq) })
	return queue
}

// contenderOf returns the contender whose node has this name: the zero contender if it is none's.
func contenderOf(name string) contender {
	for _, m := range nodeTypes {
		at := strings.LastIndex(name, m.infix)
		if at < 0 {
			continue
		}
		digits := name[at+len(m.infix):]
		if m == recordType {
			_, digits, _ = strings.Cut(digits, "-")
		}
		if len(digits) < 10 { // the server writes 10 at least, and a minus after 2^31 nodes
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 32)
		if err == nil && digits[0] != '+' {
			return contender{name, m, int32(n)}
		}
	}
	return contender{}
}

// recordIn returns the path of the record in dir, "" if there is none, and the contenders before
// it, or all if there is none.
func recordIn(dir string, children []string) (at string, ahead []contender) {
	queue := contendersIn(children)
	i := slices.IndexFunc(queue, func(c contender) bool { return c.nodeType == recordType })
	if i < 0 {
		return "", queue
	}
	return path.Join(dir, queue[i].name), queue[:i]
}

// obstacle returns the kind of lock that is in the way of one of ours: children are the directory's,
// and ahead the contenders before ours. It is a kind of another client's that does not exclude ours,
// else record.Mutex if a mutex is ahead, else "".
func obstacle(children []string, ahead []contender) (lock string) {
	for _, name := range children {
		switch name {
		case "leases":
			return "Curator's semaphore"
		case "__lock__":
			return "kazoo's semaphore"
		}
	}
	for _, c := range ahead {
		if lock = c.lock; lock != record.Mutex {
			return lock
		}
	}
	return lock
}

var errTooManyElections = errors.New("this ZooKeeper ensemble has had more than 32767 elections")

// firstToken returns the lowest fencing token of the node that was created by
// czxid, which holds the epoch of the leader's election in its upper half.
func firstToken(czxid int64) (uint64, error) {
	if czxid <= 0 || czxid >= 1<<47 {
		return 0, fmt.Errorf("%w (transaction %#x); a fencing token of 63 bits has room for no more: "+
			"move the locks to a new ensemble, and have what they guard forget its tokens", errTooManyElections, czxid)
	}
	return uint64(czxid) << engine.TokenBits, nil
}
