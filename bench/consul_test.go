package main

import (
	"io"
	"testing"

	"github.com/lockgen/lockgen/bench/peers"
	"github.com/lockgen/lockgen/internal/testserver"
)

// TestConsul checks on Consul that lockgen is exact, and that the other libraries' adapters work.
func TestConsul(t *testing.T) {
	o, err := parseOptions([]string{
		"-engine", "consul", "-redis", testserver.Consul(t), "-runs", "1", "-seconds", "0.03",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range o.peers {
		only := []string{wSolo}
		if p.Name == peers.Ours {
			only = append(only, wHot, wHot8x8, wWakeup)
		}
		for _, name := range only {
			t.Run(p.Name+"/"+name, func(t *testing.T) {
				o := o
				o.only, o.peers = []*workload{workloadNamed(name)}, []*peers.Peer{p}
				r, err := run(t.Context(), o, io.Discard)
				if err != nil {
					t.Fatal(err)
				}
				for _, problem := range r.Problems {
					t.Error(problem)
				}
			})
		}
	}
}
