package generator

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
)

// growing are packages of n things. Time and memory must grow linearly with n.
var growing = []struct {
	name   string
	source func(n int) string
}{
	{"types", func(n int) string {
		return repeated("type base struct{}\n", n, "\ntype service%d struct{ base }\n\n//lock:key=\"s%[1]d:<id>\" ttl=5s\n"+
			"func (s *service%[1]d) Do(ctx context.Context, id string) error { return nil }\n")
	}},
	{"plain methods", func(n int) string {
		return repeated("type service struct{}\n\n//lock:key=\"s:<id>\"\nfunc (s *service) Do(ctx context.Context, id string) error { return nil }\n",
			n, "\nfunc (s *service) plain%d(ctx context.Context, id string) error { return nil }\n")
	}},
	{"directives", func(n int) string {
		return repeated("type service struct{}\n", n,
			"\n//lock:key=\"s%d:<id>\" wait=2s\nfunc (s *service) do%[1]d(ctx context.Context, id string) error { return nil }\n")
	}},
	{"locks of a method", func(n int) string {
		return repeated("type service struct{}\n", n, "\n//lock:key=\"s%d:<id>\"") +
			"\nfunc (s *service) Do(ctx context.Context, id string) error { return nil }\n"
	}},
	{"functions", func(n int) string {
		return repeated("", n, "\n//lock:key=\"s%d:<id>\"\nfunc do%[1]d(ctx context.Context, id string) error { return nil }\n")
	}},
	{"methods of an interface", func(n int) string {
		return repeated("type service interface {\n", n, "\t//lock:key=\"s%d:<id>\"\n\tDo%[1]d(ctx context.Context, id string) error\n") + "}\n"
	}},
}

func repeated(head string, n int, format string) string {
	var b strings.Builder
	b.WriteString("package svc\n\nimport \"context\"\n\n" + head)
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// generateShape returns a function that generates for the file src.
func generateShape(t testing.TB, src string) func() {
	t.Helper()
	path := filepath.Join(t.TempDir(), "svc.go")
	require.NoError(t, os.WriteFile(path, []byte(src), 0o600))
	_, err := fuzzImports() // they are loaded once, and that takes time
	require.NoError(t, err)
	return func() { generateAlone(t, path, src) }
}

// The bytes that a run allocates grow linearly with the input. A copy of all names for each of
// them, or a message for each pair, is noticed here on the busiest machine.
func TestAllocations(t *testing.T) {
	const few, times, limit = 60, 8, 10
	for _, shape := range growing {
		t.Run(shape.name, func(t *testing.T) {
			one, many := allocated(generateShape(t, shape.source(few))), allocated(generateShape(t, shape.source(few*times)))
			if ratio := float64(many) / float64(one); ratio > limit {
				t.Errorf("%d times as many %s allocate %.1f times as many bytes: %d, %d", times, shape.name, ratio, one, many)
			}
		})
	}
}

func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func BenchmarkGenerate(b *testing.B) {
	for _, shape := range growing {
		for _, n := range []int{500, 4000} {
			b.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(shape.name, " ", "-"), n), func(b *testing.B) {
				run := generateShape(b, shape.source(n))
				b.ReportAllocs()
				for b.Loop() {
					run()
				}
			})
		}
	}
}

// Most files of most modules have no directive. Their texts are dropped once they were searched.
// The text of a file next to annotated code is read again when it is parsed.
func TestTextsAreNotKept(t *testing.T) {
	dir := t.TempDir()
	l := &packages.Package{Name: "svc", PkgPath: "example.com/svc", Dir: dir}
	for i := range 40 {
		path := filepath.Join(dir, fmt.Sprintf("f%d.go", i))
		src := repeated("", 50, fmt.Sprintf("// F%d_%%d takes no lock.\nfunc F%d_%%[1]d() {}\n", i, i))
		if i == 20 {
			src = repeated("", 1, "\n//lock:key=\"s%d\"\nfunc do(ctx context.Context) error { return nil }\n")
		}
		require.NoError(t, os.WriteFile(path, []byte(src), 0o600))
		l.GoFiles = append(l.GoFiles, path)
	}
	r := newRun(t.Context(), Options{})
	found := r.read(l)[0]
	require.Len(t, found.files, 40)
	kept := 0
	for _, f := range found.files {
		require.NotNil(t, f.syntax)
		kept += len(f.text)
	}
	r.texts.Range(func(_, known any) bool {
		kept += len(known.(*source).text)
		return true
	})
	require.Less(t, kept, 500)
}
