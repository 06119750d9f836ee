package etcdlock

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

func as(user, password string, cert *testserver.Certificate) func(*clientv3.Config) {
	return func(c *clientv3.Config) {
		c.Username, c.Password, c.DialTimeout = user, password, soon
		c.TLS = cert.Client()
	}
}

// TLS, and a user with the least rights that the package's doc names. They are all that a
// lock needs.
func TestTLSAndRole(t *testing.T) {
	t.Parallel()
	cert := testserver.NewCertificate(t)
	server := testserver.StartEtcd(t, "--cert-file", cert.CertFile, "--key-file", cert.KeyFile, "--auth-token-ttl", "2", "--bcrypt-cost", "4")
	addr := "https://" + server.Addr()
	root := newClient(t, []string{addr}, func(c *clientv3.Config) { c.TLS = cert.Client() })
	ctx := t.Context()
	do := func(err error) { t.Helper(); require.NoError(t, err) }
	for _, user := range []string{"root", "service", "nobody"} {
		_, err := root.UserAdd(ctx, user, "pw")
		do(err)
	}
	_, err := root.UserGrantRole(ctx, "root", "root")
	do(err)
	_, err = root.RoleAdd(ctx, "locks")
	do(err)
	_, err = root.RoleGrantPermission(ctx, "locks", "seckill:", clientv3.GetPrefixRangeEnd("seckill:"), clientv3.PermissionType(clientv3.PermReadWrite))
	do(err)
	_, err = root.UserGrantRole(ctx, "service", "locks")
	do(err)
	_, err = root.AuthEnable(ctx)
	do(err)

	f := &faults{}
	l := lockerOn(t, New(newClient(t, []string{addr}, as("service", "pw", cert), withFaults(f))))
	other := lockerOn(t, New(newClient(t, []string{addr}, as("service", "pw", cert))))
	inner, held := acquire(t, l, ttl(2500*time.Millisecond), "seckill:1")
	waiting := start(ctx, other, nil, "seckill:1")
	time.Sleep(5 * time.Second) // there are several keep-alives, and the auth token expires
	do(lock.Check(inner))
	do(finish(held))
	got := receive(t, "the lock", waiting)
	do(got.err)
	do(finish(got.held))

	// An undo, and the tombstone that it leaves.
	_, held = acquire(t, l, nil, "seckill:0") // creates a session
	do(finish(held))
	_, _, err = l.Acquire(until(t, f.lose(100, writes("seckill:2"))), nil, "seckill:2")
	require.ErrorIs(t, err, lock.ErrIndeterminate)
	_, held = acquire(t, other, nil, "seckill:2")
	do(finish(held))

	err = rejected(t, l, nil, "other:1")
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.NotErrorIs(t, err, lock.ErrIndeterminate)
	require.ErrorContains(t, err, "readwrite on the prefix")
	nobody := lockerOn(t, New(newClient(t, []string{addr}, as("nobody", "pw", cert))))
	err = rejected(t, nobody, nil, "seckill:1")
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.ErrorContains(t, err, "permission denied")
	anonymous := lockerOn(t, New(newClient(t, []string{addr}, as("", "", cert))))
	begin := time.Now()
	err = rejected(t, anonymous, nil, "seckill:1")
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.ErrorContains(t, err, "user name is empty")
	do(l.Ping(ctx))
	do(nobody.Ping(ctx)) // Ping can't know for which keys the user needs rights
	err = anonymous.Ping(ctx)
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.ErrorContains(t, err, "user name is empty")
	_, err = clientv3.New(clientv3.Config{Endpoints: []string{addr}, Username: "service", Password: "wrong", TLS: cert.Client()})
	require.ErrorContains(t, err, "authentication failed", "clientv3 itself must fail, before there is a Backend")

	// A client that does not trust the server, or does not use TLS, gets an error at once.
	for _, client := range []*clientv3.Client{
		newClient(t, []string{addr}, func(c *clientv3.Config) { c.TLS = &tls.Config{RootCAs: x509.NewCertPool()} }),
		newClient(t, []string{server.Addr()}),
	} {
		err = rejected(t, lockerOn(t, New(client)), nil, "seckill:1")
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotErrorIs(t, err, lock.ErrIndeterminate)
	}
	require.Less(t, time.Since(begin), 3*time.Second+meter.Since(begin))
}

// The password of a running service is changed. The error of its next acquire says so.
func TestPasswordChanged(t *testing.T) {
	t.Parallel()
	server := testserver.StartEtcd(t, "--auth-token-ttl", "1", "--bcrypt-cost", "4")
	root := newClient(t, []string{server.Addr()})
	ctx := t.Context()
	_, err := root.UserAdd(ctx, "root", "pw")
	require.NoError(t, err)
	_, err = root.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = root.AuthEnable(ctx)
	require.NoError(t, err)
	c := newClient(t, []string{server.Addr()}, func(c *clientv3.Config) { c.Username, c.Password, c.DialTimeout = "root", "pw", soon })
	l := lockerOn(t, New(c))
	_, held := acquire(t, l, nil, "key")
	require.NoError(t, finish(held))
	_, err = c.UserChangePassword(ctx, "root", "new")
	require.NoError(t, err)
	err = rejected(t, l, nil, "key")
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.ErrorContains(t, err, "invalid user ID or password")
}

// forbidden refuses the requests that match, as the server does if the user has no right to a key
// of the request.
func forbidden(m match) func(*clientv3.Config) {
	refuse := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if m(req) {
			return rpctypes.ErrGRPCPermissionDenied
		}
		return invoke(ctx, method, req, reply, cc, options...)
	}
	return func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(refuse))
	}
}

// The rights to some keys end. The locks on the other keys are still renewed, with fewer requests
// than one for each.
func TestRightThatEnds(t *testing.T) {
	t.Parallel()
	f, key, ended := &faults{}, newKey(t), map[string]bool{}
	b := newBackend(t, shared(t), withFaults(f), forbidden(func(req any) bool {
		r, ok := req.(*pb.TxnRequest)
		return ok && slices.ContainsFunc(r.Compare, func(c *pb.Compare) bool {
			name, _, _ := strings.Cut(string(c.Key), "/")
			return ended[name]
		})
	}))
	leases, ttls := make([]driver.Lease, batchSize), make([]time.Duration, batchSize)
	for i := range leases {
		leases[i], ttls[i] = taken(t, b, attempt(key+strconv.Itoa(i), newID("A"))), 10*time.Second
	}
	for _, bad := range [][]int{{0}, {61}, {99, 98, 40}} {
		clear(ended)
		for _, i := range bad {
			ended[key+strconv.Itoa(i)] = true
		}
		f.reset()
		errs := b.RenewAll(t.Context(), leases, ttls)
		for i, err := range errs {
			if ended[key+strconv.Itoa(i)] {
				require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
				require.NotErrorIs(t, err, lock.ErrLost)
			} else {
				require.NoError(t, err)
			}
		}
		require.LessOrEqual(t, f.count("Txn"), 1+2*7*len(bad))
	}
}

// If the server can't be reached for the login, the error says that the login failed.
func TestLoginAtNobody(t *testing.T) {
	t.Parallel()
	b := Open("etcd://bob:secret@127.0.0.1:1")
	require.EqualError(t, b.Ping(t.Context()), "etcd at 127.0.0.1:1: no answer to the login within 5s")
}
