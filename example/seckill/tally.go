package main

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/lockgen/lockgen/example/seckill/order"
)

// tally counts the answers to the buyers.
type tally struct {
	mu        sync.Mutex
	began     time.Time
	lastOrder time.Time
	outcomes  map[string]int
	waits     []time.Duration
	repeats   int
}

func (t *tally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began, t.lastOrder = time.Now(), time.Now()
	t.outcomes = map[string]int{}
}

// add counts the answer to one click, and how long the buyer waited for it.
func (t *tally) add(outcome string, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outcomes[outcome]++
	t.waits = append(t.waits, wait)
	if outcome == placed {
		t.lastOrder = time.Now()
	}
}

// again counts a click that got no answer and was repeated.
func (t *tally) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.repeats++
}

// soFar returns how many clicks were answered, and how many with an order.
func (t *tally) soFar() (answered, sold int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waits), t.outcomes[placed]
}

// result has the numbers of one sale. Sold, Oversold, Duplicates and Left are from the database;
// the others are from the answers to the buyers.
type result struct {
	Sold         int     `json:"sold"`
	Oversold     int     `json:"oversold"`   // orders beyond the stock
	Duplicates   int     `json:"duplicates"` // orders beyond one per user
	Rejected     int     `json:"rejected"`   // clicks that were refused: sold out, or ordered already
	SoldOut      int     `json:"sold_out"`
	Repeated     int     `json:"ordered_already"`
	Left         int     `json:"left"` // the stock after the sale, according to the voucher
	ClickedAgain int     `json:"clicked_again"`
	OrdersPerS   float64 `json:"orders_per_s"` // until the last order
	WaitP50      float64 `json:"wait_p50_ms"`  // of a buyer, from the click to the answer
	WaitP99      float64 `json:"wait_p99_ms"`
	Seconds      float64 `json:"seconds"`
	Faults       *faults `json:"-"` // reported separately from the sales
}

// result combines the totals in the database with the answers to the buyers.
func (t *tally) result(books order.Totals) result {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(t.waits)
	r := result{
		Sold:         books.Orders,
		Oversold:     max(0, books.Orders-books.Stock),
		Duplicates:   books.Orders - books.Buyers,
		SoldOut:      t.outcomes[soldOut],
		Repeated:     t.outcomes[repeated],
		Rejected:     t.outcomes[soldOut] + t.outcomes[repeated],
		Left:         books.Left,
		ClickedAgain: t.repeats,
		WaitP50:      milliseconds(quantile(t.waits, 50)),
		WaitP99:      milliseconds(quantile(t.waits, 99)),
		Seconds:      rounded(time.Since(t.began).Seconds(), 3),
	}
	if selling := t.lastOrder.Sub(t.began).Seconds(); selling > 0 {
		r.OrdersPerS = rounded(float64(books.Orders)/selling, 1)
	}
	return r
}

// quantile returns the percent-th percentile of sorted: the smallest value that is at
// least as large as that percentage of the values.
func quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*percent+99)/100-1]
}

// rounded rounds to the given number of decimals, because more would be noise.
func rounded(x float64, decimals int) float64 {
	unit := math.Pow10(decimals)
	return math.Round(x*unit) / unit
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// problems lists the mistakes of a guarded sale.
func (r result) problems(p plan) (wrong []string) {
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	want := min(p.stock, p.buyers)
	if r.Sold != want {
		add("sold %d, want %d", r.Sold, want)
	}
	if r.Oversold != 0 {
		add("%d sold that did not exist", r.Oversold)
	}
	if r.Duplicates != 0 {
		add("%d sold twice to the same user", r.Duplicates)
	}
	if r.Sold+r.Left != p.stock {
		add("%d sold and %d left do not make a stock of %d", r.Sold, r.Left, p.stock)
	}
	if f := r.Faults; f != nil && !f.Stopped.refused() {
		add("the stopped worker's late write was not refused: %s", f.Stopped.LateWrite)
	}
	return wrong
}
