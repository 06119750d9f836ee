package generator

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The time that a package takes grows with its types, and no faster. Times of one
// machine are compared with each other, so its speed does not matter. A machine
// that is busy can make one try look worse, so the best of three counts: code that
// is quadratic or cubic takes 64 or 512 times as long in each of them.
func TestGrowth(t *testing.T) {
	const few, times, limit = 80, 8, 24
	best := 0.0
	for range 3 {
		one, many := generateTypes(t, few), generateTypes(t, few*times)
		if ratio := float64(many) / float64(one); best == 0 || ratio < best {
			best = ratio
		}
		if best < limit {
			return
		}
	}
	t.Fatalf("%d times the types take %.0f times as long", times, best)
}

// generateTypes generates for n annotated types and says how long it took.
func generateTypes(t *testing.T, n int) time.Duration {
	t.Helper()
	var src strings.Builder
	src.WriteString("package svc\n\nimport \"context\"\n\ntype base struct{}\n")
	for i := range n {
		fmt.Fprintf(&src, "\ntype service%d struct{ base }\n\n//lock:key=\"s%d:<id>\" ttl=5s\n"+
			"func (s *service%d) Do(ctx context.Context, id string) error { return nil }\n", i, i, i)
	}
	path := filepath.Join(t.TempDir(), "svc.go")
	if err := os.WriteFile(path, []byte(src.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fuzzImports(); err != nil { // they are loaded once, and that takes its time
		t.Fatal(err)
	}
	start := time.Now()
	generateAlone(t, path, src.String())
	return time.Since(start)
}
