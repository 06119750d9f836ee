package module

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/tools/go/packages"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// entry has the results for one package. They depend only on what the key of the package covers.
type entry struct {
	Summary     *facts.Summary
	Diagnostics []Diagnostic
	Within      []string // Diagnostic.within of each diagnostic
}

// cache keeps entries in files that are named by their keys.
type cache struct {
	dir   string            // empty: nothing is stored
	env   map[string]string // of the go command
	base  string            // part of all keys
	keys  map[*packages.Package]string
	texts sync.Map // path: digest of the file
}

// kept is how long an unused entry stays.
const kept = 14 * 24 * time.Hour

// newCache uses the folder that LOCKGENCACHE names, or else the folder lockgen in the user's
// cache. "off" means no cache. If the folder can't be used, runs only take longer.
func newCache(ctx context.Context, opts Options) *cache {
	c := &cache{env: goEnvironment(ctx, opts.Dir), keys: map[*packages.Package]string{}}
	var base strings.Builder
	fmt.Fprintln(&base, "lockgen vet 2", runtime.Version(), opts.BuildFlags, os.Getenv("GOPACKAGESDRIVER"))
	for _, name := range goVariables {
		fmt.Fprintln(&base, name, c.env[name])
	}
	tool, _ := os.Executable()
	for _, program := range []string{tool, filepath.Join(c.env["GOROOT"], "bin", "go")} {
		if info, err := os.Stat(program); err == nil {
			fmt.Fprintln(&base, program, info.Size(), info.ModTime().UnixNano())
		}
	}
	c.base = digestOf([]byte(base.String()))
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

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// digest returns the digest of a file's text when it was first read, or "" if the file can't be
// read.
func (c *cache) digest(path string) string {
	if known, ok := c.texts.Load(path); ok {
		return known.(string)
	}
	digest := ""
	if text, err := os.ReadFile(path); err == nil {
		digest = digestOf(text)
	}
	known, _ := c.texts.LoadOrStore(path, digest)
	return known.(string)
}

// key returns a digest of all that the checks of a package read: its files, and the keys of its
// imports. A module in the module cache never changes, so its version stands for its files. The
// version of Go stands for the standard library. key returns "" if a file can't be read.
func (c *cache) key(p *packages.Package) string {
	if key, ok := c.keys[p]; ok {
		return key
	}
	var all strings.Builder
	fmt.Fprintln(&all, c.base, p.PkgPath)
	known := true
	switch m := p.Module; {
	case c.isStandard(p): // base has the version of Go
		c.keys[p] = digestOf([]byte(all.String()))
		return c.keys[p]
	case isFixed(p):
		fmt.Fprintln(&all, m.Path, m.Version, m.Replace, p.Dir)
	default:
		if m != nil {
			fmt.Fprintln(&all, m.Path, m.Main, m.GoVersion)
		}
		for _, list := range [][]string{p.GoFiles, p.OtherFiles} {
			for _, file := range list {
				text := c.digest(file)
				known = known && text != ""
				fmt.Fprintln(&all, file, text)
			}
		}
	}
	for _, path := range sortedKeys(p.Imports) {
		imported := c.key(p.Imports[path])
		known = known && imported != ""
		fmt.Fprintln(&all, path, imported)
	}
	for _, e := range p.Errors {
		fmt.Fprintln(&all, e.Msg)
	}
	c.keys[p] = ""
	if known {
		c.keys[p] = digestOf([]byte(all.String()))
	}
	return c.keys[p]
}

// isStandard reports whether a package comes with Go. Such a package has no module. Neither have
// files that are named on the command line, nor code outside of modules. A kept listing has no
// files of standard packages.
func (c *cache) isStandard(p *packages.Package) bool {
	return p.Module == nil && (len(p.GoFiles) == 0 || strings.HasPrefix(p.GoFiles[0], filepath.Join(c.env["GOROOT"], "src")+string(filepath.Separator)))
}

// isFixed reports whether a package is in the module cache, where files never change. A vendored
// module has no folder.
func isFixed(p *packages.Package) bool {
	m := p.Module
	return m != nil && m.Version != "" && m.Dir != "" && (m.Replace == nil || m.Replace.Version != "")
}

func (c *cache) path(key string) string { return filepath.Join(c.dir, key[:2], key[2:]) }

// get reads the entry of a key into v.
func (c *cache) get(key string, v any) bool {
	if c.dir == "" || key == "" {
		return false
	}
	path := c.path(key)
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, v) != nil {
		return false
	}
	if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > time.Hour {
		os.Chtimes(path, time.Now(), time.Now()) // marks the file as used
	}
	return true
}

// put writes v under a key, completely or not at all.
func (c *cache) put(key string, v any) {
	if c.dir == "" || key == "" {
		return
	}
	text, err := json.Marshal(v)
	if err != nil || os.MkdirAll(filepath.Dir(c.path(key)), 0o755) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(c.path(key)), "new")
	if err != nil {
		return
	}
	_, err = f.Write(text)
	if closed := f.Close(); err != nil || closed != nil || os.Rename(f.Name(), c.path(key)) != nil {
		os.Remove(f.Name())
	}
}

// trim removes entries that no run has used for two weeks. It does so once a day.
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
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > kept && ours.MatchString(filepath.ToSlash(path)) {
			os.Remove(path)
		}
	}
}

// ours are the paths that path and put make: LOCKGENCACHE may name a folder with other files.
var ours = regexp.MustCompile(`/[0-9a-f]{2}/([0-9a-f]{62}|new[0-9]+)$`)
