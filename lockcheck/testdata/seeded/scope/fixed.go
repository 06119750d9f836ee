package scope

import (
	"context"
	"database/sql"
	"net"
	"net/http"
	"time"
)

type Fixed struct {
	ready  chan struct{}
	client *http.Client
	db     *sql.DB
	every  time.Duration
}

var unbounded = &http.Client{}
var bounded = &http.Client{Timeout: time.Second}

const long = 3 * time.Second

func pause()           { time.Sleep(long) }
func halt()            { time.Sleep(time.Second) }
func twice()           { halt(); halt() }
func deeper()          { pause() }
func (f *Fixed) rest() { pause() }

func each(f func()) { f() }

func cached(known bool) {
	if known {
		return
	}
	time.Sleep(time.Minute)
}

//lock:key="sleep:<id>" ttl=2s renew=off
func (f *Fixed) Sleeps(ctx context.Context, id int64) error {
	time.Sleep(2 * time.Second)               // mistake scope: time.Sleep takes 2s
	time.Sleep(long)                          // mistake scope: time.Sleep takes 3s
	pause()                                   // mistake scope: pause sleeps 3s
	twice()                                   // mistake scope: twice sleeps 2s
	deeper()                                  // mistake scope: deeper sleeps 3s
	f.rest()                                  // mistake scope: rest sleeps 3s
	func() { time.Sleep(long) }()             // mistake scope: time.Sleep takes 3s
	time.Sleep(time.Second)                   // right: shorter than the ttl
	time.Sleep(f.every)                       // right: not known
	halt()                                    // right: shorter than the ttl
	cached(true)                              // right: does not always sleep
	go pause()                                // right: is not waited for
	go func() { time.Sleep(time.Hour) }()     // right: is not waited for
	later := func() { time.Sleep(time.Hour) } // right: is not called
	_ = later
	time.AfterFunc(time.Second, pause)                       // right: is not waited for
	time.AfterFunc(time.Second, func() { time.Sleep(long) }) // right: is not waited for
	now := func() { time.Sleep(time.Hour) }                  // mistake scope: time.Sleep takes 1h0m0s
	now()
	each(func() { time.Sleep(long) }) // mistake scope: time.Sleep takes 3s
	return nil
}

//lock:key="timer:<id>" ttl=2s renew=off
func (f *Fixed) Timers(ctx context.Context, id int64) error {
	<-time.After(time.Minute)       // mistake scope: time.After takes 1m0s
	t := time.NewTimer(time.Minute) // mistake scope: time.NewTimer takes 1m0s
	<-t.C
	<-time.NewTimer(long).C           // mistake scope: time.NewTimer takes 3s
	tick := time.NewTicker(time.Hour) // mistake scope: time.NewTicker takes 1h0m0s
	defer tick.Stop()
	<-tick.C
	<-time.Tick(time.Hour) // mistake scope: time.Tick takes 1h0m0s
	select {
	case <-f.ready:
	case <-time.After(time.Minute): // mistake scope: time.After takes 1m0s
	}
	<-time.After(time.Second)           // right: shorter than the ttl
	<-time.NewTimer(f.every).C          // right: not known
	short := time.NewTimer(time.Minute) // right: is reset
	short.Reset(time.Second)
	<-short.C
	select {
	case <-time.After(time.Minute): // right: the context ends it
	case <-ctx.Done():
	}
	select {
	case <-time.After(time.Minute): // right: the other is shorter
	case <-time.After(time.Second):
	}
	return nil
}

//lock:key="wait:<id>" ttl=2s renew=off
func (f *Fixed) Waits(ctx context.Context, id int64, other <-chan int) error {
	<-f.ready         // mistake scope: a wait on f.ready has no bound
	for range other { // mistake scope: a wait on other has no bound
	}
	select {
	case <-f.ready: // mistake scope: a wait on f.ready has no bound
	case <-other:
	}
	select {
	case <-f.ready: // right: the context ends it
	case <-ctx.Done():
	}
	select {
	case <-f.ready: // right: a look
	default:
	}
	done := make(chan error, 1)
	go func() { done <- ctx.Err() }()
	<-ctx.Done()  // right: the lock's own bound
	return <-done // right: its own channel
}

//lock:key="call:<id>" ttl=2s renew=off
func (f *Fixed) Calls(ctx context.Context, id int64, conn net.Conn) error {
	_, err := http.Get("http://localhost") // mistake scope: http.Get takes no context
	check(err)
	_, err = unbounded.Get("http://localhost") // mistake scope: unbounded.Get takes no context
	check(err)
	client := &http.Client{}
	_, err = client.Post("http://localhost", "", nil) // mistake scope: client.Post takes no context
	check(err)
	req, err := http.NewRequest("GET", "http://localhost", nil)
	check(err)
	_, err = http.DefaultClient.Do(req) // mistake scope: http.DefaultClient.Do takes no context
	check(err)
	_, err = net.Dial("tcp", "localhost:80") // mistake scope: net.Dial takes no context
	check(err)
	_, err = f.db.Exec("UPDATE a") // mistake scope: use ExecContext
	check(err)
	check(f.db.Ping())                       // mistake scope: use PingContext
	_, err = bounded.Get("http://localhost") // right: has a Timeout
	check(err)
	_, err = f.client.Get("http://localhost") // right: may have a Timeout
	check(err)
	good, err := http.NewRequestWithContext(ctx, "GET", "http://localhost", nil)
	check(err)
	_, err = unbounded.Do(good) // right: the request has the context
	check(err)
	_, err = net.DialTimeout("tcp", "localhost:80", time.Second) // right: has a bound
	check(err)
	_, err = f.db.ExecContext(ctx, "UPDATE a") // right: has the context
	return err
}

// Renewed is renewed as long as it lasts.
//
//lock:key="renewed:<id>" ttl=2s
func (f *Fixed) Renewed(ctx context.Context, id int64) error {
	time.Sleep(time.Minute)                // right: the lease is renewed
	pause()                                // right: the lease is renewed
	<-time.After(time.Minute)              // right: the lease is renewed
	<-f.ready                              // right: the lease is renewed
	_, err := http.Get("http://localhost") // right: the lease is renewed
	return err
}
