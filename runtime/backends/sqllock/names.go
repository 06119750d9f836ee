package sqllock

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

const (
	// maxKey is the longest key taken, in bytes: what an index of MySQL takes
	// in every row format that is in use, and shorter than a page's.
	maxKey = 1024
	// maxID is the longest acquisition id that its column takes.
	maxID = 128
	// queueEntryLength is the length of a process's entry in a queue.
	queueEntryLength = 17
)

// hashedPrefix begins the MySQL lock names that are hashes.
const hashedPrefix = "lockgen:"

// MySQLName returns the name under which strategy [Advisory] locks key by GET_LOCK on MySQL and
// MariaDB: key itself if it has at most 64 characters, all of them printable ASCII, and no space or
// capital. (MySQL takes no longer names, and ignores their letter case and trailing spaces.)
// Any other key is locked as, in SQL,
//
//	CONCAT('lockgen:', LEFT(SHA2('<key>', 256), 40))
func MySQLName(key string) string {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r >= 'A' && r <= 'Z' }
	if len(key) <= 64 && !strings.ContainsFunc(key, odd) && !strings.HasPrefix(key, hashedPrefix) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hashedPrefix + hex.EncodeToString(sum[:20])
}

// PostgresKey returns the number under which strategy [Advisory] locks key by
// pg_advisory_lock(bigint): the first eight bytes of its SHA-256. In SQL,
//
//	('x' || left(encode(sha256('<key>'), 'hex'), 16))::bit(64)::bigint
func PostgresKey(key string) int64 {
	sum := sha256.Sum256([]byte(key))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,47}(\.[A-Za-z_][A-Za-z0-9_]{0,47})?$`)

// queueEntry stands for the Locker of an acquisition in queues and notices.
func queueEntry(id string) string {
	sum := sha1.Sum([]byte(engine.Process(id)))
	return "." + hex.EncodeToString(sum[:8])
}

// digest names a key in a notice, whose length PostgreSQL limits. notify.sql computes it too.
func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}

// tombstoneMark is an acquisition's id as it stands in a list of tombstones.
func tombstoneMark(id string) string { return "|" + id + "|" }

func checkAcquisition(a *driver.Acquisition) error {
	switch {
	case a.Key == "" || len(a.Key) > maxKey:
		return fmt.Errorf("%w: the key has %d bytes; sqllock takes from 1 to %d (hash what is longer)", driver.ErrInvalid, len(a.Key), maxKey)
	case a.ID == "" || len(a.ID) > maxID:
		return fmt.Errorf("%w: the acquisition's id has %d bytes; sqllock takes from 1 to %d", driver.ErrInvalid, len(a.ID), maxID)
	case a.TTL < minTTL || a.TTL > maxTTL:
		return fmt.Errorf("%w: a lease of %v; sqllock takes from %v to %v", driver.ErrInvalid, a.TTL, minTTL, maxTTL)
	}
	return nil
}
