# Every target works alone on a fresh clone, with Go, git, make and a package manager.
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
BENCHFLAGS  ?=
SOAKTIME    ?= 10m
SOAKFLAGS   ?=

# A pattern of packages means the root module, unless MODULES says otherwise.
ifneq ($(PKG),./...)
MODULES ?= .
endif
export MODULES

# The servers that the tests need, by their names in scripts/install-servers.
SERVERS := redis

# What make itself needs is built here; Go's own cache makes that instant.
BIN         := $(CURDIR)/.cache/bin
EACH        := scripts/each-module
STATICCHECK  = $$(GOWORK=off go -C tools tool -n staticcheck)

.DEFAULT_GOAL := help
.PHONY: help demo test test/all test/alone lint lint/tree lint/vet lint/staticcheck
.PHONY: generate check fuzz bench soak soak/mutants servers FORCE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

demo: generate ## generate, then run the seckill example (DEMOFLAGS=-kill)
	go run ./example/seckill $(DEMOFLAGS)

test: test/all test/alone ## run all tests of all modules against real servers (PKG, RUN, GOTESTFLAGS, RACE=)

test/all: servers $(BIN)/testserver $(BIN)/testsum
	$(BIN)/testserver exec -- \
		$(BIN)/testsum -summary .cache/test-summary $(filter -v,$(GOTESTFLAGS)) -- \
		$(EACH) go test -json $(RACE) $(GOTESTFLAGS) $(if $(RUN),-run '$(RUN)') $(PKG)

# As its users have it: without the workspace's say in versions.
test/alone:
	GOWORK=off go build ./...
	GOWORK=off go vet ./...

lint: lint/tree lint/vet lint/staticcheck ## check format, vet, staticcheck and our own rules

lint/tree: $(BIN)/treelint
	$(BIN)/treelint

lint/vet:
	$(EACH) go vet ./...
	GOWORK=off go vet ./...

lint/staticcheck:
	$(EACH) "$(STATICCHECK)" ./...
	GOWORK=off "$(STATICCHECK)" ./...

generate: ## run go generate in all modules
	$(EACH) go generate ./...

check: $(BIN)/lockgen ## fail if generated code is stale
	$(EACH) $(BIN)/lockgen -check ./...
	GOWORK=off $(BIN)/lockgen -check ./...

fuzz: ## run every fuzz target for FUZZTIME
	scripts/fuzz $(FUZZTIME)

bench: servers ## measure beside other lock libraries (BENCHFLAGS='-only solo,hot -runs 1')
	cd bench && GOWORK=off go run . $(BENCHFLAGS)

soak: servers ## torment locks at random and check the histories (SOAKTIME, SOAKFLAGS='-seed 7')
	GOWORK=off go run -C internal/soak ./cmd -duration $(SOAKTIME) -out $(CURDIR)/.cache/soak $(SOAKFLAGS)

soak/mutants: servers
	GOWORK=off go run -C internal/soak ./mutants

servers: ## install what the tests need and the system lacks
	scripts/install-servers $(if $(RACE),cc) $(SERVERS) || [ "$$CI" != true ]

$(BIN)/testserver: FORCE
	go build -o $@ ./internal/testserver/cmd

$(BIN)/lockgen: FORCE
	go build -o $@ ./cmd/lockgen

$(BIN)/testsum $(BIN)/treelint: FORCE
	GOWORK=off go build -C tools -o $@ ./$(@F)
