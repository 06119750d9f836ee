// Command clocks is one of the processes of TestFairClocks. For each line "KEY N" that it
// reads, a new goroutine acquires the fair lock on that key. The command prints "waits" when
// the call waits, and "in N AT" with the time of its clock when the lock is held. The number -1
// holds the lock until a line with the number -2 comes.
//
//	clocks -engine redis -addr 127.0.0.1:6379
package main

import (
	"bufio"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/hashicorp/consul/api"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/consullock"
	"github.com/lockgen/lockgen/runtime/backends/etcdlock"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/backends/zklock"
)

func main() {
	engine, addr := flag.String("engine", "", "`name` of the engine"), flag.String("addr", "", "its `address`")
	flag.Parse()
	b, err := open(*engine, *addr)
	if err != nil {
		log.Fatal(err)
	}
	says := &teller{}
	locker := lock.New(b, &lock.Options{Observer: says})
	var all sync.WaitGroup
	leave := make(chan struct{})
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var key string
		var n int
		if _, err := fmt.Sscan(in.Text(), &key, &n); err != nil {
			log.Fatal(err)
		}
		if n == -2 {
			close(leave)
			continue
		}
		all.Go(func() {
			err := locker.Do(context.Background(), &lock.Policy{Fair: true}, key, func(context.Context) error {
				says.tell("in", n, time.Now().UnixNano())
				if n == -1 {
					<-leave
				}
				return nil
			})
			if err != nil {
				log.Print(err)
			}
		})
	}
	all.Wait()
	if err := locker.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// open returns the backend for an engine.
func open(engine, addr string) (lock.Backend, error) {
	switch engine {
	case "redis":
		return redislock.New(redis.NewClient(&redis.Options{Addr: addr})), nil
	case "etcd":
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}})
		return etcdlock.New(client), err
	case "zookeeper":
		return zklock.New([]string{addr}), nil
	case "consul":
		client, err := api.NewClient(&api.Config{Address: addr})
		return consullock.New(client), err
	case "mariadb":
		return openSQL("mysql", "root@tcp("+addr+")/lockgen")
	case "postgresql":
		return openSQL("pgx", "postgres://lockgen@"+addr+"/postgres?sslmode=disable")
	}
	return nil, fmt.Errorf("no engine %q", engine)
}

func openSQL(driver, source string) (lock.Backend, error) {
	db, err := sql.Open(driver, source)
	if err != nil {
		return nil, err
	}
	b, err := sqllock.New(db, sqllock.Options{})
	if err != nil {
		return nil, err
	}
	return b, b.Migrate(context.Background())
}

// teller writes lines to the parent.
type teller struct{ mu sync.Mutex }

func (t *teller) tell(words ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Println(words...)
}

// Observe implements [lock.Observer].
func (t *teller) Observe(_ context.Context, e lock.Event) {
	if e.Kind == lock.Waiting {
		t.tell("waits")
	}
}
