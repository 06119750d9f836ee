package generator

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/templates"
)

func TestReadItems(t *testing.T) {
	tests := []struct {
		text string
		want []item // name, at, valued, value, valueAt, quoted
	}{
		{`key="a b"`, []item{{name: "key", valued: true, value: "a b", valueAt: 4, quoted: true}}},
		{`key "a b" try`, []item{{name: "key", valued: true, value: "a b", valueAt: 4, quoted: true}, {name: "try", at: 10}}},
		{"ttl=60s\tkey=`x=\"y\"`", []item{
			{name: "ttl", valued: true, value: "60s", valueAt: 4},
			{name: "key", at: 8, valued: true, value: `x="y"`, valueAt: 12, quoted: true},
		}},
		{`key="a:b=c" reentrant `, []item{{name: "key", valued: true, value: "a:b=c", valueAt: 4, quoted: true}, {name: "reentrant", at: 12}}},
		{`key="\"\\\"" x=\`, []item{
			{name: "key", valued: true, value: `"\"`, valueAt: 4, quoted: true},
			{name: "x", at: 13, valued: true, value: `\`, valueAt: 15},
		}},
		{`a=b=c`, []item{{name: "a", valued: true, value: "b=c", valueAt: 2}}},
	}
	for _, test := range tests {
		got, problems := readItems(test.text)
		assert.Empty(t, problems, test.text)
		for i := range got {
			got[i].source = nil
		}
		assert.Equal(t, test.want, got, test.text)
	}
}

// A column inside a quoted value is that of the byte as written, whatever escapes come before it.
func TestColumnsBehindEscapes(t *testing.T) {
	for _, text := range []string{
		`key="\t\x41\101é\U0001F600<id>"`, "key=`é<id>`", `key="<id>"`, `key "é\u00e9\xc3\xa9<id>"`,
	} {
		d, problems := parseDirective(text)
		require.Empty(t, problems, text)
		last := d.key.parts[len(d.key.parts)-1]
		require.True(t, last.isPlaceholder(), text)
		assert.Equal(t, strings.Index(text, "<id>"), d.items["key"].offset(last.at), text)
	}
}

func TestDurationsKeepTheirUnit(t *testing.T) {
	for text, want := range map[string]templates.Duration{
		"60s":           {Count: 60, Unit: time.Second},
		"1500us":        {Count: 1500, Unit: time.Microsecond},
		"1h30m":         {Count: 90, Unit: time.Minute},
		"0.5h":          {Count: 30, Unit: time.Minute},
		"1.001s":        {Count: 1001, Unit: time.Millisecond},
		"+2h":           {Count: 2, Unit: time.Hour},
		"1h0.000001ms":  {Count: int64(time.Hour) + 1, Unit: time.Nanosecond},
		"875999h47m":    {Count: 875999*60 + 47, Unit: time.Minute},
		"1000000000ns":  {Count: 1e9, Unit: time.Nanosecond},
		"2000µs":        {Count: 2000, Unit: time.Microsecond},
		"1m0s":          {Count: 1, Unit: time.Minute},
		"876000h":       {Count: 876000, Unit: time.Hour},
		"1ms":           {Count: 1, Unit: time.Millisecond},
		"00000000060s":  {Count: 60, Unit: time.Second},
		"1.5s":          {Count: 1500, Unit: time.Millisecond},
		"1h1m1s1ms1us ": {},
	} {
		var got templates.Duration
		p := readDuration(&item{name: "ttl", value: text}, &got)
		assert.Equal(t, want, got, text)
		assert.Equal(t, want.Unit == 0, p != nil, text)
	}
}

// Every item of the table parses in both spellings and in any position.
func TestItemsInAnyOrder(t *testing.T) {
	for _, text := range []string{
		`key="a" ttl=1s wait=2s reentrant max=3s`,
		`reentrant max=3s wait=2s ttl=1s key="a"`,
		`ttl "1s" key "a" max "3s" wait "2s" reentrant`,
	} {
		d, problems := parseDirective(text)
		require.Empty(t, problems, text)
		assert.Equal(t, templates.Policy{
			TTL: templates.Duration{Count: 1, Unit: time.Second}, Wait: templates.Duration{Count: 2, Unit: time.Second},
			Max: templates.Duration{Count: 3, Unit: time.Second}, Reentrant: true,
		}, d.Policy, text)
	}
	d, problems := parseDirective(`merge=64 key="a" atleast=1500ms`)
	require.Empty(t, problems)
	assert.Equal(t, settings{merge: 64, Policy: templates.Policy{AtLeast: templates.Duration{Count: 1500, Unit: time.Millisecond}}}, d.settings)
	d, problems = parseDirective(`once "<day>:<n>" skip key "a"`)
	require.Empty(t, problems)
	assert.Equal(t, settings{Policy: templates.Policy{Once: true, Skip: true}}, d.settings)
	assert.Len(t, d.tick.parts, 3)
	for _, spec := range itemSpecs {
		assert.Contains(t, "|"+itemPattern+"|", "|"+spec.name+"|")
	}
}

func TestNearMisses(t *testing.T) {
	near := []string{
		` lock:key="x"`, `lock: key="x"`, `Lock:key="x"`, `LOCK:KEY="x"`, `lock key="x"`, `lock-key="x"`, `lock :key="x"`,
		`lock:"x"`, `lock:`, `lock: `, `lock: try`, ` @lock key="x"`, ` lock:ttl=5s`, `lock:Ttl=5s`, ` lock:reentrant key="x"`,
		"\tlock key `x`", `lockgen:key="x"`, ` locks:key="x"`, ` Lock: key = "x"`, `lock key: "x"`, ` lock:key "x"`,
		`go:lock key="x"`, `go:lock`, `go:lock:key=x`, `go:lock ttl=5s`, `+lock:key="x"`, ` +lock:key="x"`, ` +lock:ttl=5s`,
		` @Lock(key="x")`, ` @Lock(key = "x", ttl = "5s")`, ` @Lock("x")`, ` @Lock(ttl=5s, key="x")`, `lock(key="x")`, `lock.key="x"`, ` lock.key="x:<id>" ttl=5s`,
		`lock：key="x"`, ` lock：key="x"`, `lock：ttl=5s`, `lock：`, `lcok:key="x"`, ` lokc:key="x"`, `lok:key="x"`, `loc:key "x"`,
		`llock:key="x"`, `lockk:key="x"`, ` kock:key="x"`, `locl:key="x"`,
		`lock: key='x'`, `Lock:key=“x”`, `lock:‘x’`, ` lock:key=«x»`, `Lock:key＝"x"`,
		`lock::key="x"`, `lock;key="x"`, `lock；key="x"`, `lock/key="x"`, `/lock:key="x"`, `/ lock:key="x"`, `lock="x"`, `lock "x:<id>" ttl=5s`, `lock "x" try`,
	}
	for _, line := range near {
		assert.True(t, isNearMiss(line), line)
		assert.NotEqual(t, noMention, mentions([]byte("package p\n\n//"+line+"\n")), line)
	}
	prose := []string{
		` lock: protects x`, ` lock the key`, ` lock`, ` locked: key`, ` lock: try again`, ` lock: key order`, `lock.Lock()`,
		`lock.max = 10`, `lock := newLock()`, ` lock wait=50ms`, ` Lock: read, then write`, `lockcheck:ignore x`, ` block:key="x"`,
		` lock - read`, `lock: max is 3`, ` lock_key = "x"`, ` unlock:key="x"`, ``, ` lock: a "quoted" word`, ` lock: ttl`,
		` the lock:key="x" directive`, ` lock the mutex with key="abc"`, `lock.key = "x"`, ` lock: "quoted"`,
		`lock(key)`, ` lock(key, "x")`, `lock(key == "x")`, `lock("x")`, ` @lock(mu)`, ` go:lock stays`, ` +lock`, `go:locked x`, `loc: key`, ` loc:key=1`,
		`clock:key="x"`, `flock:key="x"`, ` lok key="x"`, `lock.key = 'x'`, ` +lock the key`, ` @lock the key`, `lock. Then key="x"`,
		` lock="x"`, `lock = "x"`, `lock = x`, `lock "x" first`, ` lock "x"`, `/lock: try`, ` lock; then read`, ` lock/unlock`, ` lock/unlock key="x"`, `lock=1`,
	}
	for _, line := range prose {
		assert.False(t, isNearMiss(line), line)
	}
}

// Text that the parser recognizes must be found by the search that decides whether a file is parsed
// at all.
func TestMentionsFindsNearMisses(t *testing.T) {
	for text, want := range map[string]mention{
		"//lock:key=\"x\"":                                directiveMention,
		"x\n// lock:key=\"x\"\n":                          nearMention,
		"//Lock:key=\"x\"":                                nearMention,
		"//LOCK key=\"x\"":                                nearMention,
		"//lock-key=\"x\"":                                nearMention,
		"//lockgen:key=\"x\"":                             nearMention,
		"// Lock:\"x\"":                                   nearMention,
		"//lock :\r\n":                                    nearMention,
		"//Lock:\r\n":                                     nearMention,
		"lock.Lock()\n// lock the mutex":                  noMention,
		"ock: ock key block lock.key = \"\"":              noMention,
		"lock.Read(); lock(key); doc: loc.x\n// the lock": noMention,
	} {
		assert.Equal(t, want, mentions([]byte(text)), strconv.Quote(text))
	}
}

func FuzzDirective(f *testing.F) {
	for _, seed := range []string{
		`key="seckill:voucher:<id>" ttl=60s reentrant`, "key `raw <a.b>` try", `key="\x41\n<<>>{<a>}" wait=2s max=1h`,
		`key="open`, `key = "a"`, `=`, `"`, `key="é\u00e9<id>:<x...>" permits=3`, `ttl 5s // key`, `key="<a><b>"`,
		"key=“a b” ttl：5s", `key‘a` + "\xe2" + `' key＝«`, `key="a" once="\x3cday>" skip`, `merge=64 key="a" fallback=Other atleast=1s leader`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, problems := parseDirective(text)
		for _, p := range problems {
			if p.at < 0 || p.at > len(text) || p.message == "" {
				t.Fatalf("%q: problem %+v is outside of the text", text, p)
			}
		}
		if len(problems) > 0 {
			return
		}
		key := d.items["key"]
		for _, part := range d.key.parts {
			if !part.isPlaceholder() {
				continue
			}
			// A placeholder consists of ASCII or letters. Unless it is escaped, the text has it at its offset.
			at := key.offset(part.at)
			if text[at] != '\\' && text[at] != '<' {
				t.Fatalf("%q: %s is not at %d", text, part.text, at)
			}
		}
		// The same items in the other spelling mean the same.
		again, problems := parseDirective(respell(d))
		if len(problems) > 0 || again.settings != d.settings || again.key.text != d.key.text || again.tick.text != d.tick.text {
			t.Fatalf("%q respelt as %q: %+v, %v", text, respell(d), again, problems)
		}
	})
}

// respell writes a directive with quoted values, each after a space.
func respell(d *directive) string {
	var words []string
	for _, name := range sortedKeys(d.items) {
		it := d.items[name]
		if it.valued {
			words = append(words, name+" "+strconv.Quote(it.value))
			continue
		}
		words = append(words, name)
	}
	return strings.Join(words, " ")
}
