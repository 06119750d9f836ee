package soak

import (
	"bytes"
	"context"
	"os"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"

	"github.com/lockgen/lockgen/internal/soak/client"
	"github.com/lockgen/lockgen/internal/soak/ticks"
)

func TestMain(m *testing.M) {
	client.MainIfClient()
	ticks.MainIfTicks()
	os.Exit(m.Run())
}

func TestTenSeconds(t *testing.T) {
	const seed = 1 // make nightly draws others
	var log bytes.Buffer
	summary, err := Run(t.Context(), Options{Seed: seed, Duration: 10 * time.Second, Parallel: 2, Out: os.TempDir(), Log: &log})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	summary.Print(&log)
	t.Logf("\n%s", &log)
	if len(summary.Violations) > 0 {
		t.Errorf("seed %d: %d violations", seed, len(summary.Violations))
	}
	if summary.Operations["acquire ok"] < 100 || len(summary.Faults) == 0 || summary.Samples == 0 {
		t.Error("there were too few operations, faults or samples")
	}
}

func TestPlanIsItsSeed(t *testing.T) {
	for n := range 50 {
		if a, b := newPlan(7, n, nil, ""), newPlan(7, n, nil, ""); !reflect.DeepEqual(a, b) {
			t.Fatalf("episode %d: %v, then %v", n, a, b)
		}
	}
	for n := range 50 {
		for _, f := range newPlan(7, n, []string{"hole", "reset"}, "").Faults {
			if f.Kind != "hole" && f.Kind != "reset" {
				t.Fatalf("episode %d has %v", n, f)
			}
		}
	}
}

func TestEveryKindIsDrawn(t *testing.T) {
	var drawn []string
	for n := range 500 {
		for _, f := range newPlan(1, n, nil, "").Faults {
			drawn = append(drawn, f.Kind)
		}
	}
	for _, k := range kinds {
		if !slices.Contains(drawn, k.name) {
			t.Errorf("%s is never drawn", k.name)
		}
	}
	if checkKinds([]string{"earthquake"}) == nil {
		t.Error("an unknown kind is accepted")
	}
}

// TestWordsTellScriptsApart fails if the arguments of redislock's scripts change: the faults distinguish
// acquires from releases by their words.
func TestWordsTellScriptsApart(t *testing.T) {
	var seen [2]atomic.Int32
	const acquire, release = 0, 1
	proxy := faultproxy.New(t, testserver.Redis(t))
	for n, match := range []faultproxy.Match{acquire: acquires, release: releases} {
		proxy.Late(func(request []byte) bool { // matches nothing, but sees every request
			if match(request) {
				seen[n].Add(1)
			}
			return false
		})
	}
	redisClient := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer redisClient.Close()
	locker := lock.New(redislock.New(redisClient), nil)
	err := locker.Do(t.Context(), &lock.Policy{Try: true}, t.Name(), func(context.Context) error {
		if seen[acquire].Load() == 0 || seen[release].Load() != 0 {
			t.Error("the acquire is not recognized, or is taken for a release")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen[release].Load() == 0 {
		t.Error("the release is not recognized")
	}
	if err := locker.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
