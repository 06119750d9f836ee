// Package locktest is for tests of a service that takes locks. What does the service do if a lock
// is busy, slow to get, or lost while the service works under it?
//
// An [Engine] is a lock engine in memory, with a switch for each fault of a real
// engine. Use it in place of redislock, and throw a switch at the worst moment, here in
// the middle of the locked method:
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
// The keys are named by the functions that lockgen generates next to the wrappers. The switches,
// and what the service under test sees of them:
//
//	HeldByOther   the key is busy          ErrNotAcquired, or the method waits
//	Fail          the engine is down       ErrUnavailable; later a lock that is held is lost
//	LoseReplies   the answer to an         ErrIndeterminate; the acquire is undone in the
//	              acquire is lost          background
//	Delay         answers are slow         waiting; a renewal may come too late
//	Expire        the lease is over        the method's context ends now, cause ErrLost
//	Lose          somebody deleted it      the same, but at the next renewal
//	HeldByOther,  another takes the lock   the same, and until then two are inside: only the
//	while a                                fencing token tells them apart
//	method runs
//
// HeldByOther takes a mutex. If the method's lock is of another kind (fair, read, write,
// permits or once), the method would get ErrConflict. Then make a second Locker of the Engine,
// and let it take the lock by the same kind of policy.
//
// All switches may be thrown at any time, by any goroutine. When Expire or
// [Engine.Advance] returns, the contexts that it ends have ended. So a test need not
// sleep or poll.
//
// # Time
//
// The best clock for such a test is that of [testing/synctest]. Inside a bubble
// everything here uses that clock: time.Sleep(time.Hour) takes no time, leases
// end and are renewed meanwhile, and the timeouts of the service run too. Make
// the Engine and the Locker inside the bubble. The Locker must also be closed in it,
// as [Engine.Locker] does.
//
// If a bubble can't be used, because the test uses a network, [Engine.Advance]
// moves the clock of the leases. It moves no other clock: wait= and max= of a
// policy, and the deadlines of contexts, use the real clock. So do read-write locks,
// fair locks and semaphores; Expire and Lose end all holds of such a key.
package locktest
