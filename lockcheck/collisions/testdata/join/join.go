// Package join is the first that has both.
package join // want `"order:<userID>" of b.User and "order:<voucherID>" of a.Voucher \(a.go:7\) name different things and make the same keys` `"user:root" of b.Root and "user:<name>" of a.User \(a.go:13\) can make one key, "user:root"`

import (
	_ "example.com/collisions/a"
	_ "example.com/collisions/b"
)
