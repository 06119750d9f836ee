package main

import (
	"database/sql"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/internal/testserver"
)

// denying is an engine with a user "nobody", whose password is "secret" and who has no rights.
type denying struct {
	name    string
	refusal string // a part of the engine's answer to this user
	wrong   string // a part of its answer to a wrong password; "" if it asks for none
	url     func(t *testing.T) string
}

// testdata/denied describes what lockctl prints for a user without rights.
func TestDenied(t *testing.T) {
	for _, d := range []denying{
		{"redis", "NOPERM", "WRONGPASS", deniedRedis},
		{"etcd", "permission denied", "authentication failed", deniedEtcd},
		{"postgres", "permission denied for table lockgen_locks", "", deniedPostgres},
	} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			url := d.url(t)
			p := (&site{name: d.name}).params(url, "denied")
			setup, condition := p.Setup, p.Condition
			p.Setup = func(env *testscript.Env) error {
				scheme, _, _ := strings.Cut(url, ":")
				env.Setenv("SCHEME", scheme)
				env.Setenv("REFUSAL", regexp.QuoteMeta(d.refusal))
				env.Setenv("WRONG", regexp.QuoteMeta(d.wrong))
				env.Setenv("WRONGURL", strings.Replace(url, "secret", "mistaken", 1))
				return setup(env)
			}
			p.Condition = func(name string) (bool, error) {
				if name == "passwords" {
					return d.wrong != "", nil
				}
				return condition(name)
			}
			testscript.Run(t, p)
		})
	}
}

func deniedRedis(t *testing.T) string {
	addr := testserver.StartRedis(t).Addr()
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	require.NoError(t, c.ACLSetUser(t.Context(), "nobody", "on", ">secret", "-@all", "+ping").Err())
	return "redis://nobody:secret@" + addr
}

func deniedEtcd(t *testing.T) string {
	addr := testserver.StartEtcd(t, "--bcrypt-cost", "4").Addr()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}})
	require.NoError(t, err)
	defer c.Close()
	for user, password := range map[string]string{"root": "root", "nobody": "secret"} {
		_, err := c.UserAdd(t.Context(), user, password)
		require.NoError(t, err)
	}
	_, err = c.UserGrantRole(t.Context(), "root", "root")
	require.NoError(t, err)
	_, err = c.AuthEnable(t.Context())
	require.NoError(t, err)
	return "etcd://nobody:secret@" + addr
}

// deniedPostgres returns the URL of a role that may connect, but not select.
func deniedPostgres(t *testing.T) string {
	addr := testserver.StartPostgres(t).Addr()
	db, err := sql.Open("pgx", migrated(t, "postgres://lockgen@"+addr+"/postgres?sslmode=disable"))
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE ROLE nobody LOGIN PASSWORD 'secret'")
	require.NoError(t, err)
	return "postgres://nobody:secret@" + addr + "/postgres?sslmode=disable"
}

// PostgreSQL refuses a role that does not exist, or may not log in, with another code than a wrong
// password.
func TestRefusedLogin(t *testing.T) {
	addr := testserver.StartPostgres(t).Addr()
	db, err := sql.Open("pgx", "postgres://lockgen@"+addr+"/postgres?sslmode=disable")
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE ROLE idle NOLOGIN")
	require.NoError(t, err)
	for _, role := range []string{"absent", "idle"} {
		c := &command{settings: settings{url: "postgres://" + role + "@" + addr + "/postgres?sslmode=disable", timeout: 5 * time.Second}}
		err := c.list(t.Context())
		require.ErrorContains(t, err, "the database refused the login")
		require.Equal(t, codeDenied, codeOf(err))
	}
}

// A server that does not speak TLS may not answer a client that does.
func TestSaysThatTheURLIsForTLS(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	for _, scheme := range []string{"redis", "etcd", "consul"} {
		c := &command{settings: settings{url: scheme + "s://" + silent.Addr().String(), timeout: 100 * time.Millisecond}}
		err := c.list(t.Context())
		require.ErrorContains(t, err, "if the port has no TLS, write "+scheme)
		require.Equal(t, codeUnavailable, codeOf(err))
	}
}
