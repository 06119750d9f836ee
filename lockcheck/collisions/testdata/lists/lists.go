package lists

import "context"

//lock:key="basket:<names...>"
func Fill(ctx context.Context, names []string) error { return nil }

// The element of a list is the same lock on purpose.
//
//lock:key="basket:<name>"
func Empty(ctx context.Context, name string) error { return nil }

/* want `"basket:all" of lists.Sweep and "basket:<names...>" of lists.Fill \(lists.go:5\) can make one key, "basket:all": let their literals differ before the first placeholder` */ //lock:key="basket:all"
func Sweep(ctx context.Context) error                                                                                                                                                { return nil }

//lock:key="shelf:<ids...>"
func Sort(ctx context.Context, ids []int64) error { return nil }

// A number is never this word.
//
//lock:key="shelf:all"
func SortAll(ctx context.Context) error { return nil }
