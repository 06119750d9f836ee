package main

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/example/seckill/order"
)

func TestProblems(t *testing.T) {
	p := plan{processes: 4, buyers: 10, stock: 5}
	fenced := &faults{Stopped: stoppedWorker{LateWrite: refusedByFence}}
	for name, c := range map[string]struct {
		result result
		want   []string
	}{
		"exact":            {result{Sold: 5}, nil},
		"exact, -kill":     {result{Sold: 5, Faults: fenced}, nil},
		"undersold":        {result{Sold: 4, Left: 1}, []string{"sold 4, want 5"}},
		"a piece vanished": {result{Sold: 4}, []string{"sold 4, want 5", "4 sold and 0 left do not make a stock of 5"}},
		"oversold": {result{Sold: 7, Oversold: 2, Duplicates: 1}, []string{
			"sold 7, want 5", "2 sold that did not exist", "1 sold twice to the same user",
			"7 sold and 0 left do not make a stock of 5",
		}},
		"a late write": {
			result{Sold: 5, Faults: &faults{Stopped: stoppedWorker{LateWrite: placed}}},
			[]string{"the stopped worker's late write was not refused: placed"},
		},
	} {
		assert.Equal(t, c.want, c.result.problems(p), name)
	}
	assert.Empty(t, result{Sold: 3, Left: 2}.problems(plan{processes: 1, buyers: 3, stock: 5}), "a piece for everyone")
}

func TestTallyResult(t *testing.T) {
	var tl tally
	tl.begin()
	for ms := range 98 {
		tl.add(soldOut, time.Duration(ms+1)*time.Millisecond)
	}
	tl.add(placed, 99*time.Millisecond)
	tl.add(repeated, 100*time.Millisecond)
	tl.again()
	r := tl.result(order.Totals{Stock: 3, Left: 1, Orders: 7, Buyers: 5})
	assert.Positive(t, r.OrdersPerS)
	r.OrdersPerS, r.Seconds = 0, 0
	assert.Equal(t, result{
		Sold: 7, Oversold: 4, Duplicates: 2, Rejected: 99, SoldOut: 98, Repeated: 1, Left: 1,
		ClickedAgain: 1, WaitP50: 50, WaitP99: 99,
	}, r)
}

func TestQuantile(t *testing.T) {
	assert.Zero(t, quantile(nil, 99))
	assert.EqualValues(t, 7, quantile([]time.Duration{7}, 50))
	assert.EqualValues(t, 1, quantile([]time.Duration{1, 2}, 50))
	assert.EqualValues(t, 2, quantile([]time.Duration{1, 2}, 99))
}

func TestClicks(t *testing.T) {
	assert.Equal(t, 15, plan{buyers: 10}.clicks())
	assert.Equal(t, 13, plan{buyers: 10, kill: true}.clicks(), "the reserved users click once")
}

func TestOptions(t *testing.T) {
	t.Setenv("REDIS_ADDR", "from-env:1")
	o, err := parseOptions([]string{"-kill", "-json"}, io.Discard)
	require.NoError(t, err, "the defaults suit -kill")
	assert.Equal(t, "from-env:1", o.address)
	o, err = parseOptions([]string{"-redis", ""}, io.Discard)
	require.NoError(t, err)
	assert.Empty(t, o.address, "-redis '' asks for the embedded one")

	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-workers", "0"}, "-workers 0: want 1 to 64"},
		{[]string{"-workers", "65"}, "-workers 65: want 1 to 64"},
		{[]string{"-buyers", "-1"}, "-buyers -1: want 1 to 1000000"},
		{[]string{"-stock", "0"}, "-stock 0: want 1 to 1000000"},
		{[]string{"-kill", "-workers", "2"}, "-kill with -workers 2: want 3 or more: one is killed, one is stopped, one sells on"},
		{[]string{"-kill", "-stock", "19"}, "-kill with -stock 19: want 20 or more for 4 workers, so that it lasts until both are out"},
		{[]string{"-kill", "-buyers", "4"}, "-kill with -buyers 4: want more than 4"},
		{[]string{"sale"}, `unexpected argument "sale"; everything is a flag, see -help`},
	} {
		_, err := parseOptions(c.args, io.Discard)
		require.ErrorAs(t, err, new(usageError), "%q", c.args)
		assert.EqualError(t, err, c.want)
	}
}

func TestRedisOptions(t *testing.T) {
	for _, address := range []string{"localhost", "localhost:", "http://x:1", "redis://:secret@%zz"} {
		_, err := redisOptions(address)
		require.Error(t, err, address)
		assert.NotContains(t, err.Error(), "secret")
	}
	o, err := redisOptions("redis://:secret@127.0.0.1:7/2")
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1:7", o.Addr)
}

func exampleReport() report {
	p := plan{processes: 4, buyers: 600, stock: 200, kill: true}
	return newReport(p, &engine{name: "miniredis", label: "an embedded miniredis at 127.0.0.1:7"},
		result{Sold: 650, Oversold: 450, Duplicates: 50, Rejected: 248, OrdersPerS: 2170.4, WaitP50: 5.123, WaitP99: 40},
		result{Sold: 200, Rejected: 698, OrdersPerS: 160, WaitP50: 90, WaitP99: 5012.34, ClickedAgain: 3, Faults: &faults{
			Killed:  killedWorker{Worker: 1, NextOrder: 1999.6},
			Stopped: stoppedWorker{Worker: 2, StoppedFor: 2100, LateWrite: refusedByFence},
		}})
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, exampleReport().writeTable(&out))
	assert.Equal(t, `200 pieces, 600 buyers, 898 clicks, 4 processes, an embedded miniredis at 127.0.0.1:7

            without lock     with lock
sold                 650           200
oversold             450             0
duplicates            50             0
rejected             248           698
orders/s            2170           160
wait p50          5.1 ms       90.0 ms
wait p99         40.0 ms     5012.3 ms
(wait: of a buyer, from click to answer)

worker 1 was killed while it held the lock; the next order came 2000 ms later.
worker 2 was stopped for 2100 ms while it held the lock; its late write: refused by the fence.
3 clicks got no answer and were repeated.

Without the lock 450 pieces were sold that do not exist, and 50 orders were one too many for their buyer; with it, exactly 200 were sold, one per buyer.
`, out.String())
}

func TestConclusion(t *testing.T) {
	r := exampleReport()
	r.Problems = []string{"a", "b"}
	assert.Equal(t, "WRONG with the lock: a; b.", r.conclusion())
	r = exampleReport()
	r.Unguarded = result{}
	assert.Contains(t, r.conclusion(), "nothing went wrong this time")
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, exampleReport().writeJSON(&out))
	var got map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	assert.Equal(t, "miniredis", got["backend"])
	assert.Equal(t, []any{}, got["problems"])
	assert.InDelta(t, 650, got["unguarded"].(map[string]any)["sold"], 0)
	guarded := got["guarded"].(map[string]any)
	assert.InDelta(t, 0, guarded["duplicates"], 0)
	assert.Equal(t, refusedByFence, got["kill"].(map[string]any)["stopped"].(map[string]any)["late_write"])
}
