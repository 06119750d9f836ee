module github.com/lockgen/lockgen/cmd/lockctl

go 1.26.0

replace (
	github.com/lockgen/lockgen => ../..
	github.com/lockgen/lockgen/runtime/backends/consullock => ../../runtime/backends/consullock
)

require (
	github.com/lockgen/lockgen v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/rogpeppe/go-internal v1.16.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/tools v0.52.0 // indirect
)
