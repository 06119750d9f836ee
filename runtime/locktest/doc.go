// Package locktest lets a team test what its own service does when a lock is
// busy, slow to get, or lost while the service works under it.
//
// An [Engine] is a lock engine in memory, with a switch for each thing that a
// real one can do to its clients. Put it where redislock would be, and throw a
// switch where it hurts most, here in the middle of the locked method:
//
//	func TestBuyStopsWhenItsLockIsLost(t *testing.T) {
//		engine := locktest.New(t)
//		stock := &fakeStock{onReserve: func() { engine.Expire(ShopBuyKey(42)) }}
//		shop := NewShopWithLock(&Shop{stock: stock}, engine.Locker(nil))
//
//		err := shop.Buy(t.Context(), 42)
//
//		require.ErrorIs(t, err, lock.ErrLost)
//		require.Zero(t, stock.sold)
//	}
//
// The keys are named by the functions that lockgen generates beside the
// wrappers. The switches, and what the service under test sees of them:
//
//	HeldByOther   the key is busy          ErrNotAcquired, or the method waits
//	Fail          no engine answers        ErrUnavailable; later a lock that is held is lost
//	LoseReplies   an acquire's answer is   ErrIndeterminate; it is undone in the background
//	              lost on its way
//	Delay         answers are slow         waiting; a renewal may come too late
//	Expire        the lease is over        the method's context ends now, cause ErrLost
//	Lose          somebody deleted it      the same, but at the next renewal
//	HeldByOther   another has it, while    the same, and two are inside meanwhile: only
//	              a method runs            the fencing token tells them apart
//
// HeldByOther takes a mutex. Where the method's lock is of another kind (fair, read, write,
// permits or once) it would get ErrConflict: have a second Locker of the Engine take the lock by
// the same kind of policy.
//
// All switches may be thrown at any time, by any goroutine. When Expire or
// [Engine.Advance] returns, the contexts that it ends have ended: a test needs
// neither to sleep nor to poll.
//
// # Time
//
// The best clock for such a test is that of [testing/synctest]: inside a bubble
// everything here goes by it, so time.Sleep(time.Hour) takes no time, leases
// end and are renewed meanwhile, and all timeouts of the service run too. Make
// the Engine and the Locker inside the bubble; the Locker must be closed in it,
// as [Engine.Locker] does.
//
// Where a bubble can't be used (the test talks to a network), [Engine.Advance]
// moves the clock that leases are measured by, and only that: a policy's wait=
// and max=, and the deadlines of contexts, go on by the real clock. So do read-write locks,
// fair locks and semaphores, of which Expire and Lose end all holds of a key.
package locktest
