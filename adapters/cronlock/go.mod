module github.com/lockgen/lockgen/adapters/cronlock

go 1.26.0

replace github.com/lockgen/lockgen => ../..

require (
	github.com/lockgen/lockgen v0.0.0
	github.com/robfig/cron/v3 v3.0.1
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
