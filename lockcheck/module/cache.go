package module

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/tools/go/packages"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// entry is what is known of one package: nothing in it depends on more than the key of
// the package says.
type entry struct {
	Summary     *facts.Summary
	Diagnostics []Diagnostic
	Within      []string // of each diagnostic
}

// cache keeps entries in files that are named by their keys.
type cache struct {
	dir  string // empty keeps nothing
	keys map[*packages.Package]string
	base string // what goes into all keys
}

// kept is how long an entry stays that no run has used.
const kept = 14 * 24 * time.Hour

// newCache uses the folder that LOCKGENCACHE names, or lockgen in the user's cache; "off"
// is none. A cache that can't be used costs time and nothing else.
func newCache(opts Options) *cache {
	c := &cache{keys: map[*packages.Package]string{}}
	h := sha256.New()
	fmt.Fprintln(h, "lockgen vet 1", runtime.Version(), os.Getenv("GOOS"), os.Getenv("GOARCH"), os.Getenv("GOFLAGS"), os.Getenv("GOEXPERIMENT"), os.Getenv("CGO_ENABLED"), opts.BuildFlags)
	if tool, err := os.Executable(); err == nil {
		if info, err := os.Stat(tool); err == nil {
			fmt.Fprintln(h, tool, info.Size(), info.ModTime().UnixNano())
		}
	}
	c.base = sum(h)
	c.dir = os.Getenv("LOCKGENCACHE")
	if c.dir == "" {
		if user, err := os.UserCacheDir(); err == nil {
			c.dir = filepath.Join(user, "lockgen")
		}
	}
	if c.dir == "off" || c.dir != "" && os.MkdirAll(c.dir, 0o755) != nil {
		c.dir = ""
	}
	return c
}

func sum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// key is a digest of all that the checks of a package can see: its files, and the keys of
// its imports. A module in the module cache never changes, so its version stands for its
// files. It is "" if a file can't be read.
func (c *cache) key(p *packages.Package) string {
	if key, ok := c.keys[p]; ok {
		return key
	}
	h := sha256.New()
	fmt.Fprintln(h, c.base, p.PkgPath)
	known := true
	switch m := p.Module; {
	case isStandard(p): // a new Go comes with new files
		for _, file := range p.GoFiles {
			if info, err := os.Stat(file); err == nil {
				fmt.Fprintln(h, file, info.Size(), info.ModTime().UnixNano())
			}
		}
	case m != nil && m.Version != "" && (m.Replace == nil || m.Replace.Version != ""):
		fmt.Fprintln(h, m.Path, m.Version, m.Replace, p.Dir)
	default:
		if m != nil {
			fmt.Fprintln(h, m.Path, m.Main, m.GoVersion)
		}
		for _, list := range [][]string{p.GoFiles, p.OtherFiles} {
			for _, file := range list {
				text, err := os.ReadFile(file)
				known = known && err == nil
				fmt.Fprintf(h, "%s %x\n", file, sha256.Sum256(text))
			}
		}
	}
	for _, path := range sortedKeys(p.Imports) {
		imported := c.key(p.Imports[path])
		known = known && imported != ""
		fmt.Fprintln(h, path, imported)
	}
	for _, e := range p.Errors {
		fmt.Fprintln(h, e.Msg)
	}
	c.keys[p] = ""
	if known {
		c.keys[p] = sum(h)
	}
	return c.keys[p]
}

// isStandard reports whether a package comes with Go. It has no module, as have files that
// are named on the command line.
func isStandard(p *packages.Package) bool {
	return p.Module == nil && p.PkgPath != "command-line-arguments"
}

func (c *cache) path(key string) string { return filepath.Join(c.dir, key[:2], key[2:]) }

// get reads into v what was put under a key.
func (c *cache) get(key string, v any) bool {
	if c.dir == "" || key == "" {
		return false
	}
	path := c.path(key)
	text, err := os.ReadFile(path)
	if err != nil || gob.NewDecoder(bytes.NewReader(text)).Decode(v) != nil {
		return false
	}
	if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > time.Hour {
		os.Chtimes(path, time.Now(), time.Now()) // it is in use
	}
	return true
}

// put writes v in whole or not at all.
func (c *cache) put(key string, v any) {
	if c.dir == "" || key == "" {
		return
	}
	var text bytes.Buffer
	if gob.NewEncoder(&text).Encode(v) != nil || os.MkdirAll(filepath.Dir(c.path(key)), 0o755) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(c.path(key)), "new")
	if err != nil {
		return
	}
	_, err = f.Write(text.Bytes())
	if closed := f.Close(); err != nil || closed != nil || os.Rename(f.Name(), c.path(key)) != nil {
		os.Remove(f.Name())
	}
}

// trim removes, once a day, what no run has used for two weeks.
func (c *cache) trim() {
	stamp := filepath.Join(c.dir, "trimmed")
	if info, err := os.Stat(stamp); c.dir == "" || err == nil && time.Since(info.ModTime()) < 24*time.Hour {
		return
	}
	if os.WriteFile(stamp, nil, 0o644) != nil {
		return
	}
	files, _ := filepath.Glob(filepath.Join(c.dir, "??", "*"))
	for _, path := range files {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > kept {
			os.Remove(path)
		}
	}
}
