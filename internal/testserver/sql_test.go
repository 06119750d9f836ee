package testserver

import (
	"context"
	"testing"
	"time"
)

// TestSQLServersStartStopAndRestart checks that a SQL server keeps its data over a restart, even after
// kill -9, when processes that it has left behind still use its memory.
func TestSQLServersStartStopAndRestart(t *testing.T) {
	for _, kind := range []struct {
		server *Server
		start  func(testing.TB, ...string) *Instance
	}{
		{mysqlServer, StartMySQL},
		{postgresServer, StartPostgres},
	} {
		t.Run(kind.server.Name, func(t *testing.T) {
			i := kind.start(t)
			probe := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				return kind.server.Probe(ctx, i.Addr())
			}
			if err := probe(); err != nil {
				t.Error(err)
			}
			i.Kill()
			if probe() == nil {
				t.Error("a killed server answers")
			}
			begin := time.Now()
			i.Restart()
			if err := probe(); err != nil {
				t.Error("after the restart:", err)
			}
			i.Restart() // restarts a running server
			if err := probe(); err != nil {
				t.Error("after the second restart:", err)
			}
			t.Logf("two restarts took %v", time.Since(begin))
		})
	}
}
