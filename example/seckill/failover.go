package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/driver"
)

// failoverBackend keeps each lock at a primary Redis, and at a standby once the primary has failed.
// The standby also keeps the record of which of them grants. Their addresses are separated by
// commas.
type failoverBackend struct{}

// These say how soon the primary counts as away. The record may go unread for as long as a machine
// stalls on which all servers and all workers share two cores.
const (
	probeEvery    = 100 * time.Millisecond
	probePatience = 800 * time.Millisecond
	probeFailures = 3
	recordSilence = 1900 * time.Millisecond
)

// switchWait is how long a switch waits until all leases of the earlier engine are over. In package
// failover that is LongestTTL plus Silence, plus a fiftieth.
const switchWait = (longestLease + recordSilence) * 51 / 50

// switchBound is how long after the death of the primary the standby grants, at most. The workers
// may have begun just before, so they may wait once more before they end an epoch. Then a probe
// finds the primary away, the switch waits, and the waiters try again.
const switchBound = switchWait + (probeFailures+1)*probeEvery + // the age of an epoch when it ends
	probeFailures*(probeEvery+probePatience) + switchWait + 2*probeEvery + time.Second

func (b failoverBackend) serve(ctx context.Context, address string) (on *engine, err error) {
	on = &engine{name: "failover", label: "a primary Redis and its standby at " + address, backend: "failover", address: address, shutdown: func() {}}
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
	defer func() {
		if err = errors.Join(err, locks.Close(), closeClients()); err != nil {
			on.shutdown()
		}
	}()
	if address == "" { // no other client knows the servers, so none has a lock there
		if err := locks.(*failover.Backend).Begin(ctx); err != nil {
			return nil, err
		}
	}
	if err := ready(ctx, locks.(driver.Pinger)); err != nil {
		return nil, fmt.Errorf("no usable failover of Redis at %s: %w", on.address, err)
	}
	return on, nil
}

// ready waits until locks can be taken. At servers without a record that takes as long as a switch.
func ready(ctx context.Context, locks driver.Pinger) error {
	ctx, cancel := context.WithTimeout(ctx, enginePatience+switchWait)
	defer cancel()
	for {
		err := locks.Ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(probeEvery):
		case <-ctx.Done():
			return err
		}
	}
}

func (failoverBackend) open(address string) (driver.Backend, func() error, error) {
	_, engines, closeClients, err := openMasters(address)
	if err != nil {
		return nil, nil, err
	}
	return failover.New(engines[0], engines[1:], failover.Options{
		Key: "seckill.failover", LongestTTL: longestLease, Silence: recordSilence,
		Probe: probeEvery, Timeout: probePatience, Failures: probeFailures,
	}), closeClients, nil
}

// embed starts a primary and its standby.
func (failoverBackend) embed() (*engine, error) {
	all, err := embedMasters(2)
	if err != nil {
		return nil, err
	}
	return &engine{
		name: "failover", label: "an embedded miniredis and its standby",
		backend: "failover", address: all.addresses(), shutdown: all.close,
		fault: &engineFault{
			name:  "the primary",
			kill:  all[0].Close,
			mend:  all[0].restartEmpty,
			least: switchWait,
			bound: switchBound,
			after: fmt.Sprintf("The standby granted once no lease of the primary could last any more, which takes %v. "+
				"The primary was started again, empty, and stays out until it is switched back by hand.", switchWait),
		},
	}, nil
}
