module github.com/lockgen/lockgen/internal/sim/peers

go 1.26.0

replace (
	github.com/lockgen/lockgen => ../../..
	github.com/lockgen/lockgen/internal/sim => ../
	github.com/lockgen/lockgen/internal/soak => ../../soak
)

require (
	github.com/bsm/redislock v0.9.4
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/lockgen/lockgen v0.0.0
	github.com/lockgen/lockgen/internal/sim v0.0.0-00010101000000-000000000000
	github.com/lockgen/lockgen/internal/soak v0.0.0-00010101000000-000000000000
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
