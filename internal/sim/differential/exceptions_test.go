package differential

import "strings"

// exception is a difference that is known, and that doc.go tells of. A sequence ends
// with it: the two may not have the same keys any more.
type exception struct {
	name string
	// is reports whether a difference after a step is this one, by what miniredis
	// answered.
	is func(s step, mini value) bool
}

var exceptions = []exception{
	{"pcall raises an error for an argument that is nil", func(_ step, mini value) bool {
		return refuses(mini, "Lua redis lib command arguments must be strings or integers")
	}},
}

// refuses reports whether a reply is an error with this text, or a list that has one.
func refuses(reply value, text string) bool {
	for _, part := range reply.list {
		if refuses(part, text) {
			return true
		}
	}
	return reply.kind == '-' && strings.Contains(reply.text, text)
}

// exceptionOf returns the name of the exception that a difference is, or "".
func exceptionOf(s step, mini value) string {
	for _, e := range exceptions {
		if e.is(s, mini) {
			return e.name
		}
	}
	return ""
}
