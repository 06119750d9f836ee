package differential

import "strconv"

// redisson is the owner ID of a client of Redisson, whose layout of locks we use.
const redisson = "285475da-9152-4c83-822a-67ee2f116a79:52"

// The scripts of Redisson's RLock.
const (
	redissonLock = `if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
redis.call('hincrby', KEYS[1], ARGV[2], 1)
redis.call('pexpire', KEYS[1], ARGV[1])
return nil
end
return redis.call('pttl', KEYS[1])`

	redissonUnlock = `if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
return nil
end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then
return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], 0)
return 1`

	redissonRenew = `if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
redis.call('pexpire', KEYS[1], ARGV[1])
return 1
end
return 0`
)

// otherClient draws a command of another client about the keys of a lock.
func (d *drawer) otherClient() step {
	a := d.anyone()
	k := namesOf(a.lock)
	ms := strconv.Itoa(pick(d, 0, -50, 50, 500, 10000, 60000))
	entry := a.entry()
	score := pick(d, "1", "-4000000000001", "-1782907200623", "4503599627370496", "1782907200123456", "0.5")
	s := step{does: "another client"}
	switch d.IntN(15) {
	case 0, 1, 2:
		return d.redisson(k)
	case 3:
		s.args = pick(d, []string{"DEL", k.lock}, []string{"DEL", k.lock, k.queue, k.token, k.strangers, k.undone + a.id},
			[]string{"UNLINK", k.queue}, []string{"DEL", k.strangers}, []string{"DEL", k.token}, []string{"FLUSHALL"})
	case 4:
		s.args = pick(d, []string{"SET", k.lock, "x"}, []string{"SET", k.queue, "x"}, []string{"SET", k.strangers, "x", "PX", "500"},
			[]string{"RPUSH", k.token, "x"}, []string{"ZADD", k.lock, "1", "x"}, []string{"HSET", k.queue, "f", "v"},
			[]string{"SADD", k.strangers, "x"}, []string{"SET", k.lock, "y", "GET"}, []string{"SET", k.token, "7", "NX"})
	case 5:
		s.args = pick(d, []string{"SET", k.token, "8500000000000000", "PX", "60000"}, []string{"SET", k.token, "x"}, []string{"SET", k.token, "9007199254740993"},
			[]string{"SET", k.token, "1.5"}, []string{"SET", k.token, "5", "PX", ms}, []string{"INCRBY", k.token, "-3"},
			[]string{"GET", k.token}, []string{"SET", k.token, ""})
	case 6:
		s.args = pick(d, []string{"HSET", k.lock, "total", "5"}, []string{"HINCRBY", k.lock, a.id, "1"}, []string{"HINCRBY", k.lock, "total", "-1"},
			[]string{"HDEL", k.lock, a.id, "total"}, []string{"HGETALL", k.channel}, []string{"HGET", k.lock, "total"},
			[]string{"HLEN", k.lock}, []string{"HEXISTS", k.lock, "total"}, []string{"HMGET", k.lock, "total", "?"})
	case 7:
		s.args = pick(d, []string{"PERSIST", k.lock}, []string{"PEXPIRE", k.lock, ms}, []string{"EXPIRE", k.lock, "0"},
			[]string{"PEXPIRE", k.queue, ms}, []string{"PERSIST", k.queue}, []string{"PEXPIRE", k.strangers, ms}, []string{"EXPIRE", k.token, "-1"},
			[]string{"PEXPIRE", k.token, ms, "GT"}, []string{"PEXPIRE", k.lock, ms, "NX"})
	case 8, 9, 10:
		s.args = pick(d, []string{"ZADD", k.queue, score, entry}, []string{"ZADD", k.queue, score, a.id}, []string{"ZREM", k.queue, entry},
			[]string{"ZREM", k.queue, a.id, entry}, []string{"ZRANGE", k.queue, "0", "-1", "WITHSCORES"}, []string{"ZADD", k.queue, "XX", score, entry},
			[]string{"ZADD", k.queue, "NX", score, entry}, []string{"ZREMRANGEBYSCORE", k.queue, "-inf", "(0"}, []string{"ZSCORE", k.queue, entry},
			[]string{"ZCOUNT", k.queue, "-inf", "(4503599627370496"}, []string{"ZCARD", k.queue}, []string{"ZADD", k.queue, "1", "b", "1", "a"})
	case 11:
		other := namesOf(pick(d, lockNames...))
		s.args = pick(d, []string{"RENAME", k.lock, other.lock}, []string{"RENAME", k.queue, other.queue}, []string{"RENAME", k.token, k.lock},
			[]string{"RENAMENX", k.lock, other.lock}, []string{"SET", k.strangers, "", "PX", "10"})
	case 12:
		s.args = pick(d, []string{"PUBLISH", k.channel, "0"}, []string{"PUBLISH", processChannel(a.process), "look " + a.id + " " + k.lock}, []string{"PUBSUB", "NUMSUB", k.channel},
			[]string{"PUBSUB", "NUMSUB", processChannel(0), processChannel(1), "nobody"}, []string{"PTTL", k.lock}, []string{"PTTL", k.queue},
			[]string{"TYPE", k.queue}, []string{"EXISTS", k.lock, k.queue, k.token, k.strangers})
		if s.args[0] == "PTTL" {
			s.left = '+'
		}
	case 13:
		s.args = pick(d, []string{"SCRIPT", "FLUSH"}, []string{"SCRIPT", "FLUSH"}, []string{"SCRIPT", "EXISTS", d.hashes["acquire"], d.hashes["renew"], "x"},
			[]string{"EVALSHA", "0123456789012345678901234567890123456789", "0"}, []string{"EVAL", "return 1", "0"})
	default:
		s.args = d.mistake(k)
	}
	return s
}

// redisson draws a command of a client of Redisson.
func (d *drawer) redisson(k names) step {
	ms := strconv.Itoa(pick(d, 0, 50, 500, 10000, 10000, 30000, 30000))
	switch d.IntN(6) {
	case 0, 1:
		return step{does: "Redisson unlocks", args: []string{"EVAL", redissonUnlock, "2", k.lock, k.channel, redisson}}
	case 2:
		return step{does: "Redisson renews", args: []string{"EVAL", redissonRenew, "1", k.lock, ms, redisson}}
	}
	return step{does: "Redisson locks", args: []string{"EVAL", redissonLock, "1", k.lock, ms, redisson}, left: '+'}
}

// mistake draws a command or a script that is refused.
func (d *drawer) mistake(k names) []string {
	return pick(d,
		[]string{"HSET", k.lock, "f"}, []string{"HSET", k.lock}, []string{"PEXPIRE", k.lock}, []string{"PEXPIRE", k.lock, "x"},
		[]string{"ZADD", k.queue, "x", "m"}, []string{"SET", k.token, "1", "PX"}, []string{"SET", k.token, "1", "PX", "0"}, []string{"NOSUCH", "x"},
		[]string{"EVALSHA", d.hashes["acquire"]}, []string{"EVAL", "return 1", "9", k.lock}, []string{"EVAL", "return 1", "-1"},
		[]string{"EVAL", "return 1", "x"}, []string{"EVAL", "return redis.call('HSET', KEYS[1])", "1", k.lock},
		[]string{"EVAL", "return redis.pcall('HSET', KEYS[1])", "1", k.lock}, []string{"EVAL", "return redis.pcall('NOSUCH', KEYS[1])", "1", k.lock},
		[]string{"EVAL", "redis.call('HSET', KEYS[1], 'f', 'v') return redis.call('GET', KEYS[1])", "1", k.lock},
		[]string{"EVAL", "redis.call('SET', KEYS[1], 1) return {redis.pcall('HDEL', KEYS[1], 'f'), false, 3.99, 'x', {ok='fine'}}", "1", k.lock},
		[]string{"EVAL", "return x", "0"}, []string{"EVAL", "return (", "0"}, []string{"INCRBY", k.lock, "1"}, []string{"HGET", k.queue, "f"},
		[]string{"EVAL", "return redis.call('PUBLISH', KEYS[1], ARGV[1], 1)", "1", k.channel, "0"},
	)
}
