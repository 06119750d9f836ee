package lock

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	registerAfter   = time.Second // of the first lease: a process that is over by then is nobody's riddle
	registerEvery   = 20 * time.Second
	registeredFor   = time.Minute // two tries may fail
	registerTimeout = time.Second
)

// registration tells one engine who this Locker is, so that the owner ID of a lock leads
// to its process. It is no part of a lock: it begins with the first lease, and what fails
// is tried again a period later.
type registration struct {
	engine  driver.Noter
	name    string
	process string // in JSON
	begun   atomic.Bool

	mu     sync.Mutex
	timer  *time.Timer // nil before the first lease
	known  bool        // the engine may know us
	ended  bool
	cancel context.CancelFunc // of the call under way
	call   sync.WaitGroup
}

// registrations are those of a Locker, by the backend's name.
type registrations map[string]*registration

// newRegistrations returns those at the backends that can keep one, and that other processes
// can ask.
func newRegistrations(l *Locker) registrations {
	all := registrations{}
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
		p.Service, p.Version = path.Base(info.Path), info.Main.Version
		if p.Version == "(devel)" { // of no release
			p.Version = ""
		}
		at := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs.revision" })
		if at >= 0 && p.Version == "" {
			p.Version = info.Settings[at].Value
		}
	}
	return p
}

// begin has the registration made soon, if this is the first lease at the engine.
func (r *registration) begin() {
	if r == nil || r.begun.Load() || r.begun.Swap(true) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.timer = time.AfterFunc(registerAfter, r.register)
	}
}

// register tells the engine, and again a period later.
func (r *registration) register() {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), registerTimeout)
	r.known, r.cancel = true, cancel
	r.call.Add(1)
	r.mu.Unlock()

	_ = r.engine.PutNote(ctx, r.name, r.process, registeredFor)

	cancel()
	r.call.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.timer.Reset(registerEvery)
	}
}

// end takes the registrations away, or leaves them to their expiry if ctx ends first.
func (all registrations) end(ctx context.Context) {
	var work sync.WaitGroup
	for _, r := range all {
		work.Go(func() { r.end(ctx) })
	}
	work.Wait()
}

func (r *registration) end(ctx context.Context) {
	r.mu.Lock()
	r.ended = true
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.cancel != nil {
		r.cancel()
	}
	known := r.known
	r.mu.Unlock()
	r.call.Wait()
	if !known || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	_ = r.engine.PutNote(ctx, r.name, "", 0)
}
