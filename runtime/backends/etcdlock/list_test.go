package etcdlock

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Data of others does not keep the locks after it out of a list. Here it is a lock whose key is too
// long for us, and a value that begins like a record.
func TestListBesideStrangeKeys(t *testing.T) {
	t.Parallel()
	b, c, key := newBackend(t, shared(t)), admin(t, shared(t)), newKey(t)
	granted, err := c.Grant(t.Context(), 60)
	require.NoError(t, err)
	_, err = c.Put(t.Context(), key+"/a"+strings.Repeat("x", maxKey)+"/"+strconv.FormatInt(int64(granted.ID), 16), "", clientv3.WithLease(granted.ID))
	require.NoError(t, err)
	_, err = c.Put(t.Context(), recordOf(key+"/b"), "0123456789abcdef {")
	require.NoError(t, err)
	lease := taken(t, b, attempt(key+"/c", "A:1"))
	var listed []string
	for info, err := range b.Locks(t.Context(), key+"*") {
		require.NoError(t, err)
		listed = append(listed, info.Key)
	}
	require.Equal(t, []string{key + "/c"}, listed)
	released(t, lease)
}

// A refusal names the holder of the lock, not a waiter.
func TestRefusalNamesTheHolder(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	holder := func(n int) string { return "00000000-0000-4000-8000-00000000000" + strconv.Itoa(n) + ":1" }
	taken(t, b, attempt(key, holder(1)))
	refused := func(a *driver.Acquisition) string {
		_, err := b.Acquire(t.Context(), a)
		var held *driver.HeldError
		require.ErrorAs(t, err, &held)
		return held.Holder
	}
	require.Equal(t, holder(1), refused(attempt(key, holder(2))))
	for range 2 {
		require.Equal(t, holder(1), refused(attempt(key, holder(3))))
		require.Equal(t, holder(1), refused(asTry(attempt(key, holder(4)))))
	}
	for n := 5; n < 9; n++ {
		require.Contains(t, []string{"", holder(1)}, refused(attempt(key, holder(n))), "the holder may be unknown, but not wrong")
	}
}
