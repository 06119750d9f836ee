package a

import "context"

type Order struct{ ID int64 }

//lock:key="order:<voucherID>"
func Voucher(ctx context.Context, voucherID int64) error { return nil }

//lock:key="stock:<o.ID>"
func Stock(ctx context.Context, o *Order) error { return nil }

//lock:key="user:<name>"
func User(ctx context.Context, name string) error { return nil }
