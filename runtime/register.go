package lock

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	registerAfter   = time.Second // after the first lease: a process that ends sooner need not be registered
	registerEvery   = 20 * time.Second
	registrationTTL = time.Minute // two tries may fail
)

// registration tells one engine who this Locker is, so that the owner ID of a lock leads
// to its process. No lock depends on it: it begins after the first lease, and if it fails
// it is tried again a period later.
type registration struct {
	engine  driver.Noter
	name    string
	process string // in JSON
	begun   atomic.Bool
	timer   *time.Timer // nil before the first lease; the mutex of the noteWork guards it
	known   bool        // the engine may have it
}

// newRegistrations returns a registration for each backend that can store one and that other
// processes can ask, by the backend's name.
func newRegistrations(l *Locker) map[string]*registration {
	all := map[string]*registration{}
	for name, b := range l.backends {
		engine, ok := b.(driver.Noter)
		if _, shared := b.(driver.Shared); ok && shared {
			text, _ := json.Marshal(thisProcess(l)) // it can be encoded
			all[name] = &registration{engine: engine, name: "process/" + l.id, process: string(text)}
		}
	}
	return all
}

// thisProcess says who l is.
func thisProcess(l *Locker) *driver.Process {
	host, _ := os.Hostname() // empty where the system does not tell
	p := &driver.Process{ID: l.id, Name: l.name, Host: host, PID: os.Getpid(), Since: time.Now().UTC()}
	if info, ok := debug.ReadBuildInfo(); ok {
		p.Service = path.Base(info.Path)
		if info.Main.Version != "(devel)" { // which is no release
			p.Version = info.Main.Version
		}
		at := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs.revision" })
		if at >= 0 && p.Version == "" { // the repository has no go.mod at its root
			p.Version = info.Settings[at].Value
		}
	}
	return p
}

// schedule has the registration made soon, if this is the first lease at the engine.
func (r *registration) schedule(notes *noteWork) {
	if r == nil || r.begun.Load() || r.begun.Swap(true) {
		return
	}
	notes.mu.Lock()
	defer notes.mu.Unlock()
	if notes.open.Err() == nil {
		r.timer = time.AfterFunc(registerAfter, func() { r.register(notes) })
	}
}

// register tells the engine, and again a period later.
func (r *registration) register(notes *noteWork) {
	if !notes.begin() {
		return
	}
	defer notes.work.Done()
	r.known = true
	r.put(notes.open, r.process, registrationTTL)
	r.timer.Reset(registerEvery)
}

// end removes the registration, or leaves it to its expiry if ctx has ended. The noteWork has
// ended before.
func (r *registration) end(ctx context.Context) {
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.known && ctx.Err() == nil {
		r.put(ctx, "", 0)
	}
}

func (r *registration) put(ctx context.Context, text string, ttl time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	_ = r.engine.PutNote(ctx, r.name, text, ttl)
}
