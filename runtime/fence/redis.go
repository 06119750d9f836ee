package fence

import "fmt"

// RedisSet is a Lua script that sets a value of Redis unless a later holder has set it.
//
//	KEYS[1]  the value
//	KEYS[2]  the highest token that wrote it, in the same slot in a Cluster: "{item:42}" and "{item:42}:token"
//	ARGV[1]  the token, in decimal
//	ARGV[2]  the value
//	ARGV[3]  how long the value lives, in ms; 0 means for ever
//
// It returns {1, token} if the value was set, and {0, highest token} if not. The token lives a day longer
// than the value, so that a late writer does not bring an expired value back. Pass the script to the
// client's EVAL or EVALSHA:
//
//	var set = redis.NewScript(fence.RedisSet)
//	…
//	err = fence.RedisReply(set.Run(ctx, client, []string{name, name + ":token"}, token, value, 0).Slice())
//
// Numbers in Lua have 53 bits and tokens up to 63, so the script compares the decimals as text.
const RedisSet = `
local token, newest = ARGV[1], redis.call('get', KEYS[2]) or '0'
if #token < #newest or (#token == #newest and token < newest) then
	return {0, newest}
end
local ms = tonumber(ARGV[3])
if ms > 0 then
	redis.call('set', KEYS[2], token, 'px', ms + 86400000)
	redis.call('set', KEYS[1], ARGV[2], 'px', ms)
else
	redis.call('set', KEYS[2], token)
	redis.call('set', KEYS[1], ARGV[2])
end
return {1, token}
`

// RedisReply returns err, or an error that wraps [ErrStale] if reply, which [RedisSet] returned, says
// that the value was not set.
func RedisReply(reply []any, err error) error {
	if err != nil {
		return err
	}
	if len(reply) == 2 {
		switch reply[0] {
		case int64(1):
			return nil
		case int64(0):
			return fmt.Errorf("%w: Redis has token %v", ErrStale, reply[1])
		}
	}
	return fmt.Errorf("fence: Redis answered %v, which is no answer of fence.RedisSet", reply)
}
