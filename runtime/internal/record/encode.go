package record

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Time is an instant on the engine's clock, in µs since 1970. A negative Time is relative: that
// many µs after the write that stores it. It is encoded as a number, and a relative one as the
// placeholder "+<µs>", which the engine replaces by the instant.
type Time int64

// After returns the time that many µs after the write that stores it.
func After(micros int64) Time { return Time(-micros) }

// MarshalJSON implements [json.Marshaler].
func (t Time) MarshalJSON() ([]byte, error) {
	if t >= 0 {
		return strconv.AppendInt(nil, int64(t), 10), nil
	}
	return []byte(`"+` + strconv.FormatInt(-int64(t), 10) + `"`), nil
}

// Token is a fencing token; 0 is none.
type Token uint64

// fromClock + n stands for a token that the engine computes when it writes the value: n more than
// the token of its clock, see [driver.TokensPerMicrosecond]. It is encoded as the placeholder
// "@<n>".
const fromClock = Token(1) << 62

// MarshalJSON implements [json.Marshaler].
func (t Token) MarshalJSON() ([]byte, error) {
	if t < fromClock {
		return strconv.AppendUint(nil, uint64(t), 10), nil
	}
	return []byte(`"@` + strconv.FormatUint(uint64(t-fromClock), 10) + `"`), nil
}

// Text is a string that a user has chosen. It is encoded with "=" before it and without quotation
// marks, so that no part of it can be mistaken for a placeholder.
type Text string

var (
	escaped   = strings.NewReplacer("%", "%25", `"`, "%22")
	unescaped = strings.NewReplacer("%22", `"`, "%25", "%")
)

// MarshalJSON implements [json.Marshaler].
func (t Text) MarshalJSON() ([]byte, error) { return json.Marshal("=" + escaped.Replace(string(t))) }

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Text) UnmarshalJSON(value []byte) error {
	var s string
	err := json.Unmarshal(value, &s)
	*t = Text(unescaped.Replace(strings.TrimPrefix(s, "=")))
	return err
}

var placeholders = regexp.MustCompile(`"([+@])(\d+)"`)

// Resolve replaces the placeholders in a value, for an engine that knows its time when it writes.
// redislock's swap.lua does the same.
func Resolve(value string, now Time) string {
	return replacePlaceholders(value, func(sign byte, n uint64) uint64 {
		if sign == '+' {
			return uint64(now) + n
		}
		return uint64(now)*driver.TokensPerMicrosecond + n
	})
}

// replacePlaceholders replaces each placeholder, a sign and n, by the result of by.
func replacePlaceholders(value string, by func(sign byte, n uint64) uint64) string {
	return placeholders.ReplaceAllStringFunc(value, func(text string) string {
		n, _ := strconv.ParseUint(text[2:len(text)-1], 10, 64)
		return strconv.FormatUint(by(text[1], n), 10)
	})
}

// A value is the version, a space and the state. Each write has its own version, so that a late
// write finds another version than it expects.

func encode(version string, s *State) string {
	text, _ := json.Marshal(s) // a State can always be encoded
	return version + " " + string(text)
}

// Version returns the version of a value, or "" if there is none.
func Version(value string) string {
	version, _, _ := strings.Cut(value, " ")
	return version
}

// Idle reports whether a value is a record without holders, waiters or a register.
func Idle(value string) bool {
	_, s, err := decode(value)
	return err == nil && len(s.In)+len(s.Queue) == 0 && s.Value == ""
}

// decode reads a value. An empty value means that there is no record.
func decode(value string) (version string, s State, err error) {
	if value == "" {
		return "", State{}, nil
	}
	version, text, _ := strings.Cut(value, " ")
	if len(version) != versionLength || json.Unmarshal([]byte(text), &s) != nil {
		return "", State{}, fmt.Errorf("%w: a value is at the key that is no lock of this package: %.40q", driver.ErrConflict, value)
	}
	return version, s, nil
}

// lifetime returns how long the engine must keep the value of s, counted from now.
func (s *State) lifetime(now Time) time.Duration {
	longest := s.Keep.left(now)
	if len(s.Done) > 0 {
		longest = ticksLast
	}
	if s.Value != "" {
		longest = valueLasts
	}
	s.eachEnd(func(until *Time, _ *beat) { longest = max(longest, until.left(now)) })
	return longest
}

// left returns how long it is from now until t.
func (t Time) left(now Time) time.Duration {
	if t < 0 {
		return time.Duration(-t) * time.Microsecond
	}
	return time.Duration(t-now) * time.Microsecond
}
