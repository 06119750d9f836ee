// Package join is the first that has both.
package join // want `"order:<userID>" of b.User and "order:<voucherID>" of a.Voucher \(a.go:7\) name different things and make the same keys` `"user:root" of b.Root and "user:<name>" of a.User \(a.go:13\) can make one key, "user:root"` `"downloads" of b.Download is a semaphore of 4, and "downloads" of a.Download \(a.go:19\), which makes the same keys, is a semaphore of 3: give all locks of a key the same kind`

import (
	_ "example.com/collisions/a"
	_ "example.com/collisions/b"
)
