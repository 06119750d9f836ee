// Package order takes locks in orders that contradict each other.
package order

import (
	"context"
	"errors"
)

type A struct{ b *BWithLock }

type B struct{ a *AWithLock }

//lock:key="a:<id>"
func (a *A) Do(ctx context.Context, id int64) error {
	return a.b.Do(ctx, id) // mistake order: "a:<id>" before "b:<id>", "b:<id>" before "a:<id>"
}

//lock:key="b:<id>"
func (b *B) Do(ctx context.Context, id int64) error { return b.a.Do(ctx, id) }

// One way only.

type C struct{ d *DWithLock }

type D struct{ c *CWithLock }

//lock:key="c:<id>"
func (c *C) Do(ctx context.Context, id int64) error {
	return c.d.Do(ctx, id) // right: the only order
}

//lock:key="d:<id>"
func (d *D) Do(ctx context.Context, id int64) error {
	go d.c.Do(context.Background(), id) //lockcheck:ignore errlost right: holds nothing of the caller's
	return nil
}

// The second has try.

type E struct{ f *FWithLock }

type F struct{ e *EWithLock }

//lock:key="e:<id>"
func (e *E) Do(ctx context.Context, id int64) error {
	return e.f.Do(ctx, id) // right: never waits
}

//lock:key="f:<id>" try
func (f *F) Do(ctx context.Context, id int64) error {
	return f.e.Do(ctx, id) // right: the other has try
}

// Three in a circle.

type X struct{ y *YWithLock }

type Y struct{ z *ZWithLock }

type Z struct{ x *XWithLock }

//lock:key="x:<id>"
func (x *X) Do(ctx context.Context, id int64) error {
	return x.y.Do(ctx, id) // mistake order: "x:<id>" before "y:<id>", "y:<id>" before "z:<id>", "z:<id>" before "x:<id>"
}

//lock:key="y:<id>"
func (y *Y) Do(ctx context.Context, id int64) error { return y.z.Do(ctx, id) }

//lock:key="z:<id>"
func (z *Z) Do(ctx context.Context, id int64) error { return z.x.Do(ctx, id) }

// Of one class.

type Bank struct{ self *BankWithLock }

//lock:key="account:<id>"
func (b *Bank) Add(ctx context.Context, id int64) error { return nil }

//lock:key="account:<from>" reentrant
func (b *Bank) Transfer(ctx context.Context, from, to int64) error {
	return b.self.Add(ctx, to) // mistake order: is held while "account:<id>" is taken with another value
}

//lock:key="account:<id>" reentrant
func (b *Bank) AddTwice(ctx context.Context, id int64) error {
	return b.self.AddAgain(ctx, id) // right: is reentrant
}

//lock:key="account:<id>" reentrant
func (b *Bank) AddAgain(ctx context.Context, id int64) error {
	return b.self.Add(ctx, id) // mistake order: is held already and order.BankWithLock.Add is not reentrant
}

//lock:key="account:<id>" reentrant
func (b *Bank) Draw(ctx context.Context, id int64) error { return nil }

//lock:key="account:<from>"
//lock:key="account:<to>"
func (b *Bank) TransferBoth(ctx context.Context, from, to, fees int64) error {
	return errors.Join(
		b.self.Draw(ctx, from), // right: the call holds both, taken in one order
		b.self.Draw(ctx, to),   // right: and this one
		b.self.Draw(ctx, fees), // mistake order: is held while "account:<id>" is taken with another value
	)
}

type Doc struct{ self *DocWithLock }

//lock:key="doc:<id>" read
func (d *Doc) Read(ctx context.Context, id int64) error {
	return d.self.Write(ctx, id) // mistake order: is held for reading and asked for again for writing
}

//lock:key="doc:<id>" write
func (d *Doc) Write(ctx context.Context, id int64) error { return nil }

//lock:key="doc:<id>" write
func (d *Doc) WriteThenRead(ctx context.Context, id int64) error {
	return d.self.Look(ctx, id) // right: who writes may read
}

//lock:key="doc:<id>" read
func (d *Doc) Look(ctx context.Context, id int64) error { return nil }

// Readers block no readers.

//lock:key="p:<id>" read
func (d *Doc) P(ctx context.Context, id int64) error {
	return d.self.Q(ctx, id) // right: all is read locks
}

//lock:key="q:<id>" read
func (d *Doc) Q(ctx context.Context, id int64) error {
	return d.self.P(ctx, id) // right: all is read locks
}

// What is behind an interface came as one of several results.

type Booker interface {
	Book(ctx context.Context, id int64) error
}

type Desk struct{ hotel Booker }

type Hotel struct{ desk *DeskWithLock }

//lock:key="desk:<id>"
func (d *Desk) Do(ctx context.Context, id int64) error {
	return d.hotel.Book(ctx, id) // mistake order: "desk:<id>" before "hotel:<id>", "hotel:<id>" before "desk:<id>"
}

//lock:key="hotel:<id>"
func (h *Hotel) Book(ctx context.Context, id int64) error { return h.desk.Do(ctx, id) }

func open() (*HotelWithLock, error) { return nil, nil }

func (d *Desk) furnish() (err error) {
	d.hotel, err = open()
	return err
}
