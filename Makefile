# Every target works on a fresh clone with only Go, git, make and a package manager.
#
#   make test PKG=./runtime/... RUN=TestHandOff GOTESTFLAGS=-v
#   make test RACE= MODULES=example/seckill
#
# Under CI=true a missing server or a skipped test is a failure.

PKG         ?= ./...
RUN         ?=
GOTESTFLAGS ?=
RACE        ?= -race
FUZZTIME    ?= 10s
DEMOFLAGS   ?=
BACKEND     ?=
BENCHFLAGS  ?=
SOAKTIME    ?= 10m
STORMTIME   ?= 1m
SOAKFLAGS   ?=
CALLS       ?= 10000
TRIES       ?= 1000
KILLS       ?= 100
HOLDS       ?= 1000
SECTIONS    ?=
SEEDS       ?=
SEED        ?=
REPORTS     ?=
SIMFLAGS    ?=
RECORDFLAGS ?=
RACED       ?=
SPEC        ?=
RULE        ?=

# The race detector checks our code and its dependencies, except SQLite: that is a C program
# translated to Go, and 30 times slower under it. SQLite's driver is checked, because it uses
# sync.Map. The linker takes one copy of sync.Map for the whole program, and may take the driver's.
ifneq ($(RACE),)
RACE += -gcflags=modernc.org/libc/...=-race=false -gcflags=modernc.org/sqlite/lib=-race=false
endif

# PKG means packages of the root module, unless MODULES is set.
ifneq ($(PKG),./...)
MODULES := $(or $(MODULES),.)
endif
export MODULES

# The servers that the tests need, by their names in scripts/install-servers.
SERVERS := redis etcd zookeeper mariadb postgresql consul

# The programs that tests run besides.
TOOLS := promtool

# What interop/ needs besides: other lock clients, and the tools that build them.
CLIENTS := jdk maven etcdctl psql mariadb-client

# A module without tests whose dependencies take minutes to compile. Only go vet compiles it.
VETTED := docs/code/migrate/clientgo

# Programs that make runs are built here. With Go's build cache that takes no time.
BIN         := $(CURDIR)/.cache/bin
EACH        := scripts/each-module
STATICCHECK  = $$(GOWORK=off go -C tools tool -n staticcheck)

.DEFAULT_GOAL := help
.PHONY: api browser lint/api help demo quick test test/all lint lint/tree lint/vet lint/staticcheck
.PHONY: generate check measure fuzz interop javabeside newcomer reproducible release bench bench/generate plots sim sim/several sim/mutants sim/peers soak soak/mutants storm storm/root storm/nested storm/some crossing downgrades holds deadlocks quorum/engines quorum/restarts failover/kills record spec spec/short spec/more spec/graph spec/histories nightly servers FORCE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

# The server that the demo needs for a backend. For redis the demo starts its own.
SERVER_OF_etcd      := etcd
SERVER_OF_zookeeper := zookeeper
SERVER_OF_consul    := consul
SERVER_OF_mysql     := mariadb
SERVER_OF_postgres  := postgresql
DEMOSERVER           = $(SERVER_OF_$(BACKEND))

demo: $(if $(DEMOSERVER),$(BIN)/testserver) ## generate code, run the seckill example, and run the same sale with locks by hand (DEMOFLAGS=-kill, BACKEND=etcd)
	go -C example/seckill generate ./...
	$(if $(DEMOSERVER),scripts/install-servers $(DEMOSERVER))
	$(if $(DEMOSERVER),$(BIN)/testserver exec -only $(DEMOSERVER) --) \
		go run -C example/seckill . $(if $(BACKEND),-backend $(BACKEND)) $(DEMOFLAGS)
	$(if $(BACKEND)$(filter -json --json,$(DEMOFLAGS)),,@echo; go run -C example/seckill ./lesson)

# Packages whose tests need no server.
QUICK := ./cmd/... ./generator/... ./templates/... ./lockcheck/... ./runtime ./runtime/driver/... ./runtime/internal/... \
	./runtime/debug/... ./runtime/locktest/... ./runtime/backends/memlock/...

quick: ## run the tests that need no server, without the race detector
	GOGC=400 GOWORK=off go test -trimpath -ldflags=-w -timeout 5m $(GOTESTFLAGS) $(if $(RUN),-run '$(RUN)') $(QUICK)

# make test ENGINE=redis runs the packages of that engine, and starts only its server.
ifneq ($(ENGINE),)
SERVERS_redis      := redis
SERVERS_etcd       := etcd
SERVERS_zookeeper  := zookeeper
SERVERS_consul     := consul
SERVERS_sql        := mariadb postgresql
PKG_redis          := ./runtime/backends/redislock/...
PKG_etcd           := ./runtime/backends/etcdlock/...
PKG_zookeeper      := ./runtime/backends/zklock/...
MODULES_consul     := runtime/backends/consullock
MODULES_sql        := runtime/backends/sqllock/enginetest
SERVERS := $(or $(SERVERS_$(ENGINE)),$(error ENGINE is redis, etcd, zookeeper, consul or sql))
PKG     := $(or $(PKG_$(ENGINE)),./...)
MODULES := $(or $(MODULES_$(ENGINE)),.)
comma   := ,
empty   :=
space   := $(empty) $(empty)
TOOLS   :=
ONLY    := -only $(subst $(space),$(comma),$(SERVERS))
endif

test: test/all ## run all tests of all modules against real servers (ENGINE=redis, PKG, RUN, GOTESTFLAGS, RACE=)

test/all: servers $(BIN)/testserver $(BIN)/testsum
	$(BIN)/testserver exec $(ONLY) -- \
		$(BIN)/testsum -summary .cache/test-summary $(filter -v,$(GOTESTFLAGS)) -- \
		env PKG='$(PKG)' RACE='$(RACE)' RACED=$(RACED) scripts/test $(GOTESTFLAGS) $(if $(RUN),-run '$(RUN)')

lint: lint/tree lint/api lint/vet lint/staticcheck ## check format, vet, staticcheck and the rules of the project

lint/tree: $(BIN)/treelint
	$(BIN)/treelint

# The packages whose API is stable.
PUBLIC := runtime runtime/debug/locks runtime/driver runtime/fence runtime/locktest lockcheck $(addprefix runtime/backends/,backendtest consullock etcdlock failover memlock quorum redislock sharded sqllock zklock) \
	$(addprefix adapters/,asynqlock cronlock gocronlock grpclock otellock)

api: $(BIN)/api ## write the exported API to api/*.txt
	$(BIN)/api -write $(PUBLIC)

lint/api: $(BIN)/api
	$(BIN)/api $(PUBLIC)

lint/vet:
	$(EACH) go vet ./...

lint/staticcheck:
	WITHOUT='$(VETTED)' $(EACH) "$(STATICCHECK)" ./...

generate: ## run go generate in all modules
	$(EACH) go generate ./...

check: $(BIN)/lockgen ## fail if generated code is stale
	$(EACH) $(BIN)/lockgen -check ./...

measure: $(BIN)/measure ## count how much a reader has to read (docs/reading.txt)
	@$(BIN)/measure

fuzz: ## run every fuzz target for FUZZTIME
	scripts/fuzz $(FUZZTIME)

# It fails if a client is missing, even outside CI, because it is for all clients.
interop: $(BIN)/testserver $(BIN)/testsum ## test locks together with Redisson, Curator, etcdctl, consul, psql, mariadb (java, mvn; SECTIONS=100, RUN, GOTESTFLAGS)
	scripts/install-servers $(if $(RACE),cc) $(SERVERS) $(CLIENTS)
	scripts/build-interop
	LOCKGEN_TEST_REQUIRE=all LOCKGEN_INTEROP_SECTIONS=$(SECTIONS) $(BIN)/testserver exec -- \
		$(BIN)/testsum -summary .cache/interop-summary $(filter -v,$(GOTESTFLAGS)) -- \
		env MODULES=interop $(EACH) go test -json -count=1 -vet=off -timeout 30m $(RACE) $(GOTESTFLAGS) $(if $(RUN),-run '$(RUN)') ./...

javabeside: $(BIN)/testserver ## sell one stock from Go and, by Redisson, from Java (example/javabeside; java, mvn)
	scripts/install-servers redis jdk maven
	scripts/build-interop example/javabeside
	$(BIN)/testserver exec -only redis -- go run ./example/javabeside -java .cache/javabeside

newcomer: # type what a new user types, and measure the time
	scripts/install-servers redis
	scripts/newcomer

reproducible: # check that two builds of lockgen from two copies of the tree are identical
	scripts/reproducible

# Both tools are built from source, which takes minutes the first time. No module depends on them.
GORELEASER   := github.com/goreleaser/goreleaser/v2@v2.14.3
CYCLONEDX    := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
RELEASEFLAGS ?= --clean --snapshot

release: ## build the archives of a release with checksums and SBOMs in .cache/dist; publish nothing
	GOBIN=$(BIN) GOFLAGS=-mod=mod GOWORK=off go install $(GORELEASER)
	GOBIN=$(BIN) GOFLAGS=-mod=mod GOWORK=off go install $(CYCLONEDX)
	$(BIN)/goreleaser check
	PATH="$(BIN):$$PATH" $(BIN)/goreleaser release $(RELEASEFLAGS)

BENCH_OF_mysql    := ./sqlengine -engine mysql
BENCH_OF_postgres := ./sqlengine -engine postgres
BENCH_OF_sqlite   := ./sqlengine -engine sqlite
BENCH_OF_quorum   := ./quorum

bench: ## measure lockgen and other lock libraries (BACKEND=etcd or quorum, BENCHFLAGS='-only solo,hot -runs 1')
	scripts/install-servers $(or $(DEMOSERVER),redis)
	cd bench && GOWORK=off go run $(or $(BENCH_OF_$(BACKEND)),. $(if $(BACKEND),-engine $(BACKEND))) $(BENCHFLAGS)

bench/generate: # measure lockgen and other generators; a short run unless BENCHFLAGS is set
	cd bench && GOWORK=off go run ./generate $(or $(BENCHFLAGS),-runs 1 -peers moq -packages 6 -wide 20)

# The workloads of docs/plots.
PLOTTED := solo,many8,many,hot8,hot,hot256,hot8x8,1ms8x8,procs2,procs8,procs32,procs64

plots: ## measure lockgen and other lock libraries, and draw docs/plots (REPORTS='a.json b.json' draws those of make bench BENCHFLAGS=-json)
ifeq ($(REPORTS),)
	scripts/install-servers redis
	mkdir -p .cache/bench
	cd bench && GOWORK=off go run . -json -runs 1 -seconds 2 -peers raw,raw-pubsub,redsync,redislock,rueidislock,lockgen -only $(PLOTTED) >../.cache/bench/contention.json
	cd bench && GOWORK=off go run . -json -runs 1 -holds 100 -only holds >../.cache/bench/holds-100.json
	cd bench && GOWORK=off go run . -json -runs 1 -holds 1000 -only holds >../.cache/bench/holds-1000.json
	cd bench && GOWORK=off go run . -json -runs 1 -only holds,holds10x >../.cache/bench/holds.json
endif
	GOWORK=off go run -C bench ./plots -out $(CURDIR)/docs/plots $(abspath $(or $(REPORTS),$(addprefix .cache/bench/,contention.json holds-100.json holds-1000.json holds.json)))

sim: ## simulate locks under faults in virtual time (SEEDS=4000; SEED=7 for one; SIMFLAGS='-engine redis')
	@GOWORK=off go run -C internal/sim ./cmd -cache $(CURDIR)/.cache/sim \
		$(if $(SEED),-seed '$(SEED)') $(if $(SEEDS),-seeds '$(SEEDS)') $(SIMFLAGS)

sim/several: # simulate Backends that are made of several Redis
	for engine in quorum failover sharded; do \
		GOWORK=off go run -C internal/sim ./cmd -cache $(CURDIR)/.cache/sim -engine $$engine -seeds $(or $(SEEDS),200) || exit 1; \
	done

sim/peers: # simulate other lock libraries (SIMFLAGS='-seeds 200')
	GOWORK=off go run -C internal/sim/peers ./cmd $(SIMFLAGS)

sim/mutants: # SIMFLAGS='-only untold,tombstone'
	GOWORK=off go run -C internal/sim ./mutants $(SIMFLAGS)

spec: ## check the models of the protocols, and that each of their rules is needed (spec/README.md; SPEC=short)
	scripts/spec $(or $(SPEC),long) $(RULE)

spec/short:
	scripts/spec short

spec/more: # also with larger constants, which takes long
	scripts/spec more

spec/graph: # compare each call of the Redis model with a real server and with miniredis
	scripts/install-servers redis
	LOCKGEN_GRAPH=1 GOWORK=off go test -C internal/sim -count=1 -v -run TestGraph ./differential

spec/histories: # check histories of SEEDS episodes of the simulation and SOAKTIME of the soak by TLC
	scripts/install-servers redis
	scripts/spec fetch
	rm -rf .cache/histories
	GOWORK=off go run -C internal/sim ./cmd -cache $(CURDIR)/.cache/sim -engine redis -seeds $(or $(SEEDS),200) -history $(CURDIR)/.cache/histories
	GOWORK=off go run -C internal/soak ./cmd -duration $(SOAKTIME) -out $(CURDIR)/.cache/histories -keep
	GOWORK=off go run -C internal/soak ./observed -tlc $(CURDIR)/.cache/spec/tla2tools.jar -spec $(CURDIR)/spec $(CURDIR)/.cache/histories/*.jsonl

soak: ## use locks at random under faults and check the histories (SOAKTIME, SOAKFLAGS='-seed 7')
	scripts/install-servers redis
	GOWORK=off go run -C internal/soak ./cmd -duration $(SOAKTIME) -out $(CURDIR)/.cache/soak $(SOAKFLAGS)

soak/mutants:
	scripts/install-servers redis
	GOWORK=off go run -C internal/soak ./mutants

# A storm disturbs only the connection of each backend to its engine: see backendtest.Storm.
STORM = $(BIN)/testserver exec $(ONLY) -- env LOCKGEN_STORM=$(STORMTIME) MODULES='$(1)' \
	$(EACH) go test -count=1 -vet=off -p 1 -timeout 3h -v $(RACE) $(GOTESTFLAGS) -run '^Test(Conformance|Storm)$(RUN)'

storm: servers $(BIN)/testserver ## lock at random under faults, for STORMTIME on every engine (STORMTIME=1m,7 for seed 7; ENGINE, PKG)
	+@$(MAKE) --no-print-directory -j2 -O $(if $(ENGINE)$(filter-out ./...,$(PKG)),storm/some,storm/root storm/nested)

storm/some: servers $(BIN)/testserver
	$(call STORM,$(MODULES)) $(PKG)

storm/root: servers $(BIN)/testserver
	$(call STORM,.) ./runtime/backends/...

storm/nested: servers $(BIN)/testserver
	$(call STORM,runtime/backends/consullock runtime/backends/sqllock/enginetest) ./...

crossing: servers $(BIN)/testserver ## make CALLS calls on each engine that take several of the same keys
	$(BIN)/testserver exec -- env LOCKGEN_CROSSING=$(CALLS) MODULES='. runtime/backends/consullock runtime/backends/sqllock/enginetest' \
		$(EACH) go test -count=1 -p 1 -timeout 3h -v $(RACE) -run '^TestConformance$(RUN)/^Exclusion$$/^Crossing$$|^TestConformance$(RUN)/^[a-z]/./^Exclusion$$/^Crossing$$' ./...

downgrades: servers $(BIN)/testserver ## downgrade CALLS times from write to read on each engine, while others try to write (ENGINE)
	$(BIN)/testserver exec $(ONLY) -- env LOCKGEN_DOWNGRADES=$(CALLS) MODULES='$(if $(ENGINE),$(MODULES),. runtime/backends/consullock runtime/backends/sqllock/enginetest)' \
		$(EACH) go test -count=1 -p 1 -timeout 3h -v $(RACE) -run '^TestConformance$(RUN)/^ReadWrite$$/^Downgrades$$|^TestConformance$(RUN)/^[a-z]/./^ReadWrite$$/^Downgrades$$' $(PKG)

holds: servers $(BIN)/testserver # hold and renew HOLDS locks at once on each engine (ENGINE)
	$(BIN)/testserver exec $(ONLY) -- env LOCKGEN_HOLDS=$(HOLDS) MODULES='$(if $(ENGINE),$(MODULES),. runtime/backends/consullock runtime/backends/sqllock/enginetest)' \
		$(EACH) go test -count=1 -p 1 -timeout 3h -v $(RACE) -run '^TestConformance$(RUN)/^Holds$$|^TestConformance$(RUN)/^[a-z]/./^Holds$$' $(PKG)

deadlocks: servers $(BIN)/testserver ## let 8 processes nest locks in any order, or take several by one call, CALLS times on each engine (RUN=/redis)
	$(BIN)/testserver exec $(ONLY) -- env LOCKGEN_DEADLOCKS=$(CALLS) GOWORK=off go test -C cmd/lockctl -count=1 -timeout 3h -v -run '^TestProcessesThat$(RUN)' .

quorum/engines: servers $(BIN)/testserver # take TRIES locks under faults on a quorum of a Redis, an etcd and a PostgreSQL
	$(BIN)/testserver exec -only redis -- env LOCKGEN_QUORUM=$(TRIES) \
		env MODULES=runtime/backends/quorum/enginetest $(EACH) go test -count=1 -timeout 30m -v $(RACE) ./...

quorum/restarts: # restart some of five Redis empty while TRIES locks are held, also with redsync; a quorum without the wait after a restart must fail
	scripts/install-servers redis
	cd bench && GOWORK=off go run ./quorum -restarts -tries $(TRIES)
	cd bench && GOWORK=off go run ./quorum -votes-at-once -tries 100

failover/kills: servers $(BIN)/testserver # kill, hang or empty the engine in use KILLS times under the load of three processes
	$(BIN)/testserver exec -only redis -- env LOCKGEN_FAILOVER=$(KILLS) \
		go test -count=1 -timeout 1h -v $(RACE) -run '^TestKills$$' ./runtime/backends/failover

record: ## write docs/record.md: claims, faults, seeds and results; takes 20 minutes (RECORDFLAGS='-only storm/etcd')
	GOWORK=off go build -C tools -o $(BIN)/record ./record
	$(BIN)/record $(RECORDFLAGS)

browser: ## test the debug page in a real browser (chromium, 300 MB)
	scripts/install-servers chromium
	GOWORK=off go test -C runtime/debug/locks/browsertest -count=1 -timeout 5m -v ./...

NIGHTLY := 'test RACED=all' sim/several 'sim SEEDS=4000 SEED='$$(date +%s) sim/mutants 'soak SOAKTIME=10m' soak/mutants 'storm STORMTIME=1m' holds 'test PKG=./runtime/internal/record GOTESTFLAGS=-seeds=100' 'fuzz FUZZTIME=1m' interop javabeside spec/more spec/graph 'spec/histories SOAKTIME=1m' crossing downgrades deadlocks quorum/engines quorum/restarts failover/kills 'bench BACKEND=quorum' bench/generate browser newcomer reproducible

nightly: ## run what takes long: random faults, mutants, fuzz targets, all tests with other clients
	@failed=; for target in $(NIGHTLY); do $(MAKE) $$target || failed="$$failed $$target"; done; \
		[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

servers: ## install the servers that the tests need and the system lacks
	scripts/install-servers $(if $(RACE),cc) $(SERVERS) $(TOOLS) || [ "$$CI" != true ]

$(BIN)/testserver: FORCE
	go build -o $@ ./internal/testserver/cmd

$(BIN)/lockgen: FORCE
	go build -o $@ ./cmd/lockgen

$(BIN)/testsum $(BIN)/treelint $(BIN)/measure $(BIN)/api: FORCE
	GOWORK=off go build -C tools -o $@ ./$(@F)
