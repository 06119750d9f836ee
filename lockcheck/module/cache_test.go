package module

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// trim removes entries that were not used for long, and no file of another program in the folder.
func TestTrim(t *testing.T) {
	c := &cache{dir: t.TempDir()}
	used, unused := digestOf([]byte("used")), digestOf([]byte("unused"))
	c.put(used, 1)
	c.put(unused, 2)
	left := filepath.Join(filepath.Dir(c.path(unused)), "new123") // of a run that was killed
	others := []string{filepath.Join(c.dir, "go", "notes.txt"), filepath.Join(c.dir, "ab", "cd"), filepath.Join(c.dir, "go", "new1")}
	for _, path := range append(others, left) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	old := time.Now().Add(-kept - time.Hour)
	for _, path := range append(others, left, c.path(unused)) {
		require.NoError(t, os.Chtimes(path, old, old))
	}
	c.trim()
	require.FileExists(t, c.path(used))
	require.NoFileExists(t, c.path(unused))
	require.NoFileExists(t, left)
	for _, path := range others {
		require.FileExists(t, path)
	}
}
