// Package readwrite defines an analyzer that finds writes under a shared lock.
//
// # Analyzer readwrite
//
// readwrite: find methods under a read lock that change what they guard
//
// The read side of a lock has many holders at once, in this process and in others. A
// method that changes its receiver needs the write side:
//
//	//lock:key="prices" read
//	func (l *List) Total(ctx context.Context) (int64, error) {
//		l.queries++ // other holders do the same at that moment
//
// Reported are assignments to fields of the receiver, to elements of its maps and slices
// (also by delete, clear and copy), and to what its pointers lead to. Not reported are a
// method that locks a sync.Mutex, and an assignment through a local variable.
package readwrite
