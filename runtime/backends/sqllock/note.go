package sqllock

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/internal/record"
)

// noteKey is the name of the row, in the table of kinds, where the note of this name is: a
// version, which is always the same, and its text in base64, which is no record of a lock.
func noteKey(name string) string { return "lockgen:" + strings.Replace(name, "/", ":", 1) }

// PutNote implements [driver.Noter]. Without strategy Table there is no table for it.
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	if b.strategy != Table {
		return errors.ErrUnsupported
	}
	sum := sha256.Sum256([]byte(name))
	version := hex.EncodeToString(sum[:8])
	w := record.Write{Key: noteKey(name), Seen: version, Value: version + " " + base64.StdEncoding.EncodeToString([]byte(text)), Lasts: max(ttl, 0)}
	a, err := store{b}.write(ctx, w)
	if err == nil && !a.Done && ttl > 0 {
		w.Seen = "" // there is none
		_, err = store{b}.write(ctx, w)
	}
	return err
}

// Note implements [driver.Noter].
func (b *Backend) Note(ctx context.Context, name string) (string, error) {
	if b.strategy != Table {
		return "", nil
	}
	a, err := store{b}.read(ctx, noteKey(name))
	if err != nil {
		return "", err
	}
	_, encoded, _ := strings.Cut(a.Value, " ")
	text, err := base64.StdEncoding.DecodeString(encoded)
	return string(text), err
}
