package differential

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"
)

// compare describes how replies and messages differ. took is the time by which a number of ms
// at the real server may be lower.
func compare(real, mini heard, left byte, took time.Duration) (differences []string) {
	if !alike(real.reply, mini.reply, left, took) {
		differences = append(differences, fmt.Sprintf("Redis replies     %v\nminiredis replies %v", real.reply, mini.reply))
	}
	for i := range real.messages {
		if !slices.Equal(real.messages[i], mini.messages[i]) {
			differences = append(differences, fmt.Sprintf("connection %d receives\n  from Redis:     %v\n  from miniredis: %v",
				i+1, real.messages[i], mini.messages[i]))
		}
	}
	return differences
}

// alike reports whether two replies have the same meaning for redislock: see verdict.
func alike(real, mini value, left byte, took time.Duration) bool {
	if real.kind != mini.kind || len(real.list) != len(mini.list) {
		return false
	}
	if left == '-' && isHeld(real) && isHeld(mini) {
		r, _ := real.list[0].number()
		m, _ := mini.list[0].number()
		return near(r, m, took) && real.list[1].text == mini.list[1].text && real.list[2].text == mini.list[2].text &&
			real.list[3].text == mini.list[3].text
	}
	for i := range real.list {
		if !alike(real.list[i], mini.list[i], left, took) {
			return false
		}
	}
	r, isNumber := real.number()
	m, _ := mini.number()
	switch {
	case real.kind == '-':
		return verdict(real.text) == verdict(mini.text)
	case isNumber && left == '+' && r > 0:
		return near(r, m, took)
	}
	return real.text == mini.text
}

// isHeld reports whether v is the reply of acquire.lua when another owner has the lock: the ms that
// are left, the time, whether the owner is a client of Redisson, and the owner.
func isHeld(v value) bool {
	if len(v.list) != 4 || v.list[3].kind != '$' {
		return false
	}
	for _, part := range v.list[:3] {
		if _, isNumber := part.number(); !isNumber {
			return false
		}
	}
	return v.list[2].text == "0" || v.list[2].text == "1"
}

// verdict returns the part of an error that redislock reads: the first word if it says where
// to send the call, or that the script is unknown; otherwise one of some words anywhere in the text.
func verdict(text string) string {
	for _, word := range []string{"NOSCRIPT", "MOVED ", "ASK "} {
		if strings.HasPrefix(text, word) {
			return word
		}
	}
	for _, word := range []string{
		"WRONGTYPE", "TRYAGAIN ", "CLUSTERDOWN ", "READONLY ", "MASTERDOWN ", "LOADING ", "same slot", "OOM ", "CONFLICT ", "NOPERM ",
	} {
		if strings.Contains(text, word) {
			return word
		}
	}
	return "another error"
}

// compareStates describes how the keys of a real server and of miniredis differ. Up to within
// has passed at the real server since both had the same ttls.
func compareStates(real, mini state, within time.Duration) (found []string) {
	names := slices.Collect(maps.Keys(real))
	for name := range mini {
		if _, both := real[name]; !both {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		r, atReal := real[name]
		m, atMini := mini[name]
		switch {
		case !atReal:
			found = append(found, fmt.Sprintf("%q is missing at Redis; at miniredis: %v", name, m))
		case !atMini:
			found = append(found, fmt.Sprintf("%q is missing at miniredis; at Redis: %v", name, r))
		case r.kind != m.kind || !slices.Equal(r.items, m.items) || !near(r.ttl, m.ttl, within):
			found = append(found, fmt.Sprintf("%q\n  at Redis:     %v\n  at miniredis: %v", name, r, m))
		}
	}
	return found
}

// near reports whether a number of ms at a real server may be the same as at
// miniredis, where time passes only when it is set. Each may be rounded.
func near(real, mini int64, within time.Duration) bool {
	if real <= 0 || mini <= 0 {
		return real == mini
	}
	return real <= mini && real >= mini-within.Milliseconds()-1
}
