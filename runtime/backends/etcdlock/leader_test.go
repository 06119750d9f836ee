package etcdlock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// S69: the revision from which a candidate watches is compacted away during its campaign, while it is
// connected and while it is cut off. It leads as soon as the leader resigns.
func TestCompactionInACampaign(t *testing.T) {
	t.Parallel()
	server := testserver.StartEtcd(t)
	c, proxy := admin(t, server.Addr()), faultproxy.NewStream(t, server.Addr())
	compact := func() {
		resp, err := c.Put(t.Context(), "x", "")
		require.NoError(t, err)
		_, err = c.Compact(t.Context(), resp.Header.Revision)
		require.NoError(t, err)
	}
	leader, candidate := newLocker(t, server.Addr()), newLocker(t, proxy.Addr())
	p := &lock.Policy{Leader: true, TTL: 5 * time.Second}
	var highest uint64
	for _, cutOff := range []bool{false, true} {
		ctx, held := acquire(t, leader, p, "leader")
		require.Greater(t, token(t, ctx), highest)
		terms, ended := make(chan context.Context, 1), make(chan error, 1)
		resign := make(chan struct{})
		go func() {
			ended <- candidate.Lead(t.Context(), p, "leader", func(term context.Context) error {
				terms <- term
				<-resign
				return nil
			})
		}()
		eventually(t, "the candidate waits", func() bool { return inRecord(t, c, "leader", `"queue":`) })
		for range 20 {
			compact()
			time.Sleep(time.Millisecond)
		}
		if cutOff {
			proxy.Refuse()
			proxy.Reset()
			compact()
			compact()
			proxy.Accept()
		}
		require.Empty(t, terms, "the candidate leads while another leads")
		require.NoError(t, lock.Check(ctx))
		begin := time.Now()
		require.NoError(t, finish(held))
		term := receive(t, "the leadership", terms)
		limit := 500 * time.Millisecond // far below the poll of a second, and the lease
		if cutOff {
			limit += 2 * time.Second // the client needs time to connect again
		}
		require.Less(t, time.Since(begin), limit+meter.Since(begin))
		require.NoError(t, lock.Check(term))
		highest = token(t, term)
		close(resign)
		require.NoError(t, receive(t, "the end of the campaign", ended))
		// If an answer was lost, the record itself stays for a while.
		eventually(t, "the record is empty", func() bool { return !inRecord(t, c, "leader", `"queue":`) && !inRecord(t, c, "leader", `"in":`) })
	}
}

// The record of a leadership is deleted while there are a leader and a candidate. After that there is
// one leader, and a record with its token. (etcd's Election lets a candidate lead although its key
// is gone.)
func TestNoLeaderWithoutARecord(t *testing.T) {
	t.Parallel()
	addr := testserver.Etcd(t)
	c, key, p := admin(t, addr), newKey(t), &lock.Policy{Leader: true, TTL: 3 * time.Second}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []*lock.Locker
	terms, ended := make(chan context.Context, 8), make(chan error, 2)
	campaign := func() {
		l := newLocker(t, addr)
		all = append(all, l)
		go func() {
			ended <- l.Lead(ctx, p, key, func(term context.Context) error {
				terms <- term
				<-term.Done()
				return context.Cause(term)
			})
		}()
	}
	campaign()
	old := receive(t, "the first leader", terms)
	before := token(t, old)
	campaign()
	eventually(t, "the candidate waits", func() bool { return inRecord(t, c, key, `"queue":`) })

	_, err := c.Delete(t.Context(), recordOf(key))
	require.NoError(t, err)
	receive(t, "the loss", old.Done())
	require.ErrorIs(t, context.Cause(old), lock.ErrLost)
	term := receive(t, "the next leader", terms)
	time.Sleep(p.TTL) // without a renewal another would lead by then
	require.Empty(t, terms, "two lead at the same time")
	require.NoError(t, lock.Check(term))
	who, err := all[0].Leader(t.Context(), p, key)
	require.NoError(t, err)
	require.NotNil(t, who, "there is a leader, but the engine names none")
	require.Equal(t, token(t, term), who.Token)
	require.Greater(t, who.Token, before)

	cancel()
	for range all {
		require.ErrorIs(t, receive(t, "the end of a campaign", ended), context.Canceled)
	}
	eventually(t, "nobody is left in the record", func() bool { return !inRecord(t, c, key, `"queue":`) && !inRecord(t, c, key, `"in":`) })
}

// inRecord reports whether the record of key contains word.
func inRecord(t *testing.T, c *clientv3.Client, key, word string) bool {
	t.Helper()
	resp, err := c.Get(t.Context(), recordOf(key))
	require.NoError(t, err)
	return len(resp.Kvs) > 0 && strings.Contains(string(resp.Kvs[0].Value), word)
}
