package zklock

import (
	"context"
	"path"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

func TestNamesOfRecords(t *testing.T) {
	const name = recordPrefix + "00-"
	require.Equal(t, recordType, contenderOf(name+"0000000001").nodeType, "a record is not a mutex")
	for _, other := range []string{"x", recordPrefix, recordPrefix + "0000000001", protectedPrefix("id") + "0000000001"} {
		at, _ := recordIn("/d", []string{other})
		require.Empty(t, at, other)
	}
	mutex := protectedPrefix("id")
	at, _ := recordIn("/d", []string{"f-0000000001-0", mutex + "0000000001", name + "2147483649", name + "-2147483648", recordPrefix + "ff-2147483647"})
	require.Equal(t, "/d/"+recordPrefix+"ff-2147483647", at, "the sequence numbers have wrapped around")
	for is, children := range map[string][]string{
		"a mutex": {mutex + "0000000001", name + "0000000002"},
		"":        {mutex + "0000000003", name + "0000000002", "x"},
	} {
		_, ahead := recordIn("/d", children)
		require.Equal(t, is, obstacle(children, ahead))
	}
	_, ahead := recordIn("/d", []string{mutex + "0000000001"})
	require.Equal(t, "a mutex", obstacle(nil, ahead))
}

// engineOf returns the store for the records of a Backend, and a session for them.
func engineOf(t *testing.T, b *Backend) (*store, *session) {
	rs := &store{b}
	s, err := b.session(t.Context(), recordsTTL)
	require.NoError(t, err)
	t.Cleanup(s.Drop)
	return rs, s
}

const (
	valueA = `aaaaaaaaaaaaaaaa {"token":"@1"}`
	valueB = `bbbbbbbbbbbbbbbb {}`
)

func swap(t *testing.T, rs *store, w record.Write) record.Answer {
	t.Helper()
	w.Key = "k"
	a, err := rs.Swap(t.Context(), w)
	require.NoError(t, err)
	return a
}

// A write names the record that it has seen. A later record with the same content is a different record.
func TestRecordsAreNotRevived(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	rs, s := engineOf(t, newBackend(t, root, addr))
	other, _ := engineOf(t, newBackend(t, root, addr))
	a := swap(t, rs, record.Write{Value: valueA})
	require.True(t, a.Done)
	first := a.Place.(recordPlace)
	require.Equal(t, record.ResolveRevision(valueA, uint64(first.czxid)), a.Value)
	require.Equal(t, a.Value, swap(t, other, record.Write{Look: true}).Value)
	node, err := s.do(t.Context(), client.Exists(first.path))
	require.NoError(t, err)
	require.Equal(t, node.Czxid, first.czxid)

	require.True(t, swap(t, other, record.Write{Seen: record.Version(valueA)}).Done)
	require.True(t, swap(t, other, record.Write{}).Done, "there is nothing to delete")
	again := swap(t, other, record.Write{Value: valueA})
	require.True(t, again.Done)
	second := again.Place.(recordPlace)
	require.NotEqual(t, first.path, second.path)
	a = swap(t, rs, record.Write{Seen: record.Version(valueA), Place: first, Value: valueB})
	require.False(t, a.Done, "the place that the write has seen is gone")
	require.Equal(t, record.ResolveRevision(valueA, uint64(second.czxid)), a.Value)
	require.True(t, swap(t, rs, record.Write{Seen: record.Version(valueA), Place: a.Place, Value: valueB}).Done)
	require.False(t, swap(t, other, record.Write{Seen: record.Version(valueA), Place: second}).Done)
	require.True(t, swap(t, other, record.Write{Seen: record.Version(valueB)}).Done)
}

// Two processes never have a record each, and no node is left of a creation that had no answer.
func TestOneRecord(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn := admin(t, addr)
	rs, s := engineOf(t, newBackend(t, root, addr))
	create := func(value string) (a record.Answer) {
		require.NoError(t, rs.create(t.Context(), s, root+"/k", record.Write{Key: "k", Value: value, Takes: true}, &a))
		return a
	}
	first := create(valueA)
	require.True(t, first.Done)
	a := create(valueB)
	require.False(t, a.Done, "another record is before it")
	require.Equal(t, record.Version(valueA), record.Version(a.Value))
	require.Len(t, contenders(t, conn, root+"/k"), 1)

	at := root + "/k/" + recordPrefix + record.Version(valueB) + "-"
	_, err := conn.Create(at, []byte(valueB), zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	a = swap(t, rs, record.Write{Value: valueB, Takes: true}) // the write that created that node
	require.False(t, a.Done)
	require.Equal(t, record.Version(valueA), record.Version(a.Value))
	require.Len(t, contenders(t, conn, root+"/k"), 1)
}

// If a mutex and a lock of another kind are created at once, the lower node stays.
func TestRecordBehindMutex(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn := admin(t, addr)
	b := newBackend(t, root, addr)
	rs, s := engineOf(t, b)
	c := newClient(t, b)
	l := c.take(c.attempt("k", long))
	w := record.Write{Key: "k", Value: valueA, Takes: true}
	var a record.Answer
	require.ErrorIs(t, rs.create(t.Context(), s, root+"/k", w, &a), lock.ErrConflict)
	require.False(t, a.MayHaveRun)
	require.Len(t, contenders(t, conn, root+"/k"), 1, "only the mutex's node must be left")
	free(t, l)

	require.True(t, swap(t, rs, w).Done)
	_, err := c.Acquire(t.Context(), c.attempt("k", long))
	require.ErrorIs(t, err, lock.ErrConflict)
	require.Len(t, contenders(t, conn, root+"/k"), 1, "only the record must be left")

	at := path.Join(root, "k", protectedPrefix("other"))
	later, err := conn.Create(at, nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.Equal(t, a.Value, "")
	require.True(t, swap(t, rs, record.Write{Seen: record.Version(valueA), Value: valueB, Takes: true}).Done)
	require.Equal(t, record.Version(valueB), record.Version(swap(t, rs, record.Write{Look: true, Takes: true}).Value))
	require.NoError(t, conn.Delete(later, -1))
}

// A write whose answer is lost is applied once.
func TestLostReplyToRecord(t *testing.T) {
	t.Parallel()
	addr, root, p, c := proxied(t)
	conn := admin(t, addr)
	for _, op := range []string{"create", "setData"} {
		a := c.waiting("k", long)
		a.Mode.Kind = driver.Write
		if op == "setData" {
			reader := c.attempt("k", long)
			reader.Mode.Kind = driver.Read
			defer free(t, c.take(reader))
			a.Mode.Kind = driver.Read
		}
		lost := p.Swallow(1, faultproxy.Op(op))
		l := c.take(a)
		receive(t, "the lost answer", lost)
		require.True(t, a.MayHaveRun)
		require.Len(t, contenders(t, conn, root+"/k"), 1)
		free(t, l)
		p.Swallow(1, faultproxy.Op("setData"))
		require.NoError(t, c.Undo(context.WithoutCancel(t.Context()), a))
	}
}
