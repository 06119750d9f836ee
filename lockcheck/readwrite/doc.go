// Package readwrite defines an analyzer that finds writes under a lock that is shared.
//
// # Analyzer readwrite
//
// readwrite: find methods under a read lock that change what they guard
//
// Others are inside together with whoever has the read side of a lock, in this process
// and in others. A method that changes its receiver there needs the write side:
//
//	//lock:key="prices" read
//	func (l *List) Total(ctx context.Context) (int64, error) {
//		l.queries++ // others do the same at that moment
//
// Reported are assignments to fields of the receiver, to elements of its maps and slices
// (also by delete, clear and copy), and to what its pointers lead to. A method that locks a sync.Mutex is left alone, and so
// is what goes through a variable of its own.
package readwrite
