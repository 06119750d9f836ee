package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/driver"
)

// quorumBackend keeps each lock at a majority of Redis masters. Their addresses are separated by commas.
type quorumBackend struct{}

const (
	embeddedMasters = 5
	// memberPatience is long enough for machines on which all masters and all workers share two
	// cores. A master that was killed refuses at once.
	memberPatience = 3 * time.Second
)

func (b quorumBackend) serve(ctx context.Context, address string) (on *engine, err error) {
	on = &engine{name: "quorum", label: "a quorum of Redis at " + address, backend: "quorum", address: address, shutdown: func() {}}
	if address == "" {
		if on, err = b.embed(); err != nil {
			return nil, err
		}
	}
	locks, closeClients, err := b.open(on.address)
	if err != nil {
		on.shutdown()
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	if err := locks.(driver.Pinger).Ping(ctx); err != nil {
		on.shutdown()
		return nil, fmt.Errorf("no usable quorum of Redis at %s: %w", on.address, errors.Join(err, locks.Close(), closeClients()))
	}
	return on, errors.Join(locks.Close(), closeClients())
}

func (quorumBackend) open(address string) (driver.Backend, func() error, error) {
	names, members, closeClients, err := openMasters(address)
	if err != nil {
		return nil, nil, err
	}
	named := map[string]driver.Backend{}
	for i, name := range names {
		named[name] = members[i]
	}
	return quorum.New(named, quorum.Options{LongestTTL: longestLease, Timeout: memberPatience}), closeClients, nil
}

// embed starts the masters of a quorum.
func (quorumBackend) embed() (*engine, error) {
	all, err := embedMasters(embeddedMasters)
	if err != nil {
		return nil, err
	}
	return &engine{
		name: "quorum", label: fmt.Sprintf("a quorum of %d embedded miniredis", len(all)),
		backend: "quorum", address: all.addresses(), shutdown: all.close,
		fault: &engineFault{
			name: "masters 2 and 4 of 5",
			kill: func() { all[1].Close(); all[3].Close() },
			mend: func() error { return errors.Join(all[1].restartEmpty(), all[3].restartEmpty()) },
			after: fmt.Sprintf("They were started again, empty, and vote again after %v, "+
				"because they may have forgotten locks of that length.", longestLease),
		},
	}, nil
}
