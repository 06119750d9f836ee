package enginetest_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
)

func Example() {
	addr, stop, err := testserver.Example(testserver.Postgres)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	db, err := sql.Open("pgx", "postgres://lockgen@"+addr+"/postgres?sslmode=disable")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	locks, err := sqllock.New(db)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := locks.Migrate(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	locker := lock.New(locks, nil)
	defer locker.Close(context.Background())

	policy := &lock.Policy{TTL: 30 * time.Second, Wait: 5 * time.Second}
	err = locker.Do(context.Background(), policy, "example:report:daily", func(ctx context.Context) error {
		token, ok := lock.Token(ctx)
		fmt.Println("inside, with a fencing token:", ok && token > 0)
		return lock.Check(ctx)
	})
	fmt.Println(err)
	// Output:
	// inside, with a fencing token: true
	// <nil>
}
