// Package order is the order service of a flash sale: a voucher with a limited stock, one piece per
// user, many buyers at once.
//
// In a single database a unique index and "stock = stock - 1 WHERE stock > 0" would keep the
// numbers right. They would not keep the payments right: the payment is made between the check and
// the write, and it can't be rolled back. So the check, the payment and the write are one critical
// section. Because the buyers are spread over processes, a lock must guard it.
package order

import (
	"context"
	"errors"
	"fmt"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

//go:generate go tool lockgen

// These errors say why an order was refused. In both cases no money has moved.
var (
	ErrSoldOut        = errors.New("sold out")
	ErrAlreadyOrdered = errors.New("this user has ordered already")
)

// Payment is how a buyer pays.
type Payment string

// The ways to pay. A card answers in milliseconds, a transfer in seconds.
const (
	Card     Payment = "card"
	Transfer Payment = "transfer"
)

// Bank moves the money for one piece of a voucher.
type Bank interface {
	Pay(ctx context.Context, voucherID, userID int64, by Payment) error
}

// Service takes orders. Its fields are private to one process. Other processes are excluded by the
// locks that the annotations ask for.
type Service struct {
	store *Store
	bank  Bank

	// The service's methods call each other through self. s.SellByCard(…) would compile, and would
	// run without the lock: a method of Service can't know that its caller came through the
	// wrapper.
	self nested
}

// nested lists the annotated methods that Service itself calls. Both *Service
// and *ServiceWithLock have them.
type nested interface {
	OrderOf(ctx context.Context, voucherID, userID int64) (orderID int64, err error)
	SellByCard(ctx context.Context, voucherID, userID int64) (orderID int64, err error)
	SellByTransfer(ctx context.Context, voucherID, userID int64) (orderID int64, err error)
}

// NewUnguarded returns the service without its locks. It exists to show the mistakes that locks
// prevent.
func NewUnguarded(store *Store, bank Bank) *Service {
	s := &Service{store: store, bank: bank}
	s.self = s //lockcheck:ignore bypass to be without locks is its purpose
	return s
}

// New returns the service with its locks, also for nested calls.
func New(store *Store, bank Bank, locker *lock.Locker) *ServiceWithLock {
	s := &Service{store: store, bank: bank}
	guarded := NewServiceWithLock(s, locker)
	s.self = guarded
	return guarded
}

// PlaceOrder sells one piece of the voucher to the user. A user gets at most one
// piece, however often and on however many machines they click.
//
//lock:key="seckill:voucher:<voucherID>:user:<userID>" ttl=5s
func (s *Service) PlaceOrder(ctx context.Context, voucherID, userID int64, by Payment) (orderID int64, err error) {
	placed, err := s.self.OrderOf(ctx, voucherID, userID) // it has the same lock, and enters at once
	if err != nil {
		return 0, err
	}
	if placed != 0 {
		return placed, ErrAlreadyOrdered
	}
	if by == Transfer {
		return s.self.SellByTransfer(ctx, voucherID, userID)
	}
	return s.self.SellByCard(ctx, voucherID, userID)
}

// OrderOf returns the user's order, or 0. It takes the lock of PlaceOrder. So the
// "my orders" page, which calls it directly, never shows "none" while a payment is
// under way.
//
//lock:key="seckill:voucher:<voucherID>:user:<userID>" ttl=5s reentrant
func (s *Service) OrderOf(ctx context.Context, voucherID, userID int64) (orderID int64, err error) {
	return s.store.OrderOf(ctx, userFence(ctx, voucherID, userID), voucherID, userID)
}

// SellByCard takes one piece from the stock against a card payment.
//
//lock:key="seckill:voucher:<voucherID>" ttl=5s
func (s *Service) SellByCard(ctx context.Context, voucherID, userID int64) (orderID int64, err error) {
	return s.sell(ctx, voucherID, userID, Card)
}

// SellByTransfer is SellByCard for a bank that answers in seconds. It has the
// same lock with a shorter lease, which the watchdog renews for as long as the
// bank takes. If this process dies meanwhile, the sale continues sooner.
//
//lock:key="seckill:voucher:<voucherID>" ttl=2s
func (s *Service) SellByTransfer(ctx context.Context, voucherID, userID int64) (orderID int64, err error) {
	return s.sell(ctx, voucherID, userID, Transfer)
}

// bookingTimeout bounds the write of an order that has been paid.
const bookingTimeout = 30 * time.Second

// sell is the critical section: read the stock, take the money, write.
func (s *Service) sell(ctx context.Context, voucherID, userID int64, by Payment) (int64, error) {
	stock, user := stockFence(ctx, voucherID), userFence(ctx, voucherID, userID)
	left, err := s.store.Stock(ctx, stock, voucherID)
	if err != nil {
		return 0, err
	}
	if left <= 0 {
		return 0, ErrSoldOut
	}
	if err := lock.Check(ctx); err != nil { // the last moment at which it costs nothing to give up
		return 0, err
	}
	if err := s.bank.Pay(ctx, voucherID, userID, by); err != nil {
		return 0, fmt.Errorf("pay by %s: %w", by, err)
	}
	// The money has moved, so the end of ctx must not cancel the write. A check could not prevent a
	// late write either: this process may be stopped for a minute between any check of the lock and
	// the write. The fences decide, in the database.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookingTimeout)
	defer cancel()
	return s.store.Book(ctx, Order{VoucherID: voucherID, UserID: userID, By: by}, left-1, stock, user)
}

func stockFence(ctx context.Context, voucherID int64) Fence {
	return fence(ctx, ServiceSellByCardKey(voucherID))
}

func userFence(ctx context.Context, voucherID, userID int64) Fence {
	return fence(ctx, ServicePlaceOrderKey(voucherID, userID))
}

// fence returns the fence of the lock that ctx holds on key. Without a lock the fence is open. A
// real service would refuse here; this one also shows the sale without locks.
func fence(ctx context.Context, key string) Fence {
	token, _ := lock.TokenOf(ctx, key)
	return Fence{Key: key, Token: token}
}
