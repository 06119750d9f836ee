package generator

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
)

// Here the go command could read a file a moment ago, and lockgen can't. The script "unread" has
// files that neither of them can read.
func TestListedFileCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	loop, gone, ours := filepath.Join(dir, "loop.go"), filepath.Join(dir, "gone.go"), filepath.Join(dir, OutputName)
	require.NoError(t, os.Symlink("loop.go", loop))
	r := newRun(t.Context(), Options{})
	pkgs := r.read(&packages.Package{Name: "svc", PkgPath: "example.com/svc", Dir: dir, GoFiles: []string{gone, loop, ours}})
	require.NotEmpty(t, pkgs)
	for _, p := range pkgs {
		p.scan()
	}
	require.Empty(t, r.plan(pkgs))
	require.Equal(t, []Diagnostic{
		{File: gone, Line: 1, Column: 1, Message: whyUnread(t, gone), Hint: losing},
		{File: loop, Line: 1, Column: 1, Message: whyUnread(t, loop), Hint: losing},
	}, r.result(pkgs).Diagnostics)
}

// whyUnread returns the message about a file, in the words of the system.
func whyUnread(t *testing.T, path string) string {
	_, err := os.ReadFile(path)
	var at *os.PathError
	require.ErrorAs(t, err, &at)
	return "can't be read: " + at.Err.Error()
}

// A promoted method of another package has its directive in a file of that package.
func TestEmbeddedFileCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	repo, err := filepath.Abs("..")
	require.NoError(t, err)
	embedded := filepath.Join(dir, "base", "base.go")
	require.NoError(t, os.Mkdir(filepath.Dir(embedded), 0o700))
	for path, text := range map[string]string{
		filepath.Join(dir, "go.mod"): "module example.com/shop\n\ngo 1.26.0\n\n" +
			"require github.com/lockgen/lockgen v0.0.0\n\nreplace github.com/lockgen/lockgen => " + repo + "\n",
		embedded: "package base\n\nimport \"context\"\n\ntype Base struct{}\n\n" +
			"//lock:key=\"base\"\nfunc (b *Base) Lock(ctx context.Context) error { return nil }\n",
		filepath.Join(dir, "svc.go"): "package shop\n\nimport (\n\t\"context\"\n\n\t\"example.com/shop/base\"\n)\n\ntype Shop struct{ base.Base }\n\n" +
			"//lock:key=\"shop\"\nfunc (s *Shop) Sell(ctx context.Context) error { return nil }\n",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	r := newRun(t.Context(), Options{Dir: dir, Env: append(os.Environ(), "GOPROXY=off", "GOWORK=off", "GOFLAGS=")})
	listed, err := r.list(t.Context())
	require.NoError(t, err)
	pkgs := r.parse(listed)
	for _, p := range pkgs {
		p.scan()
	}
	units := r.plan(pkgs)
	imports, err := r.loadImports(t.Context(), units, nil, nil)
	require.NoError(t, err)
	require.NoError(t, os.Remove(embedded))
	for _, u := range units[0] {
		u.generate(t.Context(), imports, nil)
	}
	res := r.result(pkgs)
	require.Equal(t, []Diagnostic{
		{File: embedded, Line: 1, Column: 1, Message: whyUnread(t, embedded), Hint: losing},
	}, res.Diagnostics)
	require.Empty(t, res.Files)
}
