package sim

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/locktest"

	"github.com/lockgen/lockgen/internal/soak/client"
	"github.com/lockgen/lockgen/internal/soak/history"

	"github.com/lockgen/lockgen/internal/sim/model"
	"github.com/lockgen/lockgen/internal/sim/vnet"
)

// engine is the engine of an episode, with the actions of an operator.
type engine interface {
	// Connect returns a backend for one process. timeout is how long it waits for an
	// answer.
	Connect(path *vnet.Path, timeout time.Duration) client.Backend
	Pause()
	Resume()
	Stop()
	Start(empty bool)
	Jump(d time.Duration) // sets the clock
	Free(key string)      // deletes a lock
	// Snapshot returns the data of the engine in the form of Redis.
	Snapshot() []history.KeyState
	// Remains describes data that should not be left after all processes have gone.
	Remains(locks []string) string
	Close()
}

// engines are drawn by their weight.
var engines = []struct {
	name   string
	weight int
	start  func() engine
}{
	{"redis", 15, func() engine { return NewRedis() }},
	{"memory", 1, func() engine { return memory{Backend: memlock.New()} }},
	{"locktest", 1, func() engine { return kit{Engine: locktest.New(nil)} }},
	{"etcd", 1, modelOf(model.Etcd)},
	{"zookeeper", 1, modelOf(model.ZooKeeper)},
	{"consul", 1, modelOf(model.Consul)},
	{"row", 1, modelOf(model.Row)},
	{"quorum", 0, newQuorum}, // these are of redis, and played by name
	{"failover", 0, newFailover},
	{"sharded", 0, newSharded},
}

// modelOf starts a model of an engine.
func modelOf(kind model.Kind) func() engine {
	return func() engine { return modelled{model.NewServer(kind)} }
}

type modelled struct{ *model.Server }

// Connect returns the client of one process.
func (m modelled) Connect(path *vnet.Path, timeout time.Duration) client.Backend {
	return m.Server.Connect(path, timeout)
}

// Remains describes all data that is left, under any name.
func (m modelled) Remains([]string) string { return m.Server.Remains() }

// hasSessions reports whether all locks of a process depend on one session at the engine.
func hasSessions(engine string) bool {
	return engine == string(model.Etcd) || engine == string(model.ZooKeeper) || engine == string(model.Consul)
}

// hasKinds reports whether an engine has locks other than the mutex.
func hasKinds(engine string) bool {
	return engine == "redis" || engine == "memory" || engine == "locktest"
}

// newEngine starts the engine of the plan.
func (e *episode) newEngine() engine {
	for _, one := range engines {
		if one.name == e.plan.Engine {
			started := one.start()
			if s, ok := started.(*several); ok {
				s.setUp(e.plan.setup)
			}
			return started
		}
	}
	panic("no engine " + e.plan.Engine)
}

// serverless has no server, so faults of servers do nothing.
type serverless struct{}

func (serverless) Pause()                       {}
func (serverless) Resume()                      {}
func (serverless) Stop()                        {}
func (serverless) Start(bool)                   {}
func (serverless) Jump(time.Duration)           {}
func (serverless) Free(string)                  {}
func (serverless) Snapshot() []history.KeyState { return nil }
func (serverless) Remains([]string) string      { return "" }
func (serverless) Close()                       {}

// memory is memlock. Its Lockers share one process. Only two faults can happen: they stall, or
// they are closed.
type memory struct {
	serverless
	*memlock.Backend
}

func (m memory) Close() {}

// Connect returns the one Backend.
func (m memory) Connect(*vnet.Path, time.Duration) client.Backend { return m.Backend }

// kit is the engine of locktest. Its switches are the faults.
type kit struct {
	serverless
	*locktest.Engine
}

// Connect returns the one Engine.
func (k kit) Connect(*vnet.Path, time.Duration) client.Backend { return kitBackend{k.Engine} }

func (k kit) Pause()     { k.Delay(400 * time.Millisecond) }
func (k kit) Resume()    { k.Heal() }
func (k kit) Stop()      { k.Fail(nil) }
func (k kit) Start(bool) { k.Heal() }
func (k kit) Close()     {}

func (k kit) Free(key string) {
	if k.Held(key) {
		k.Lose(key)
	}
}

// kitBackend renews leases one by one, as the Locker does for a backend without RenewAll.
type kitBackend struct{ *locktest.Engine }

// RenewAll implements [driver.BatchRenewer].
func (kitBackend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		errs[i] = l.Renew(ctx, ttls[i])
	}
	return errs
}
