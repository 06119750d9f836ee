package interop

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/etcdlock"
)

func newEtcd(t *testing.T, addr string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// syncDelay is how long etcd may take until it sends events to a new watch at once. The watches
// of the established clients begin at a past revision, and etcd serves such watches ten times a second.
const syncDelay = 110 * time.Millisecond

// line is the queue of a lock in etcd, as the server sees it.
type line struct {
	client *clientv3.Client
	wait   wait
}

// contended reports whether the lock has a holder and at least one waiter.
func (l *line) contended(ctx context.Context, name string) (bool, error) {
	key, err := SectionRunKey(name)
	if err != nil {
		return false, err
	}
	found, err := l.client.Get(ctx, key+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return false, err
	}
	return found.Count > 1, nil
}

func (l *line) waits(ctx context.Context, name string) (bool, error) {
	in, err := l.contended(ctx, name)
	if in {
		l.wait.begin()
	}
	return in && l.wait.lasted(syncDelay), err
}

func TestEtcdMutex(t *testing.T) {
	client := newEtcd(t, testserver.Etcd(t))
	session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
	require.NoError(t, err)
	defer session.Close()
	p := &pair{
		peer:     "etcd concurrency.Mutex",
		theirs:   &etcdMutex{line: line{client: client}, session: session},
		ours:     newLockgen(t, etcdlock.New(client)),
		sections: 1000,
	}
	p.test(t)
}

type etcdMutex struct {
	line
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func (m *etcdMutex) on(name string) (*concurrency.Mutex, error) {
	key, err := SectionRunKey(name)
	return concurrency.NewMutex(m.session, key), err
}

func (m *etcdMutex) lock(ctx context.Context, name string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if m.mutex, err = m.on(name); err != nil {
		return err
	}
	return m.mutex.Lock(ctx)
}

func (m *etcdMutex) try(ctx context.Context, name string) (_ bool, err error) {
	if m.mutex, err = m.on(name); err != nil {
		return false, err
	}
	err = m.mutex.TryLock(ctx)
	if err == concurrency.ErrLocked {
		return false, nil
	}
	return err == nil, err
}

func (m *etcdMutex) unlock(ctx context.Context) error {
	m.wait.end()
	return m.mutex.Unlock(ctx)
}

func TestEtcdctl(t *testing.T) {
	addr := testserver.Etcd(t)
	client := newEtcd(t, addr)
	_, err := exec.LookPath("etcdctl")
	require.NoError(t, err, "run scripts/install-servers etcd")
	p := &pair{
		peer:     "etcdctl lock (a process each)",
		theirs:   &etcdctl{line: line{client: client}, t: t, addr: addr},
		ours:     newLockgen(t, etcdlock.New(client)),
		sections: 50,
	}
	p.test(t)
}

// etcdctl locks by the command `etcdctl lock`: one process for each lock, which prints the name of its
// key when it holds the lock and releases the lock on a signal.
type etcdctl struct {
	line
	t    *testing.T
	addr string
	held *command
}

func (e *etcdctl) start(name string) (*command, error) {
	key, err := SectionRunKey(name)
	if err != nil {
		return nil, err
	}
	return startCommand(e.t, []string{"ETCDCTL_API=3"}, "etcdctl", "--endpoints", e.addr, "lock", "--ttl", "10", key)
}

func (e *etcdctl) lock(ctx context.Context, name string) (err error) {
	if e.held, err = e.start(name); err != nil {
		return err
	}
	_, err = e.held.next(ctx)
	return err
}

// try runs etcdctl, which has no option to try, until it is in the queue and then ends it.
func (e *etcdctl) try(ctx context.Context, name string) (_ bool, err error) {
	if e.held, err = e.start(name); err != nil {
		return false, err
	}
	held := make(chan error, 1)
	go func() {
		_, err := e.held.next(ctx)
		held <- err
	}()
	var waiting bool
	for !waiting {
		select {
		case err := <-held:
			return err == nil, err
		case <-time.After(10 * time.Millisecond):
			if waiting, err = e.contended(ctx, name); err != nil {
				return false, err
			}
		}
	}
	select {
	case err := <-held:
		return err == nil, err
	case <-time.After(100 * time.Millisecond):
	}
	e.held.interrupt()
	<-held
	<-e.held.ended // its exit status reports the interrupt
	return false, nil
}

func (e *etcdctl) unlock(ctx context.Context) error {
	e.wait.end()
	e.held.interrupt()
	return e.held.wait(ctx)
}
