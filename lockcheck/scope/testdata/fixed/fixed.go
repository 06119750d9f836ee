package fixed

import (
	"context"
	"net/http"
	"time"
)

type Service struct {
	ready  chan struct{}
	client *http.Client
}

//lock:key="a:<id>" ttl=2s renew=off
func (s *Service) Sleeps(ctx context.Context, id int64) error {
	time.Sleep(time.Second)
	time.Sleep(2 * time.Second) // want `time.Sleep takes 2s, and the lease of "a:<id>" ends after 2s \(renew=off\)`
	<-time.After(time.Minute)   // want `time.After takes 1m0s, and the lease`
	<-time.After(time.Millisecond)
	go func() { time.Sleep(time.Hour) }()
	return nil
}

//lock:key="a:<id>" ttl=2s
func (s *Service) Renewed(ctx context.Context, id int64) error {
	time.Sleep(time.Minute)
	<-s.ready
	_, err := http.Get("http://localhost")
	return err
}

//lock:key="b:<id>" ttl=2s renew=off
func (s *Service) Waits(ctx context.Context, id int64, other <-chan int) error {
	<-s.ready         // want `a wait on s.ready has no bound, and the lease of "b:<id>" ends after 2s \(renew=off\): wait on ctx.Done\(\) beside it`
	for range other { // want `a wait on other has no bound`
	}
	select { // its own bound
	case <-s.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-s.ready: // want `a wait on s.ready has no bound`
	case <-other:
	}
	select {
	case <-s.ready:
	case <-time.After(time.Second):
	}
	select {
	case <-s.ready:
	default:
	}
	done := make(chan error, 1)
	go func() { done <- ctx.Err() }()
	t := time.NewTimer(time.Second)
	<-t.C
	<-ctx.Done()
	return <-done
}

//lock:key="c:<id>" ttl=2s renew=off
func (s *Service) Calls(ctx context.Context, id int64) error {
	if _, err := http.Get("http://localhost"); err != nil { // want `http.Get takes no context and has no bound, and the lease of "c:<id>" ends after 2s`
		return err
	}
	req, err := http.NewRequest("GET", "http://localhost", nil)
	if err != nil {
		return err
	}
	if _, err := http.DefaultClient.Do(req); err != nil { // want `http.DefaultClient.Do takes no context`
		return err
	}
	good, err := http.NewRequestWithContext(ctx, "GET", "http://localhost", nil)
	if err != nil {
		return err
	}
	if _, err := http.DefaultClient.Do(good); err != nil {
		return err
	}
	_, err = s.client.Get("http://localhost") // may have a timeout
	return err
}
