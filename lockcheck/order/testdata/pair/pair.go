package pair

import (
	"context"
	"time"
)

type A struct {
	b *BWithLock
	c *CWithLock
}

type B struct{ a *AWithLock }

type C struct{ a *AWithLock }

//lock:key="a:<id>" reentrant
func (a *A) Do(ctx context.Context, id int64) error {
	if err := a.c.Do(ctx, id); err != nil {
		return err
	}
	return retry(func() error {
		return a.b.Do(ctx, id) // want `locks are taken in orders that contradict each other: "a:<id>" before "b:<id>", "b:<id>" before "a:<id>". Path 1: pair.A.Do holds "a:<id>" -> pair.BWithLock.Do \(pair.go:\d+\), which locks "b:<id>"; Path 2: pair.B.Do holds "b:<id>" -> pair.AWithLock.Do \(pair.go:\d+\), which locks "a:<id>"`
	})
}

//lock:key="b:<id>"
func (b *B) Do(ctx context.Context, id int64) error { return b.a.Do(ctx, id) }

// A goroutine is not waited for, and its call holds nothing of the caller's.
//
//lock:key="c:<id>"
func (c *C) Do(ctx context.Context, id int64) error {
	go c.a.Do(context.Background(), id)
	return nil
}

func retry(f func() error) error {
	for f() != nil {
		time.Sleep(time.Second)
	}
	return nil
}
