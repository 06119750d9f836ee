package failover_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/severaltest"
	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/driver"
)

// stormy switches as fast as a loaded machine allows.
var stormy = failover.Options{
	LongestTTL: severaltest.StormTTL, Silence: 300 * time.Millisecond, Probe: 50 * time.Millisecond, Timeout: 200 * time.Millisecond,
}

// faultPause is the time between a switch and the next fault.
const faultPause = 700 * time.Millisecond

// servers are real Redis servers: the engines, by name, and the engine of the record.
type servers struct {
	t       *testing.T
	engines map[string]*testserver.Instance
	record  *testserver.Instance
}

func (s *servers) open(well bool) driver.Backend {
	o := stormy
	if well {
		o.Timeout = steady.Timeout
	}
	o.Record = to(s.record.Addr())
	return failover.New(to(s.engines["primary"].Addr()), []driver.Backend{to(s.engines["standby"].Addr())}, o)
}

// injectFaults runs for d. In turn it kills the granting engine, stops it, or switches by hand to the other one. When the other
// engine grants, it ends the fault. An engine that was killed comes back empty.
func (s *servers) injectFaults(d time.Duration) {
	b := s.open(false).(*failover.Backend)
	defer b.Close()
	var longest time.Duration
	faults := 0
	for end := time.Now().Add(d); time.Now().Before(end); faults++ {
		granting := s.status(b, func(failover.Status) bool { return true }).Engine
		engine := s.engines[granting]
		other := map[string]string{"primary": "standby", "standby": "primary"}[granting]
		time.Sleep(faultPause)
		begin := time.Now()
		switch faults % 3 {
		case 0:
			engine.Kill()
		case 1:
			engine.Stop()
		case 2:
			for b.Switch(s.t.Context(), other) != nil && time.Since(begin) < 10*time.Second {
				time.Sleep(stormy.Probe)
			}
		}
		s.status(b, func(is failover.Status) bool { return is.Engine == other && is.Open })
		longest = max(longest, time.Since(begin))
		switch faults % 3 {
		case 0:
			engine.Restart()
		case 1:
			engine.Cont()
		}
	}
	s.t.Logf("%d switches; the longest took %v", faults, longest.Round(time.Millisecond))
}

// status waits until wanted accepts the status in the record, and returns it.
func (s *servers) status(b *failover.Backend, wanted func(failover.Status) bool) failover.Status {
	for begin := time.Now(); ; time.Sleep(stormy.Probe / 2) {
		is, err := b.Status(context.Background())
		if err == nil && wanted(is) {
			return is
		}
		if time.Since(begin) > 30*time.Second {
			s.t.Errorf("after 30 s the record is still %+v, %v", is, err)
			return is
		}
	}
}

// TestStorm has Lockers take locks at random while the engines are killed, stopped and switched.
func TestStorm(t *testing.T) {
	s := &servers{t, map[string]*testserver.Instance{"primary": testserver.StartRedis(t), "standby": testserver.StartRedis(t)}, testserver.StartRedis(t)}
	begin(t, s.open(false))
	severaltest.Storm(t, "failover", s.open, nil, s.injectFaults)
}
