package zklock

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// maxName is the longest name of a lock's directory, in bytes as encoded. A
	// server cuts the connection, and with it every lock of the session, when a
	// request is over its jute.maxbuffer, of 1 MiB unless set.
	maxName = 64 << 10
	// probeName names no node: what is not there is deleted to have the leader
	// commit something. See session.beat.
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

// encodeName makes one node's name of any key, and of no two keys the same.
// What ZooKeeper allows in a name stays as it is. Each byte of what it does not
// (a slash, control characters, what is outside Unicode's basic plane or in its
// private or special areas, what is no UTF-8, "." and ".." alone) becomes a
// percent sign and two capital hex digits. So does a percent sign that would
// otherwise be read as the beginning of such a three: "%2F" becomes "%252F",
// while "%3A", which encodeName never makes, stays.
func encodeName(key string) string {
	if key == "." || key == ".." || key == probeName || key == notesName {
		return fmt.Sprintf("%%%02X", key[0]) + encodeName(key[1:])
	}
	var out strings.Builder
	for i := 0; i < len(key); {
		r, n := utf8.DecodeRuneInString(key[i:])
		switch {
		case r == '%' && isEscape(key[i+1:]), refused(r, n):
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

// refused reports whether a node's name may not hold r, which has n bytes. It
// is the server's rule, which counts UTF-16 units, together with the client's.
func refused(r rune, n int) bool {
	return r == '/' || r < 0x20 || 0x7f <= r && r <= 0x9f || 0xd800 <= r && r <= 0xf8ff || r >= 0xfff0 ||
		r == utf8.RuneError && n == 1
}

// isEscape reports whether a percent sign before rest reads as one of ours.
func isEscape(rest string) bool {
	if len(rest) < 2 || strings.ToUpper(rest[:2]) != rest[:2] {
		return false
	}
	c, err := strconv.ParseUint(rest[:2], 16, 8)
	return err == nil && (c == '%' || c == '.' || c == 'z' || c >= 0x80 || refused(rune(c), 1))
}

// protection begins the name of the node of acquisition id, in the form that
// Curator and go-zookeeper write and look for after a lost reply. It is made of
// the id, so that whoever knows that finds the node.
func protection(id string) string {
	u := sha256.Sum256([]byte(id))
	u[6] = u[6]&0x0f | 0x80 // a UUID of version 8, RFC 9562
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("_c_%x-%x-%x-%x-%x-lock-", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// mark is what precedes the sequence number in the names of those who compete for one
// directory. Readers too go before us.
type mark struct {
	text   string
	client string      // who names nodes so
	side   driver.Kind // of a read-write lock
	lock   string      // that does not exclude a mutex, "" if it does
}

var marks = []mark{
	{"lock-", "Curator", 0, ""}, // and go-zookeeper
	{"__WRIT__", "Curator", driver.Write, "Curator's read-write lock"},
	{"__READ__", "Curator", driver.Read, "Curator's read-write lock"},
	{"__lock__", "kazoo", 0, ""},
	{"__rlock__", "kazoo", driver.Read, "kazoo's read lock"},
}

// parse returns the mark of the node with this name, and the number that the server gave
// it: nil for one that is no contender.
func parse(name string) (m *mark, seq int32) {
	for i := range marks {
		at := strings.LastIndex(name, marks[i].text)
		if at < 0 {
			continue
		}
		digits := name[at+len(marks[i].text):]
		if len(digits) < 10 { // the server writes 10 at least, and a minus after 2^31 nodes
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 32)
		if err == nil && digits[0] != '+' {
			return &marks[i], int32(n)
		}
	}
	return nil, 0
}

// foreign says of which lock that is no mutex the children of a directory are, "" if of none,
// and whether there is a mutex among them. Numbered nodes count if earlier says so. Such a
// lock and a mutex do not exclude each other, nor do a record of ours and it.
func foreign(children []string, earlier func(seq int32) bool) (lock string, mutex bool) {
	for _, name := range children {
		switch m, seq := parse(name); {
		case name == "leases":
			return "Curator's semaphore", mutex
		case name == "__lock__":
			return "kazoo's semaphore", mutex
		case m != nil && earlier(seq):
			lock, mutex = cmp.Or(lock, m.lock), mutex || m.lock == ""
		}
	}
	return lock, mutex
}

// before reports whether sequence number a was given out before b. Numbers go
// on from 2^31-1 to -2^31, so that only their distance tells.
func before(a, b int32) bool { return a-b < 0 }

// predecessor returns the contender next before seq among children, "" if there is
// none, how many are before seq, and whether the node of the name own is there.
func predecessor(children []string, seq int32, own string) (next string, ahead int, there bool) {
	var last int32
	for _, name := range children {
		there = there || name == own
		m, n := parse(name)
		if m == nil || !before(n, seq) {
			continue
		}
		ahead++
		if next == "" || before(last, n) {
			next, last = name, n
		}
	}
	return next, ahead, there
}

// tokensPerNode is how many fencing tokens each node's czxid stands for.
const tokensPerNode = 1 << 16

var errTooManyElections = errors.New("this ZooKeeper ensemble has had more than 32767 elections")

// firstToken returns the lowest fencing token of the node that was created by
// czxid, which holds the epoch of the leader's election in its upper half.
func firstToken(czxid int64) (uint64, error) {
	if czxid <= 0 || czxid >= 1<<47 {
		return 0, fmt.Errorf("%w (transaction %#x); a fencing token of 63 bits has room for no more: "+
			"move the locks to a new ensemble, and have what they guard forget its tokens", errTooManyElections, czxid)
	}
	return uint64(czxid) * tokensPerNode, nil
}
