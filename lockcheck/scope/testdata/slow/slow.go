package slow

import (
	"context"
	"net/http"
	"time"
)

type Service struct {
	ready chan struct{}
	every time.Duration
}

var shared = &http.Client{}
var bounded = &http.Client{Timeout: time.Second}
var changed = &http.Client{}

func init() { changed.Timeout = time.Second }

func pause()             { time.Sleep(3 * time.Second) }
func twice()             { halt(); halt() }
func halt()              { time.Sleep(time.Second) }
func (s *Service) rest() { pause() }

func failing() error {
	if err := check(); err != nil {
		return err
	}
	time.Sleep(time.Minute)
	return nil
}

func check() error { return nil }

func cached(known bool) {
	if known {
		return
	}
	time.Sleep(time.Minute)
}

func retry(fails bool) {
	if fails {
		time.Sleep(time.Minute)
	}
	later := func() { time.Sleep(time.Minute) }
	go later()
	go pause()
}

//lock:key="a:<id>" ttl=2s renew=off
func (s *Service) Helpers(ctx context.Context, id int64) error {
	pause()  // want `slow.pause sleeps 3s, and the lease of "a:<id>" ends after 2s \(renew=off\)`
	twice()  // want `slow.twice sleeps 2s`
	s.rest() // want `slow.Service.rest sleeps 3s`
	halt()
	cached(true)
	retry(false)
	go pause()
	return failing() // want `slow.failing sleeps 1m0s`
}

//lock:key="a:<id>" ttl=2s
func (s *Service) Renewed(ctx context.Context, id int64) error {
	pause()
	_, err := shared.Get("http://localhost")
	return err
}

//lock:key="b:<id>" ttl=2s renew=off
func (s *Service) Timers(ctx context.Context, id int64) error {
	t := time.NewTimer(time.Minute) // want `time.NewTimer takes 1m0s, and the lease of "b:<id>" ends after 2s \(renew=off\)`
	<-t.C
	<-time.NewTimer(3 * time.Second).C // want `time.NewTimer takes 3s`
	select {
	case <-s.ready:
	case <-time.After(time.Minute): // want `time.After takes 1m0s`
	}
	tick := time.NewTicker(time.Hour) // want `time.NewTicker takes 1h0m0s`
	defer tick.Stop()
	<-tick.C
	return nil
}

// Short, bounded otherwise, of a time that is not known, or changed.
//
//lock:key="b:<id>" ttl=2s renew=off
func (s *Service) ShortTimers(ctx context.Context, id int64) error {
	<-time.NewTimer(time.Second).C
	<-time.NewTimer(s.every).C
	select {
	case <-s.ready:
	case <-time.After(time.Minute):
	case <-ctx.Done():
	}
	select {
	case <-time.After(time.Minute):
	case <-time.After(time.Second):
	}
	select {
	case <-time.After(time.Minute):
	default:
	}
	t := time.NewTimer(time.Minute)
	t.Reset(time.Second)
	<-t.C
	return nil
}

//lock:key="c:<id>" ttl=2s renew=off
func (s *Service) Clients(ctx context.Context, id int64) error {
	client := &http.Client{}
	if _, err := client.Get("http://localhost"); err != nil { // want `client.Get takes no context and has no bound, and the lease of "c:<id>" ends after 2s`
		return err
	}
	if _, err := shared.Get("http://localhost"); err != nil { // want `shared.Get takes no context`
		return err
	}
	if _, err := bounded.Get("http://localhost"); err != nil {
		return err
	}
	if _, err := changed.Get("http://localhost"); err != nil {
		return err
	}
	own := &http.Client{Transport: http.DefaultTransport}
	if _, err := own.Get("http://localhost"); err != nil {
		return err
	}
	late := &http.Client{}
	late.Timeout = time.Second
	if _, err := late.Get("http://localhost"); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "GET", "http://localhost", nil)
	if err != nil {
		return err
	}
	_, err = shared.Do(req)
	return err
}
