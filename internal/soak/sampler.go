package soak

import (
	"context"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"

	"github.com/lockgen/lockgen/internal/soak/history"
)

const sampleEvery = 25 * time.Millisecond

// snapshotScript returns all keys at one instant: name, type, pttl, and the fields of hashes
// or the value of a string and the server's clock.
const snapshotScript = `
local all = {}
for _, name in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', name)['ok']
  local row = {name, kind, redis.call('PTTL', name)}
  if kind == 'hash' then
    for _, word in ipairs(redis.call('HGETALL', name)) do row[#row + 1] = word end
  end
  if kind == 'string' then
    local time = redis.call('TIME')
    row[4], row[5] = redis.call('GET', name), time[1] * 1000000 + time[2]
  end
  all[#all + 1] = row
end
return all`

// sample takes samples of the server's keys until ctx ends. If a fault of the server cuts its
// connection, it dials again.
func sample(ctx context.Context, server *testserver.Instance) (samples []history.Sample) {
	var conn *testserver.Conn
	for ctx.Err() == nil {
		var err error
		if conn == nil {
			conn, err = testserver.Dial(ctx, server.Addr())
		}
		var s history.Sample
		if err == nil {
			s, err = snapshot(ctx, conn)
		}
		switch {
		case err == nil:
			samples = append(samples, s)
		case conn != nil:
			conn.Close()
			conn = nil
		}
		pause(ctx, sampleEvery)
	}
	if conn != nil {
		conn.Close()
	}
	return samples
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func snapshot(ctx context.Context, conn *testserver.Conn) (s history.Sample, err error) {
	s.Begin = history.Now()
	reply, err := conn.Do(ctx, "EVAL", snapshotScript, "0")
	s.End = history.Now()
	if err != nil {
		return s, err
	}
	rows, _ := reply.([]any)
	for _, row := range rows {
		k, ok := keyState(row)
		if !ok {
			return s, fmt.Errorf("snapshot: row %v", row)
		}
		s.Keys = append(s.Keys, k)
	}
	return s, nil
}

func keyState(row any) (k history.KeyState, ok bool) {
	words, _ := row.([]any)
	if len(words) < 3 {
		return k, false
	}
	k.Name, _ = words[0].(string)
	k.Type, _ = words[1].(string)
	k.PTTL, ok = words[2].(int64)
	if len(words) == 5 && history.IsKinded(k.Name) {
		k.Value, _ = words[3].(string)
		k.Now, _ = words[4].(int64)
	}
	for rest := words[3:]; len(rest) >= 2; rest = rest[2:] {
		if k.Fields == nil {
			k.Fields = map[string]string{}
		}
		field, _ := rest[0].(string)
		k.Fields[field], _ = rest[1].(string)
	}
	return k, ok
}
