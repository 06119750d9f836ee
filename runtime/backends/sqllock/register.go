package sqllock

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// processKey is the name of the row, in the table of kinds, where a process has what
// [driver.Process] says of it: a version, which is always the same, and JSON in base64,
// which is no record of a lock.
func processKey(id string) string { return "lockgen:process:" + id }

// Register implements [driver.Registrar]. Without strategy Table there is no table for it.
func (b *Backend) Register(ctx context.Context, p *driver.Process, ttl time.Duration) error {
	if b.strategy != Table {
		return nil
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(p.ID))
	version := hex.EncodeToString(sum[:8])
	w := record.Write{Key: processKey(p.ID), Seen: version, Value: version + " " + base64.StdEncoding.EncodeToString(text), Lasts: max(ttl, 0)}
	a, err := store{b}.write(ctx, w)
	if err == nil && !a.Done && ttl > 0 {
		w.Seen = "" // it is the first time
		_, err = store{b}.write(ctx, w)
	}
	return err
}

// Process implements [driver.Registrar].
func (b *Backend) Process(ctx context.Context, id string) (*driver.Process, error) {
	if b.strategy != Table {
		return nil, nil
	}
	a, err := store{b}.read(ctx, processKey(id))
	if err != nil || a.Value == "" {
		return nil, err
	}
	_, encoded, _ := strings.Cut(a.Value, " ")
	text, err := base64.StdEncoding.DecodeString(encoded)
	p := &driver.Process{}
	if err == nil {
		err = json.Unmarshal(text, p)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", driver.ErrConflict, processKey(id), err)
	}
	return p, nil
}
