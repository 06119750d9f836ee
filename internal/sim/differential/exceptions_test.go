package differential

import "strings"

// exception is a known difference, which doc.go describes. A sequence ends
// with it, because the two servers may have different keys then.
type exception struct {
	name string
	// is reports whether a difference after a step is this one, according to the reply of
	// miniredis.
	is func(s step, mini value) bool
}

var exceptions = []exception{
	{"pcall raises an error for an argument that is nil", func(_ step, mini value) bool {
		return refuses(mini, "Lua redis lib command arguments must be strings or integers")
	}},
}

// refuses reports whether a reply is an error with this text, or a list with such an error.
func refuses(reply value, text string) bool {
	for _, part := range reply.list {
		if refuses(part, text) {
			return true
		}
	}
	return reply.kind == '-' && strings.Contains(reply.text, text)
}

// exceptionOf returns the name of the exception of a difference, or "".
func exceptionOf(s step, mini value) string {
	for _, e := range exceptions {
		if e.is(s, mini) {
			return e.name
		}
	}
	return ""
}
