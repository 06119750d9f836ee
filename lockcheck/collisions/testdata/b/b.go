package b

import "context"

//lock:key="order:<userID>"
func User(ctx context.Context, userID int64) error { return nil }

//lock:key="stock:<orderID>"
func Stock(ctx context.Context, orderID int64) error { return nil }

//lock:key="user:root"
func Root(ctx context.Context) error { return nil }

//lock:key="price:<id>" write
func SetPrice(ctx context.Context, id int64) error { return nil }

//lock:key="downloads" permits=4
func Download(ctx context.Context) error { return nil }
