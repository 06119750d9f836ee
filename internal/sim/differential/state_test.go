package differential

import (
	"fmt"
	"sort"
	"strconv"

	"github.com/alicebob/miniredis/v2"
)

// entry is one key at a server.
type entry struct {
	kind  string
	ttl   int64    // in ms; 0 if the key has none
	items []string // sorted for a hash, in its order for a sorted set
}

func (e entry) String() string {
	return fmt.Sprintf("%s %v, ttl %d", e.kind, e.items, e.ttl)
}

// state has all keys of a server.
type state map[string]entry

// shortest returns the smallest ttl, or limit if none is smaller.
func (s state) shortest(limit int64) int64 {
	for _, e := range s {
		if e.ttl > 0 {
			limit = min(limit, e.ttl)
		}
	}
	return limit
}

// dumpScript returns all keys of a real server: name, type, PTTL, value. It removes their ttls,
// so that none expires before the next step gives each key its ttl again: see aging.
const dumpScript = `
local all = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local value = {'?'}
  if kind == 'hash' then
    value = redis.call('HGETALL', key)
  elseif kind == 'zset' then
    value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'string' then
    value = {redis.call('GET', key)}
  elseif kind == 'list' then
    value = redis.call('LRANGE', key, 0, -1)
  end
  all[#all + 1] = {key, kind, redis.call('PTTL', key), value}
  redis.call('PERSIST', key)
end
return all`

// stateOf parses the result of dumpScript.
func stateOf(reply value) (state, error) {
	s := state{}
	for _, v := range reply.list {
		if len(v.list) != 4 {
			return nil, fmt.Errorf("a dump of %v", v)
		}
		e := entry{kind: v.list[1].text}
		if left, _ := v.list[2].number(); left >= 0 {
			e.ttl = max(left, 1)
		}
		parts := v.list[3].list
		switch e.kind {
		case "hash", "zset":
			for i := 0; i+1 < len(parts); i += 2 {
				text := parts[i+1].text
				if e.kind == "zset" {
					score, err := strconv.ParseFloat(text, 64)
					if err != nil {
						return nil, err
					}
					text = exact(score)
				}
				e.items = append(e.items, fmt.Sprintf("%q=%q", parts[i].text, text))
			}
		default:
			for _, part := range parts {
				e.items = append(e.items, strconv.Quote(part.text))
			}
		}
		if e.kind == "hash" {
			sort.Strings(e.items)
		}
		s[v.list[0].text] = e
	}
	return s, nil
}

// miniState returns all keys of m, without using commands.
func miniState(m *miniredis.Miniredis) (state, error) {
	s := state{}
	for _, key := range m.Keys() {
		e := entry{kind: m.Type(key), ttl: m.TTL(key).Milliseconds()}
		var err error
		switch e.kind {
		case "hash":
			var fields []string
			fields, err = m.HKeys(key)
			for _, f := range fields {
				e.items = append(e.items, fmt.Sprintf("%q=%q", f, m.HGet(key, f)))
			}
			sort.Strings(e.items)
		case "zset":
			var members []string
			members, err = m.ZMembers(key)
			for _, member := range members {
				score, _ := m.ZScore(key, member)
				e.items = append(e.items, fmt.Sprintf("%q=%q", member, exact(score)))
			}
		case "string":
			var text string
			text, err = m.Get(key)
			e.items = append(e.items, strconv.Quote(text))
		case "list":
			var list []string
			list, err = m.List(key)
			for _, item := range list {
				e.items = append(e.items, strconv.Quote(item))
			}
		default:
			e.items = append(e.items, `"?"`)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		s[key] = e
	}
	return s, nil
}

// exact formats a score so that different scores have different texts.
func exact(score float64) string { return strconv.FormatFloat(score, 'g', -1, 64) }
