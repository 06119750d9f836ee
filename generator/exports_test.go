package generator

import (
	"go/token"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExports(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	std := write("std/net/http.a", "")
	elsewhere := filepath.Join(t.TempDir(), "2.go")
	list := write("list", "# a comment\r\n\r\npackagefile example.com/a=out/a.x\npackagedir std\nsourcefile example.com/a=a/1.go\nsourcefile example.com/a="+elsewhere+"\n")
	e, err := readExports(list, dir)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "out/a.x"), e.file("example.com/a"))
	require.Equal(t, std, e.file("net/http"))
	require.Empty(t, e.file("net"))
	require.Equal(t, []string{filepath.Join(dir, "a/1.go"), elsewhere}, e.sources["example.com/a"])

	for _, line := range []string{"importmap a=b", "packagefile a", "packagefile a=", "packagedir", "nonsense", "sourcefile a.go"} {
		_, err := readExports(write("wrong", "\n"+line+"\n"), dir)
		require.ErrorContains(t, err, "wrong:2: "+line+": not packagefile PATH=FILE")
	}
	_, err = readExports(filepath.Join(dir, "missing"), dir)
	require.ErrorIs(t, err, os.ErrNotExist)

	write("std/net/http.a", "nonsense")
	write("std/errors.a", "")
	_, err = e.load(&run{fset: token.NewFileSet()}, []string{"net/http"})
	require.ErrorContains(t, err, "http.a has no export data of net/http that can be read")
	im, err := e.load(&run{fset: token.NewFileSet()}, []string{"example.com/b", RuntimePath})
	require.ErrorContains(t, err, "list names no export data of github.com/lockgen/lockgen/runtime")
	require.ErrorContains(t, importError(im, "example.com/b"), "list names no export data of example.com/b")
}

func importError(im *importer, path string) error {
	_, err := im.Import(path)
	return err
}
