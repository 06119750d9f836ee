// Package engines is the code of the README.
package engines

import (
	"context"
	"database/sql"

	"github.com/go-co-op/gocron/v2"
	"github.com/hashicorp/consul/api"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/adapters/asynqlock"
	"github.com/lockgen/lockgen/adapters/cronlock"
	"github.com/lockgen/lockgen/adapters/gocronlock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/consullock"
	"github.com/lockgen/lockgen/runtime/backends/etcdlock"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/backends/zklock"
)

// All opens a Locker on each engine.
func All(client redis.UniversalClient, etcd *clientv3.Client, consul *api.Client, db *sql.DB, a, b, c redis.UniversalClient) error {
	lock.New(redislock.New(client), nil) // a *redis.Client, also of Sentinel, or a *redis.ClusterClient
	lock.New(etcdlock.New(etcd), nil)    // a *clientv3.Client
	lock.New(zklock.New([]string{"zk1:2181", "zk2:2181"}), nil)
	lock.New(consullock.New(consul), nil)                                                        // an *api.Client; a module of its own
	locks, err := sqllock.New(db)                                                                // a *sql.DB; call locks.Migrate(ctx) once
	lock.New(memlock.New(), &lock.Options{Backends: map[string]lock.Backend{"payments": locks}}) // backend=payments
	lock.New(quorum.New(map[string]lock.Backend{"a": redislock.New(a), "b": redislock.New(b), "c": redislock.New(c)}), nil)
	return err
}

// Schedulers hands a Locker to schedulers and queues.
func Schedulers(locks *lock.Locker, policy *lock.Policy, c *cron.Cron, mux *asynq.ServeMux, report func(context.Context) error, key func(*asynq.Task) (string, error)) {
	gocron.NewScheduler(gocron.WithDistributedLocker(gocronlock.NewLocker(locks, policy))) // or WithDistributedElector(gocronlock.NewElector(…))
	cronlock.AddOnce(c, "0 2 * * *", locks, nil, "report", report, nil)                    // robfig/cron: each tick once over all processes
	mux.Use(asynqlock.Middleware(locks, policy, key))                                      // asynq: who can't have the lock is retried later
}
