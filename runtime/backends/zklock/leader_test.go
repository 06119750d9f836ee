package zklock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// S64, S71: the sessions of the leader and of a candidate end. There is never more than one leader. When
// the leader resigns, the candidate leads, and nothing is left of either at the servers.
func TestSessionsOfLeaderAndCandidateEnd(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn := admin(t, addr)
	p := ttl(2 * second)
	p.Leader = true
	var backends [2]*Backend
	var terms [2]chan context.Context
	var ended [2]chan error
	resign := make(chan struct{})
	for i := range backends {
		backends[i] = New([]string{addr}, Options{Root: root})
		l := lockerOn(t, backends[i])
		terms[i], ended[i] = make(chan context.Context, 8), make(chan error, 1)
		go func() {
			ended[i] <- l.Lead(t.Context(), p, "leader", func(term context.Context) error {
				terms[i] <- term
				select {
				case <-resign:
				case <-term.Done():
					return context.Cause(term)
				}
				err := lock.Check(term)
				if err != nil { // the resignation was meant for the one that leads
					go func() { resign <- struct{}{} }()
				}
				return err
			})
		}()
		if i == 0 {
			eventually(t, soon, "the first leads", func() bool { return len(terms[0]) == 1 })
		}
	}
	first := <-terms[0]
	eventually(t, soon, "the second waits", func() bool { return inRecord(t, conn, root+"/leader", `"queue":`) })

	expire(t, backends[0], addr)
	expire(t, backends[1], addr)
	// The lease belongs to the record, not to a session: the leader continues, or its context has ended.
	begun := []context.Context{first}
	leaders := func() (n int) {
		begun = append(begun, drained(terms[0], terms[1])...)
		for _, term := range begun {
			if lock.Check(term) == nil {
				n++
			}
		}
		return n
	}
	for end := time.Now().Add(p.TTL); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		require.LessOrEqual(t, leaders(), 1)
	}
	eventually(t, soon, "one leads", func() bool { return leaders() == 1 })

	resign <- struct{}{}
	select {
	case err := <-ended[0]:
		require.NoError(t, err)
		receive(t, "the next leader", terms[1])
		resign <- struct{}{}
		require.NoError(t, receive(t, "the end of the campaign", ended[1]))
	case err := <-ended[1]: // the second candidate led by then
		require.NoError(t, err)
		receive(t, "the next leader", terms[0])
		resign <- struct{}{}
		require.NoError(t, receive(t, "the end of the campaign", ended[0]))
	case <-time.After(soon):
		t.Fatal("nobody resigns")
	}
	// If an answer was lost, the record itself stays for a while.
	eventually(t, soon, "nobody is left in the record", func() bool {
		return !inRecord(t, conn, root+"/leader", `"queue":`) && !inRecord(t, conn, root+"/leader", `"in":`)
	})
}

// inRecord reports whether a node in dir, the directory of a key, contains word.
func inRecord(t *testing.T, conn *zk.Conn, dir, word string) bool {
	t.Helper()
	catchUp(t, conn, dir)
	for _, name := range contenders(t, conn, dir) {
		if value, _, err := conn.Get(dir + "/" + name); err == nil && strings.Contains(string(value), word) {
			return true
		}
	}
	return false
}

// drained receives the terms that have begun.
func drained(all ...chan context.Context) (begun []context.Context) {
	for _, terms := range all {
		for len(terms) > 0 {
			begun = append(begun, <-terms)
		}
	}
	return begun
}
