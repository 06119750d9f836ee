// Package app joins them: here the circle can be seen.
package app

import (
	"example.com/order/three/audit"
	"example.com/order/three/order"
	"example.com/order/three/stock"
	lock "github.com/lockgen/lockgen/runtime"
)

func New(l *lock.Locker) *order.ServiceWithLock {
	s := &stock.Service{}
	orders := order.NewServiceWithLock(&order.Service{Stock: stock.NewServiceWithLock(s, l)}, l)
	s.Audit = audit.NewServiceWithLock(&audit.Service{Orders: orders}, l) // want `orders that contradict each other: "audit" before "order:<id>", "order:<id>" before "stock:<sku>", "stock:<sku>" before "audit". Path 1: audit.Service.Note holds "audit" -> order.ServiceWithLock.Place \(audit.go:14\), which locks "order:<id>"; Path 2: order.Service.Place holds "order:<id>" -> stock.ServiceWithLock.Reserve \(order.go:15\), which locks "stock:<sku>"; Path 3: stock.Service.Reserve holds "stock:<sku>" -> stock.Service.note \(stock.go:15\) -> stock.Auditor.Note \(stock.go:18\) = \*example.com/order/three/audit.ServiceWithLock \(app.go:14\), which locks "audit"`
	return orders
}
