package client

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/go-zookeeper/zk"
)

// encoder appends what a request holds, as ZooKeeper's jute writes it.
type encoder []byte

func (e *encoder) int32(v int32) { *e = binary.BigEndian.AppendUint32(*e, uint32(v)) }
func (e *encoder) int64(v int64) { *e = binary.BigEndian.AppendUint64(*e, uint64(v)) }

func (e *encoder) bool(v bool) {
	if v {
		*e = append(*e, 1)
	} else {
		*e = append(*e, 0)
	}
}

func (e *encoder) bytes(v []byte) {
	e.int32(int32(len(v)))
	*e = append(*e, v...)
}

func (e *encoder) string(v string) { e.bytes([]byte(v)) }

func (e *encoder) strings(all []string) {
	e.int32(int32(len(all)))
	for _, v := range all {
		e.string(v)
	}
}

// frame returns body with its length before it.
func frame(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...)
}

// decoder reads what an answer holds. Behind the end of the answer it reads zeros,
// and notes that in short.
type decoder struct {
	rest  []byte
	short bool
}

var errShort = errors.New("an answer ends early")

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.rest) {
		d.short, d.rest = true, nil
		return nil
	}
	v := d.rest[:n]
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) int32() int32 {
	if v := d.take(4); v != nil {
		return int32(binary.BigEndian.Uint32(v))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if v := d.take(8); v != nil {
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

func (d *decoder) bytes() []byte {
	n := d.int32()
	if n < 0 { // null
		return nil
	}
	return d.take(int(n))
}

func (d *decoder) string() string { return string(d.bytes()) }

func (d *decoder) strings() (all []string) {
	for n := d.int32(); n > 0 && !d.short; n-- {
		all = append(all, d.string())
	}
	return all
}

func (d *decoder) stat() zk.Stat {
	return zk.Stat{
		Czxid: d.int64(), Mzxid: d.int64(), Ctime: d.int64(), Mtime: d.int64(),
		Version: d.int32(), Cversion: d.int32(), Aversion: d.int32(),
		EphemeralOwner: d.int64(), DataLength: d.int32(), NumChildren: d.int32(), Pzxid: d.int64(),
	}
}

const (
	maxHandshake = 1 << 10
	// maxAnswer bounds an answer: the names of a directory's children.
	maxAnswer = 64 << 20
)

// readFrame returns the next frame, of most bytes at most, without its length.
func readFrame(r *bufio.Reader, most uint32) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > most {
		return nil, fmt.Errorf("a frame of %d bytes, where %d are allowed", n, most)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return body, err
}
