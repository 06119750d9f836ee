package redislock

import (
	"context"
	"strings"
	"time"
)

var (
	noteScript = newScript(0, "return call('GET', KEYS[1]) or ''\n")
	// DEL would take a right more.
	putScript = newScript(0, `if tonumber(ARGV[1]) > 0 then
  call('SET', KEYS[1], ARGV[2] or '', 'PX', ARGV[1])
else
  call('PEXPIRE', KEYS[1], 0)
end
return 1
`)
)

// noteKey is where the note of this name is: a string.
func noteKey(name string) string { return "lockgen:" + strings.Replace(name, "/", ":", 1) }

// PutNote implements [driver.Noter].
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	return b.put(ctx, noteKey(name), text, ttl)
}

// put has text at key for so long. If that is 0 or less, nothing is there any more.
func (b *Backend) put(ctx context.Context, key, text string, ttl time.Duration) error {
	if b.unusable != nil {
		return b.unusable
	}
	_, _, err := b.run(ctx, putScript.on(key).with(ms(ttl), text))
	return err
}

// Note implements [driver.Noter].
func (b *Backend) Note(ctx context.Context, name string) (string, error) {
	if b.unusable != nil {
		return "", b.unusable
	}
	c := noteScript.on(noteKey(name))
	c.asks = true
	c, _, err := b.run(ctx, c)
	if err != nil {
		return "", err
	}
	text, _ := c.reply.value.(string)
	return text, nil
}
