package order

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

const voucher = 42

// bank takes a moment for a card payment. A transfer takes until the test lets it arrive.
type bank struct {
	paid     atomic.Int64
	waiting  chan struct{} // receives a value when a transfer has begun
	transfer chan struct{} // closed when transfers arrive
}

func newBank() *bank {
	return &bank{waiting: make(chan struct{}), transfer: make(chan struct{})}
}

func (b *bank) Pay(_ context.Context, _, _ int64, by Payment) error {
	if by == Transfer {
		b.waiting <- struct{}{}
		<-b.transfer
	} else {
		time.Sleep(time.Millisecond)
	}
	b.paid.Add(1)
	return nil
}

func openStore(t *testing.T, stock int) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "a name with spaces?.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	require.NoError(t, s.AddVoucher(t.Context(), voucher, stock))
	return s
}

func newLocker(t *testing.T, b driver.Backend) *lock.Locker {
	t.Helper()
	l := lock.New(b, nil)
	t.Cleanup(func() { assert.NoError(t, l.Close(context.Background())) })
	return l
}

type placer interface {
	PlaceOrder(ctx context.Context, voucherID, userID int64, by Payment) (int64, error)
}

// rush makes every user click twice at the same time, at different services.
func rush(t *testing.T, users int, services ...placer) {
	t.Helper()
	var clicks sync.WaitGroup
	for i := range 2 * users {
		clicks.Go(func() {
			_, err := services[i%len(services)].PlaceOrder(t.Context(), voucher, int64(i/2), Card)
			if err != nil {
				assert.Condition(t, func() bool { return isRefusal(err) }, "%v", err)
			}
		})
	}
	clicks.Wait()
}

func isRefusal(err error) bool {
	return err == ErrSoldOut || err == ErrAlreadyOrdered //nolint:errorlint // without wrapping, because the locks add nothing
}

func totals(t *testing.T, s *Store) Totals {
	t.Helper()
	got, err := s.Totals(t.Context(), voucher)
	require.NoError(t, err)
	return got
}

func TestGuardedSaleIsExact(t *testing.T) {
	store, bank := openStore(t, 20), newBank()
	engine := memlock.New() // shared, as two processes share a server
	rush(t, 60, New(store, bank, newLocker(t, engine)), New(store, bank, newLocker(t, engine)))
	assert.Equal(t, Totals{Stock: 20, Left: 0, Orders: 20, Buyers: 20}, totals(t, store))
	assert.EqualValues(t, 20, bank.paid.Load(), "nobody pays for nothing")
}

func TestUnguardedSaleIsNot(t *testing.T) {
	store := openStore(t, 20)
	s := NewUnguarded(store, newBank())
	rush(t, 60, s, s)
	got := totals(t, store)
	assert.Greater(t, got.Orders, 20, "oversold")
	assert.Greater(t, got.Orders, got.Buyers, "duplicates")
}

func TestOneOrderPerUser(t *testing.T) {
	store := openStore(t, 5)
	s := New(store, newBank(), newLocker(t, memlock.New()))
	first, err := s.PlaceOrder(t.Context(), voucher, 7, Card)
	require.NoError(t, err)
	again, err := s.PlaceOrder(t.Context(), voucher, 7, Card)
	require.ErrorIs(t, err, ErrAlreadyOrdered)
	assert.Equal(t, first, again, "the refusal names the order")
	mine, err := s.OrderOf(t.Context(), voucher, 7)
	require.NoError(t, err)
	assert.Equal(t, first, mine)
	none, err := s.OrderOf(t.Context(), voucher, 8)
	require.NoError(t, err)
	assert.Zero(t, none)
}

// The page with the user's orders waits for a payment that is under way. This works only if
// PlaceOrder calls OrderOf through the wrapper, and reentrantly.
func TestOrderOfWaitsForThePayment(t *testing.T) {
	store, bank := openStore(t, 5), newBank()
	s := New(store, bank, newLocker(t, memlock.New()))
	var placed, seen int64
	var both sync.WaitGroup
	both.Go(func() {
		var err error
		placed, err = s.PlaceOrder(t.Context(), voucher, 7, Transfer)
		assert.NoError(t, err)
	})
	<-bank.waiting
	both.Go(func() {
		var err error
		seen, err = s.OrderOf(t.Context(), voucher, 7)
		assert.NoError(t, err)
	})
	close(bank.transfer)
	both.Wait()
	assert.NotZero(t, placed)
	assert.Equal(t, placed, seen)
}

// Two holders have the same locks at once, as after a pause that is longer than the lease. Each has
// its own engine here, so only the fence is between them.
func TestFenceRefusesTheOlderHolder(t *testing.T) {
	store, bank := openStore(t, 5), newBank()
	older := New(store, bank, newLocker(t, memlock.New()))
	newer := New(store, bank, newLocker(t, memlock.New()))

	late := make(chan error, 1)
	go func() {
		_, err := older.PlaceOrder(t.Context(), voucher, 1, Transfer)
		late <- err
	}()
	<-bank.waiting // it has read the stock
	_, err := newer.PlaceOrder(t.Context(), voucher, 2, Card)
	require.NoError(t, err)
	close(bank.transfer)
	require.ErrorIs(t, <-late, ErrFenced)
	assert.Equal(t, Totals{Stock: 5, Left: 4, Orders: 1, Buyers: 1}, totals(t, store))
}

// The same user orders twice: here the lock of the stock does not stop the older holder.
func TestFenceRefusesTheOlderOrderOfAUser(t *testing.T) {
	store := openStore(t, 5)
	f := func(token uint64) Fence { return Fence{Key: ServicePlaceOrderKey(voucher, 1), Token: token} }
	_, err := store.OrderOf(t.Context(), f(10), voucher, 1)
	require.NoError(t, err)
	_, err = store.OrderOf(t.Context(), f(11), voucher, 1)
	require.NoError(t, err, "the newer holder only looked")
	_, err = store.Book(t.Context(), Order{VoucherID: voucher, UserID: 1, By: Card}, 4, f(10))
	require.ErrorIs(t, err, ErrFenced)
	assert.ErrorContains(t, err, "token 10 of seckill:voucher:42:user:1")
	assert.Equal(t, Totals{Stock: 5, Left: 5}, totals(t, store), "neither the order nor the stock")
	_, err = store.Book(t.Context(), Order{VoucherID: voucher, UserID: 1, By: Card}, 4, f(11))
	require.NoError(t, err)
	_, err = store.OrderOf(t.Context(), f(10), voucher, 1)
	require.ErrorIs(t, err, ErrFenced, "an older holder may not even read")
}

func TestKeys(t *testing.T) {
	assert.Equal(t, "seckill:voucher:42", ServiceSellByCardKey(42))
	assert.Equal(t, ServiceSellByCardKey(42), ServiceSellByTransferKey(42))
	assert.Equal(t, "seckill:voucher:42:user:-7", ServicePlaceOrderKey(42, -7))
	assert.Equal(t, ServicePlaceOrderKey(42, 7), ServiceOrderOfKey(42, 7))
}

func TestUnknownVoucher(t *testing.T) {
	s := New(openStore(t, 5), newBank(), newLocker(t, memlock.New()))
	_, err := s.PlaceOrder(t.Context(), 1, 7, Card)
	assert.ErrorContains(t, err, "read the stock of voucher 1")
}
