package testserver_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
)

// etcdAnswers asks a member through etcd's JSON gateway, which needs no client library.
func etcdAnswers(t *testing.T, addr, path, body string) string {
	t.Helper()
	resp, err := http.Post("http://"+addr+path, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(answer)
}

func TestEtcd(t *testing.T) {
	addr := testserver.Etcd(t)
	require.Contains(t, etcdAnswers(t, addr, "/v3/lease/grant", `{"TTL": 1}`), `"TTL":"1"`,
		"etcd does not grant a lease of a second: are the ticks too slow?")
}

// TestStartEtcd checks that a restart keeps the data.
func TestStartEtcd(t *testing.T) {
	i := testserver.StartEtcd(t)
	etcdAnswers(t, i.Addr(), "/v3/kv/put", `{"key": "YQ==", "value": "Yg=="}`)
	i.Restart()
	require.Contains(t, etcdAnswers(t, i.Addr(), "/v3/kv/range", `{"key": "YQ=="}`), `"value":"Yg=="`)
}

func TestEtcdCluster(t *testing.T) {
	c := testserver.StartEtcdCluster(t)
	require.Len(t, c.Addrs(), 3)
	old := c.Leader(t.Context())
	old.Kill()
	leader := c.Leader(t.Context())
	require.NotSame(t, old, leader)
	etcdAnswers(t, leader.Addr(), "/v3/kv/put", `{"key": "YQ==", "value": "Yg=="}`)
	old.Restart()
	require.Contains(t, etcdAnswers(t, old.Addr(), "/v3/kv/range", `{"key": "YQ=="}`), `"value":"Yg=="`)
	c.Members()[0].Stop()
	c.Leader(t.Context())
	c.Members()[0].Cont()
}
