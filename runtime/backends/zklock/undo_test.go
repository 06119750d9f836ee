package zklock

import (
	"context"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// remembered returns how many places b knows.
func remembered(b *Backend) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.attempts) + len(b.named) + len(b.line)
}

// Who hears that a lease is lost does not release it: nothing is kept of it.
func TestEndedSessionLeavesNothing(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	c := newClient(t, newBackend(t, root, addr))
	l := c.take(c.attempt("k", long))
	require.NotZero(t, remembered(c.Backend))
	expire(t, c.Backend, addr)
	require.ErrorIs(t, l.Renew(t.Context(), long), lock.ErrLost)
	require.Zero(t, remembered(c.Backend))
}

// An undoing that comes before the node is asked for leaves none.
func TestUndoneBeforeTheNodeIsAskedFor(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	c := newClient(t, newBackend(t, root, addr))
	free(t, c.take(c.attempt("k", long)))
	a := c.attempt("k", long)
	s, err := c.enter(t.Context(), long)
	require.NoError(t, err)
	defer func() { <-s.gate }()
	p, _ := c.stand(s, a, root+"/k")
	require.NoError(t, c.Undo(t.Context(), a))
	require.ErrorIs(t, p.create(t.Context(), a.ID), errUndone)
	require.Empty(t, contenders(t, admin(t, addr), root+"/k"))
	require.True(t, c.isUndone(p))
}

// One that does not wait leaves the place that it uses if the one that waited there
// is undone meanwhile.
func TestUndoneUnderATry(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	other, c := newClient(t, newBackend(t, root, addr)), newClient(t, newBackend(t, root, addr))
	holder := other.take(other.attempt("k", long))
	a := c.waiting("k", long)
	c.held(a)
	s, err := c.enter(t.Context(), long)
	require.NoError(t, err)
	defer func() { <-s.gate }()
	try := c.attempt("k", long)
	p, _ := c.stand(s, try, root+"/k")
	require.NoError(t, c.Undo(t.Context(), a))
	conn := admin(t, addr)
	require.Len(t, contenders(t, conn, root+"/k"), 2, "the try is under way")
	var held *driver.HeldError
	require.ErrorAs(t, c.failed(t.Context(), p, try, &driver.HeldError{}), &held)
	require.Len(t, contenders(t, conn, root+"/k"), 1)
	require.Zero(t, remembered(c.Backend))
	free(t, holder)
}

// A Close that comes while the session proves itself alive ends it at the server.
func TestCloseInsideABeat(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	conn := admin(t, addr)
	b := New([]string{p.Addr()}, Options{Root: root})
	c := newClient(t, b)
	c.take(c.attempt("k", long))
	late := p.Late(faultproxy.Op("exists", "/"))
	receive(t, "the beat", late.Arrived())
	time.AfterFunc(5*time.Millisecond, func() { _ = late.Deliver(context.Background()) })
	require.NoError(t, b.Close())
	eventually(t, time.Second, "the node goes with its session", func() bool {
		return len(contenders(t, conn, root+"/k")) == 0
	})
}

// A lease that may not be renewed has its whole length, also where the session was
// cut off while it waited.
func TestFixedLeaseAfterAnOutage(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	holder, c, a := nextInLine(t, root, addr, p)
	a.NoRenewal = true
	p.Refuse()
	p.Reset()
	time.Sleep(long / 2)
	free(t, holder)
	p.Accept()
	begin := time.Now()
	l := c.take(a)
	require.Greater(t, l.Deadline().Left()+time.Since(begin), long)
	free(t, l)
}

// Servers whose longest timeout is lowered end sessions sooner than we were told
// when the leases were granted.
func TestTimeoutIsLowered(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	c := newClient(t, newBackend(t, root, addr))
	l := c.take(c.attempt("k", long))
	s := l.(*lease).place.session
	told := make(chan struct{}, 1)
	l.(driver.LossNotifier).NotifyLoss(func() { offer(told, struct{}{}) })
	s.granted(grant{session: s.id, timeout: long / 4, sent: driver.Now(), at: time.Now()})
	require.LessOrEqual(t, l.Deadline().Left(), long/4)
	receive(t, "the Locker's look", told)
	next := c.attempt("other", long)
	_, err := c.Acquire(t.Context(), next)
	require.ErrorIs(t, err, lock.ErrInvalid, "the servers' range is known now")
	free(t, l)
}

// request is one of the client's, as it is sent.
func request(op uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, 8<<32|1), op)
}

// No answer is read on another connection before the library has sent its watches,
// but for those that it waits for first.
func TestAnswersWaitForTheWatches(t *testing.T) {
	t.Parallel()
	const opExists = 3
	var l *link
	var theirs net.Conn
	connect := func() {
		var ours net.Conn
		ours, theirs = net.Pipe()
		l = &link{Conn: ours, known: true, rearm: newRearm()}
		t.Cleanup(func() { l.Close(); theirs.Close() })
	}
	connect()
	read := make(chan byte, 1)
	exchange := func(op uint32) {
		go func() {
			buf := make([]byte, 16)
			_, _ = theirs.Read(buf)
			_, _ = theirs.Write([]byte{byte(op)})
		}()
		_, err := l.Write(request(op))
		require.NoError(t, err)
		go func() {
			buf := make([]byte, 1)
			_, _ = l.Read(buf)
			read <- buf[0]
		}()
	}
	for _, op := range []uint32{opSetAuth, opPing} {
		begin := time.Now()
		exchange(op)
		require.EqualValues(t, op, receive(t, "an answer", read))
		require.Less(t, time.Since(begin), rearmLimit)
	}
	begin := time.Now()
	exchange(opExists) // nothing is sent behind it: there were no watches
	require.EqualValues(t, opExists, receive(t, "an answer", read))
	require.GreaterOrEqual(t, time.Since(begin), rearmLimit)
	begin = time.Now()
	exchange(opExists) // nor will there be any
	require.EqualValues(t, opExists, receive(t, "an answer", read))
	require.Less(t, time.Since(begin), rearmLimit)

	connect()
	exchange(opExists)
	select {
	case <-read:
		t.Fatal("an answer was read before the watches were sent")
	case <-time.After(rearmLimit / 5):
	}
	go func() { _, _ = theirs.Read(make([]byte, 16)) }()
	_, err := l.Write(request(opSetWatches))
	require.NoError(t, err)
	require.EqualValues(t, opExists, receive(t, "the answer", read))
	begin = time.Now()
	exchange(opExists)
	require.EqualValues(t, opExists, receive(t, "an answer", read))
	require.Less(t, time.Since(begin), rearmLimit)
}
