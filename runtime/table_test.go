package lock

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Entries whose hashes are the same are told apart by their ids.
func TestEntriesAtOnePlace(t *testing.T) {
	ids := []entryID{{key: "a"}, {key: "b"}, {backend: "east", key: "a"}, {backend: "west", key: "a"}}
	for gone := range ids {
		all := table{}
		for _, id := range ids {
			require.Nil(t, all.find(&id))
			all.add(&entry{id: id})
		}
		require.Len(t, all, 1)
		all.remove(all.find(&ids[gone]))
		for i, id := range ids {
			if found := all.find(&id); i == gone {
				require.Nil(t, found)
			} else {
				require.Equal(t, id, found.id)
			}
		}
		n := 0
		for e := range all.all {
			n++
			all.remove(e)
		}
		require.Equal(t, len(ids)-1, n)
		require.Empty(t, all)
	}
}

// The permits of a semaphore, and the kinds of lock of one key, lie apart.
func TestPlacesOfAKey(t *testing.T) {
	places := map[uint64]bool{}
	for _, kind := range []driver.Kind{0, driver.Read, driver.Write, driver.Permits} {
		for slot := range uint64(1000) {
			id := entryID{key: "a", hash: 1 << 63, slot: slot, kind: kind}
			places[id.place()] = true
		}
	}
	require.Len(t, places, 4000)
}

func TestNewEntryIsSmall(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(newEntry{}), uintptr(512))
}
