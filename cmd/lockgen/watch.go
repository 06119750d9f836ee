package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockgen/lockgen/generator"
)

// interval is how often watchFiles looks at the files. Polling works with every editor's
// way of saving, and on every system.
const interval = 300 * time.Millisecond

// snapshot has the time of the last write and the size of each file that can matter.
type snapshot map[string]stamp

type stamp struct {
	at   time.Time
	size int64
}

// watchFiles generates once, and then whenever a file has changed, until it is interrupted.
func (c *command) watchFiles(ctx context.Context) int {
	var folders []string
	for {
		start, before := time.Now(), c.look(folders)
		res, err := c.once(ctx)
		switch {
		case ctx.Err() != nil:
			return fine
		case err != nil:
			c.broken(res, err)
		default:
			c.finish(res)
			if folders == nil {
				before.addOlder(c.look(res.Folders), start)
			}
			folders = res.Folders
			for _, f := range res.Files { // lockgen's own writes do not count as changes; a user's do
				if f.Change() != generator.None {
					before.note(f.Path)
				}
			}
		}
		changed := c.await(ctx, before, folders)
		if len(changed) == 0 {
			return fine
		}
		fmt.Fprintf(c.stdout, "changed: %s\n", strings.Join(changed, ", "))
	}
}

// await returns the files that have changed since before. It returns none if ctx has ended.
func (c *command) await(ctx context.Context, before snapshot, folders []string) []string {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var names []string
		for _, path := range before.changes(c.look(folders)) {
			names = append(names, c.relative(path))
		}
		if len(names) > 0 {
			return names
		}
	}
}

// look records the Go files of the folders, go.mod and go.work. If a pattern has "...", it also
// records all Go files below c.dir, because new folders may match.
func (c *command) look(folders []string) snapshot {
	s := snapshot{}
	for d := c.dir; ; d = filepath.Dir(d) {
		s.note(filepath.Join(d, "go.mod"))
		s.note(filepath.Join(d, "go.work"))
		if d == filepath.Dir(d) {
			break
		}
	}
	for _, folder := range append(folders, c.dir) {
		entries, _ := os.ReadDir(folder) // a removed folder is a change too
		for _, e := range entries {
			s.noteGo(filepath.Join(folder, e.Name()))
		}
	}
	if slices.ContainsFunc(c.args, func(p string) bool { return strings.Contains(p, "...") }) {
		_ = filepath.WalkDir(c.dir, func(path string, e fs.DirEntry, err error) error {
			switch name := filepath.Base(path); {
			case err != nil:
				return nil // it was removed meanwhile
			case !e.IsDir():
				s.noteGo(path)
			case path != c.dir && (name[0] == '.' || name[0] == '_' || name == "testdata" || name == "vendor" || name == "node_modules"):
				return fs.SkipDir
			}
			return nil
		})
	}
	return s
}

func (s snapshot) noteGo(path string) {
	if base := filepath.Base(path); filepath.Ext(base) == ".go" && base[0] != '.' {
		s.note(path)
	}
}

func (s snapshot) note(path string) {
	if info, err := os.Stat(path); err == nil {
		s[path] = stamp{info.ModTime(), info.Size()}
	} else {
		delete(s, path)
	}
}

// addOlder adds the files that a later look found in more folders. It leaves out those written
// since start: they count as changed.
func (s snapshot) addOlder(later snapshot, start time.Time) {
	for path, at := range later {
		if _, known := s[path]; !known && at.at.Before(start) {
			s[path] = at
		}
	}
}

// changes lists what was added, removed or written, sorted.
func (s snapshot) changes(now snapshot) []string {
	var out []string
	for path, at := range now {
		if old, ok := s[path]; !ok || !old.at.Equal(at.at) || old.size != at.size {
			out = append(out, path)
		}
	}
	for path := range s {
		if _, ok := now[path]; !ok {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out
}
