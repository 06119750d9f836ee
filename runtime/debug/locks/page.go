package locks

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// every is how often an open page is updated.
const every = time.Second

// ServeHTTP serves the page. The query chooses it: "key" and "backend" the page of one key;
// "patterns", "keys", "orders" and "queue" the part of the list with this name; "events" the stream
// that updates an open page; "profile" a profile, over "seconds" if that is set. ServeHTTP answers
// GET and HEAD. It blocks only for those seconds, and for a stream until its client has gone.
func (m *Monitor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the page of locks answers GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	query := r.URL.Query()
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if query.Has("events") {
		m.stream(w, r, query)
		return
	}
	if query.Has("profile") {
		m.serveProfile(w, r, query)
		return
	}
	m.page(w, query)
}

// page writes the whole page.
func (m *Monitor) page(w http.ResponseWriter, query url.Values) {
	nonce := rand.Text()
	content := struct {
		Title, Nonce string
		Sections     []section
		Key          string
	}{title(), nonce, m.sections(query), query.Get("key")}
	var page bytes.Buffer
	if err := templates.ExecuteTemplate(&page, "page", content); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "+
		"script-src 'nonce-"+nonce+"'; style-src 'nonce-"+nonce+"'")
	_, _ = w.Write(page.Bytes()) // an error means that the client has gone
}

// title names the process in the window's title.
func title() string {
	host, _ := os.Hostname() // empty where the system does not tell
	return fmt.Sprintf("Locks of %s on %s, process %d", filepath.Base(os.Args[0]), host, os.Getpid())
}

// stream sends each section that has changed, as a server-sent event with the section's name.
func (m *Monitor) stream(w http.ResponseWriter, r *http.Request, query url.Values) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tick := time.NewTicker(every)
	defer tick.Stop()
	sent := map[string]template.HTML{}
	for {
		var events bytes.Buffer
		for _, s := range m.sections(query) {
			if sent[s.ID] != s.HTML {
				sent[s.ID] = s.HTML
				writeEvent(&events, s)
			}
		}
		if events.Len() == 0 {
			events.WriteString(":\n\n") // a write fails if the client has gone
		}
		// Extend the server's write timeout, which is for pages. Not every ResponseWriter can.
		_ = out.SetWriteDeadline(time.Now().Add(10 * every))
		if _, err := w.Write(events.Bytes()); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

func writeEvent(to *bytes.Buffer, s section) {
	to.WriteString("event: " + s.ID + "\n")
	for line := range strings.Lines(string(s.HTML)) {
		to.WriteString("data: " + strings.TrimRight(line, "\r\n") + "\n")
	}
	to.WriteString("\n")
}

// section is a part of the page that is replaced at once.
type section struct {
	ID   string
	HTML template.HTML
}

// overview is the top of the page.
type overview struct {
	Now                      time.Time
	Watching, Holds, Waiters int
	CleanUps                 int
	Outages                  []shownOutage
}

type shownOutage struct {
	Backend, Err string
	For          time.Duration
}

// sections returns the parts of the page that query asks for.
func (m *Monitor) sections(query url.Values) []section {
	all, now := m.snapshot()
	render := func(id string, content any) section {
		var out bytes.Buffer
		err := templates.ExecuteTemplate(&out, id, struct {
			Now     time.Time
			Content any
		}{now, content})
		if err != nil {
			out.Reset()
			template.HTMLEscape(&out, []byte(err.Error()))
		}
		return section{id, template.HTML(out.String())}
	}
	if key := query.Get("key"); key != "" {
		holds, waiters := ofKey(all, query.Get("backend"), key)
		return []section{render("key", keyPage{key, query.Get("backend"), holds, cut(waiters, query, "queue")})}
	}
	return []section{
		render("overview", m.overview(all, now)),
		render("patterns", cut(m.patterns(all, now), query, "patterns")),
		render("keys", cut(keys(all), query, "keys")),
		render("orders", ordersPageOf(all, cut(ordersOf(all), query, "orders"))),
		render("happened", m.happened()),
	}
}

// keyPage is the page of one key.
type keyPage struct {
	Key, Backend string
	Holds        []lock.HeldLock
	Queue        list[lock.WaitingCall]
}

func (m *Monitor) overview(all *lock.Snapshot, now time.Time) overview {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := overview{Now: now, Watching: len(m.watched), Holds: len(all.Holds), Waiters: len(all.Waiters), CleanUps: all.CleanUps}
	for backend, down := range m.outages {
		o.Outages = append(o.Outages, shownOutage{backend, down.err, now.Sub(down.since)})
	}
	return o
}

// happened returns the events to show, the last first.
func (m *Monitor) happened() []noted {
	m.mu.Lock()
	defer m.mu.Unlock()
	shown := make([]noted, 0, len(m.events))
	for i := len(m.events) - 1; i >= 0; i-- {
		shown = append(shown, m.events[i])
	}
	return shown
}

//go:embed page.html
var pageText string

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"ago":   func(now, then time.Time) string { return short(now.Sub(then)) },
	"left":  func(now, then time.Time) string { return short(max(then.Sub(now), 0)) },
	"short": short,
	"maybe": func(d *time.Duration) string {
		if d == nil {
			return "–"
		}
		return short(*d)
	},
	"seconds": func(now, then time.Time) string {
		return strconv.FormatFloat(max(then.Sub(now).Seconds(), 0), 'f', 2, 64)
	},
	"full":  func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) },
	"clock": func(t time.Time) string { return t.Format("15:04:05.000") },
	"link": func(backend, key string) string {
		query := url.Values{"key": {key}}
		if backend != "" {
			query.Set("backend", backend)
		}
		return "?" + query.Encode()
	},
	"number": func(first, i int) int { return first + i },
}).Parse(pageText))

// short formats d with at most three digits.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + " µs"
	case d < time.Second:
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'g', 3, 64) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Hour:
		return fmt.Sprintf("%d m %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d m", int(d.Hours()), int(d.Minutes())%60)
}

var _ interface {
	lock.HoldObserver
	http.Handler
} = (*Monitor)(nil)
