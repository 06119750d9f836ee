package a

import "context"

type Order struct{ ID int64 }

//lock:key="order:<voucherID>"
func Voucher(ctx context.Context, voucherID int64) error { return nil }

//lock:key="stock:<o.ID>"
func Stock(ctx context.Context, o *Order) error { return nil }

//lock:key="user:<name>"
func User(ctx context.Context, name string) error { return nil }

//lock:key="price:<id>" read
func Price(ctx context.Context, id int64) error { return nil }

//lock:key="downloads" permits=3
func Download(ctx context.Context) error { return nil }
