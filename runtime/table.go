package lock

import (
	"hash/maphash"

	"github.com/lockgen/lockgen/runtime/driver"
)

// entryID names what a goroutine competes for inside one Locker. Those of one mutex compete
// for one. Those that read and those that write compete apart from each other, each permit
// of a semaphore is one, and so is each goroutine that waits for a fair lock.
type entryID struct {
	backend, key string
	hash         uint64 // of the key
	slot         uint64 // tells permits and goroutines apart
	kind         driver.Kind
}

func (l *Locker) entryID(backend, key string) entryID {
	return entryID{backend: backend, key: key, hash: maphash.String(l.seed, key)}
}

// table has the entries of a shard by their place, which is a hash. A map by entryID would
// hash all its parts in each step, which takes five times as long.
type table map[uint64]*entry

func (id *entryID) place() uint64 {
	const odd = 0x9e3779b97f4a7c15 // 2^64 by the golden ratio: the slots of a key lie apart
	return id.hash + (id.slot<<8|uint64(id.kind))*odd
}

func (t table) find(id *entryID) *entry {
	e := t[id.place()]
	for e != nil && e.id != *id {
		e = e.beside
	}
	return e
}

func (t table) add(e *entry) {
	place := e.id.place()
	e.beside = t[place]
	t[place] = e
}

func (t table) remove(e *entry) {
	place := e.id.place()
	if first := t[place]; first != e {
		for first.beside != e {
			first = first.beside
		}
		first.beside = e.beside
	} else if e.beside != nil {
		t[place] = e.beside
	} else {
		delete(t, place)
	}
}

// all yields the entries, in no order.
func (t table) all(yield func(*entry) bool) {
	for _, e := range t {
		for ; e != nil; e = e.beside {
			if !yield(e) {
				return
			}
		}
	}
}
