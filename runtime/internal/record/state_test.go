package record

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func party(id, kind string) Party {
	return Party{ID: id, Kind: kind, Weight: 1, Limit: 2, Grant: 1000, Until: 1 << 50}
}

func inside(s *State) (ids []string) {
	for _, p := range s.In {
		ids = append(ids, p.ID)
	}
	return ids
}

// written returns s as the engine would have it after writing it.
func written(t *testing.T, s State, now Time) State {
	t.Helper()
	_, s, err := decode(Resolve(encode(newVersion(), &s), now))
	require.NoError(t, err)
	return s
}

func TestTokensRiseWhileTheClockStands(t *testing.T) {
	var s State
	last := Token(0)
	for i := range 10 {
		p := party(string(rune('a'+i)), kindFair)
		require.True(t, s.arrive(p, 1000, 50, false))
		s = written(t, s, 1000)
		require.Greater(t, s.In[0].Token, last)
		require.GreaterOrEqual(t, s.In[0].Token, Token(4000))
		require.Equal(t, Time(1050), s.In[0].Until)
		last = s.In[0].Token
		s.remove(p.ID, 1000)
	}
}

func TestBlockOfTokens(t *testing.T) {
	var s State
	p := party("a", kindPermits)
	p.Tokens = 100
	s.arrive(p, 1000, 50, false)
	s = written(t, s, 1000)
	require.Equal(t, Token(4000), s.In[0].Token)
	require.Equal(t, Token(4099), s.Token)
	s.arrive(party("b", kindPermits), 1000, 50, false)
	require.Equal(t, Token(4100), s.In[1].Token)
	s.giveBack(s.holder("b"), 4100)
	require.Equal(t, Token(4100), s.Token)
	s.giveBack(s.holder("a"), 4003) // another party has tokens above these
	require.Equal(t, Token(4100), s.Token)
	s.remove("b", 1000)
	s.Token = 4099
	s.giveBack(s.holder("a"), 4001)
	require.Equal(t, Token(4099), s.Token, "its block has been cut already")
}

// When a writer becomes a reader, it gives tokens back. The next writer's token is above the tokens
// of the readers.
func TestTokensAfterADowngrade(t *testing.T) {
	var s State
	p := party("w", kindWrite)
	p.Tokens = 1000
	s.arrive(p, 1000, 9000, true)
	s = written(t, s, 1000)
	s.downgrade(s.holder("w"), 1000)
	s.arrive(party("r", kindRead), 1000, 9000, true)
	s = written(t, s, 1000)
	s.giveBack(s.holder("w"), s.holder("w").Token)
	s.remove("w", 1000)
	seen := s.holder("r").Token
	s.remove("r", 1000)
	s.arrive(party("next", kindWrite), 1001, 9000, true)
	require.Greater(t, s.holder("next").Token, seen)
}

// Writers and readers take turns.
func TestPhases(t *testing.T) {
	s := State{Token: 1}
	step := func(f func()) {
		f()
		s = written(t, s, 1000)
	}
	arrives := func(id, kind string) { step(func() { s.arrive(party(id, kind), 1000, 9000, true) }) }
	leaves := func(id string) { step(func() { s.remove(id, 1000) }) }
	arrives("r1", kindRead)
	arrives("w1", kindWrite)
	arrives("r2", kindRead)
	arrives("r3", kindRead)
	arrives("w2", kindWrite)
	require.Equal(t, []string{"r1"}, inside(&s))
	leaves("r1")
	require.Equal(t, []string{"w1"}, inside(&s))
	arrives("r4", kindRead)
	leaves("w1")
	require.Equal(t, []string{"r2", "r3", "r4"}, inside(&s))
	arrives("r5", kindRead)
	leaves("r2")
	leaves("r3")
	require.Equal(t, []string{"r4"}, inside(&s))
	leaves("r4")
	require.Equal(t, []string{"w2"}, inside(&s))
	leaves("w2")
	require.Equal(t, []string{"r5"}, inside(&s))
	arrives("w3", kindWrite)
	arrives("r6", kindRead)
	leaves("w3") // gives up waiting
	require.Equal(t, []string{"r5", "r6"}, inside(&s))
}

// A writer that has become a reader has ended its phase: a reader that comes after that does not
// overtake the waiting writer.
func TestPhaseAfterADowngrade(t *testing.T) {
	s := State{Token: 1}
	arrives := func(id, kind string) {
		s.arrive(party(id, kind), 1000, 9000, true)
		s = written(t, s, 1000)
	}
	arrives("w1", kindWrite)
	arrives("w2", kindWrite)
	s.downgrade(s.holder("w1"), 1000)
	arrives("r", kindRead)
	s.remove("w1", 1000)
	require.Equal(t, []string{"w2"}, inside(&s))
	s.remove("w2", 1000)
	require.Equal(t, []string{"r"}, inside(&s))
}

func TestAttemptsThatMayArriveKeepTheRecord(t *testing.T) {
	s := State{Token: 1}
	s.arrive(party("a", kindFair), 1000, 50, true)
	s = written(t, s, 1000)
	s.remove("a", 1000)
	require.Negative(t, s.lifetime(1000))
	s.keep(true, time.Second)
	require.Equal(t, time.Second+tombstoneMargin, s.lifetime(1000))
	s = written(t, s, 1000)
	require.Equal(t, time.Second+tombstoneMargin-time.Millisecond, s.lifetime(2000))
}

func TestValuesOfOtherPrograms(t *testing.T) {
	for _, value := range []string{"x", "5", "0123456789abcdef", "0123456789abcdef [", `{"token":1}`} {
		_, _, err := decode(value)
		require.Error(t, err, value)
	}
	_, s, err := decode("")
	require.NoError(t, err)
	require.Zero(t, s)
}

func FuzzDecode(f *testing.F) {
	s := State{Token: 7, In: []Party{party("a", kindRead)}, Queue: []Party{party("b", kindWrite)}}
	f.Add(Resolve(encode(newVersion(), &s), 5))
	f.Fuzz(func(t *testing.T, value string) {
		version, s, err := decode(value)
		if err != nil || version == "" {
			return
		}
		s.expire(1 << 40)
		s.remove("a", 1<<40)
		s.arrive(party("c", kindPermits), 1<<40, 5, true)
		encode(version, &s)
	})
}

// Processes of different versions share values, so the text of a value must not change.
func TestTextsOfOtherVersions(t *testing.T) {
	for text, value := range map[Text]string{
		"2026-01-02 03:04":         `"=2026-01-02 03:04"`,
		"2026/11/28, 3%":           `"=2026/11/28, 3%25"`,
		`{"grants":"a","epoch":3}`: `"={%22grants%22:%22a%22,%22epoch%22:3}"`,
		`%22 %2522 \ +5" "@6"`:     `"=%2522 %252522 \\ +5%22 %22@6%22"`,
	} {
		written, err := json.Marshal(text)
		require.NoError(t, err)
		require.Equal(t, value, string(written))
		var read Text
		require.NoError(t, json.Unmarshal([]byte(value), &read))
		require.Equal(t, text, read)
	}
	for _, value := range []string{`"=年😀"`, `"=\u5e74\ud83d\ude00"`} { // as sqllock stores it
		var read Text
		require.NoError(t, json.Unmarshal([]byte(value), &read))
		require.Equal(t, Text("年😀"), read)
	}
}
