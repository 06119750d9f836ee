package generator_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/generator"
)

// A lockgen that an older Go built can't read the export data of a newer Go, so it reads the source
// instead. Here the export data of one import claims a format of a far later version, or is not
// export data at all.
func TestExportDataOfNewerGo(t *testing.T) {
	for name, spoil := range map[string]func([]byte) []byte{
		"version": func(data []byte) []byte {
			at := bytes.Index(data, []byte("$$B\nu")) + len("$$B\nu")
			require.Greater(t, at, len("$$B\nu"))
			data[at] = 200 // the first byte of a number
			return data
		},
		"format": func(data []byte) []byte { return bytes.Repeat([]byte("?"), len(data)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := newerModule(t)
			restore := spoilExport(t, dir, spoil)
			var stages []string
			res, err := generator.Generate(t.Context(), generator.Options{
				Dir: dir, Env: offline(), Progress: func(s string) { stages = append(stages, s) },
			})
			require.NoError(t, err)
			require.Empty(t, res.Diagnostics)
			require.Empty(t, res.Warnings)
			require.Len(t, res.Files, 1)
			require.Contains(t, string(res.Files[0].New), "func SellKey(of item.ID) string {\n\treturn \"sell:\" + strconv.FormatInt(int64(of), 10)")
			require.Contains(t, strings.Join(stages, "\n"), "from source")
			restore()
			apply(t, res)
			goCommand(t, dir, "vet", ".")
		})
	}
}

// newerModule returns a module whose annotated signature needs the types of an import.
func newerModule(t *testing.T) string {
	t.Helper()
	dir, repo := t.TempDir(), filepath.Dir(mustAbs(t, "."))
	writeFile(t, filepath.Join(dir, "go.mod"), "module example.com/newer\n\ngo 1.26.0\n\n"+
		"require github.com/lockgen/lockgen v0.0.0\n\nreplace github.com/lockgen/lockgen => "+repo+"\n")
	writeFile(t, filepath.Join(dir, "item", "item.go"), "// Package item is not compiled anywhere else: "+dir+"\npackage item\n\ntype ID int64\n")
	writeFile(t, filepath.Join(dir, "svc.go"), `package newer

import (
	"context"

	"example.com/newer/item"
)

//lock:key="sell:<of>"
func Sell(ctx context.Context, of item.ID) error { return nil }
`)
	return dir
}

// spoilExport changes the export data of the import in the build cache until restore is called. The
// go command looks only at the size.
func spoilExport(t *testing.T, dir string, spoil func([]byte) []byte) (restore func()) {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-f", "{{.Export}}", "./item")
	cmd.Dir, cmd.Env = dir, offline()
	out, err := cmd.Output()
	require.NoError(t, err)
	path := strings.TrimSpace(string(out))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	restore = func() { require.NoError(t, os.WriteFile(path, whole, 0o644)) }
	t.Cleanup(restore)
	require.NoError(t, os.WriteFile(path, spoil(bytes.Clone(whole)), 0o644))
	return restore
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	require.NoError(t, err)
	return abs
}
