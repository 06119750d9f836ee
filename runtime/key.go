package lock

import (
	"encoding"
	"fmt"
	"reflect"
)

// EncodeKey percent-encodes every byte of value outside A-Z a-z 0-9 _ . - so
// that no value can leave its segment of a key, in any engine's key syntax,
// and no two values make one key. Digits are uppercase, as in RFC 3986.
func EncodeKey(value string) string {
	const hex = "0123456789ABCDEF"
	plain := 0
	for plain < len(value) && plainKeyByte(value[plain]) {
		plain++
	}
	if plain == len(value) {
		return value
	}
	out := append(make([]byte, 0, 3*len(value)), value[:plain]...)
	for _, c := range []byte(value[plain:]) {
		if plainKeyByte(c) {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}

func plainKeyByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}

// KeyString returns value as one encoded segment of a key. An empty value is
// [ErrInvalid]: it would make a key that means something else. The policy and
// the placeholder ("<name>") are for the error.
func KeyString(p *Policy, placeholder, value string) (string, error) {
	if value == "" {
		return "", keyError(p, invalidf("%s is empty; a key needs a value there", placeholder))
	}
	return EncodeKey(value), nil
}

// KeyStringer is [KeyString] of v.String(). A nil v is [ErrInvalid].
func KeyStringer(p *Policy, placeholder string, v fmt.Stringer) (string, error) {
	if isNil(v) {
		return "", KeyNil(p, placeholder, "")
	}
	return KeyString(p, placeholder, v.String())
}

// KeyText is [KeyString] of v.MarshalText(). A nil v, or one that does not
// marshal, is [ErrInvalid].
func KeyText(p *Policy, placeholder string, v encoding.TextMarshaler) (string, error) {
	if isNil(v) {
		return "", KeyNil(p, placeholder, "")
	}
	text, err := v.MarshalText()
	if err != nil {
		return "", keyError(p, because(ErrInvalid, fmt.Errorf("%s: %w", placeholder, err)))
	}
	return KeyString(p, placeholder, string(text))
}

// KeyNil returns the [ErrInvalid] of a placeholder whose value can't be reached:
// step ("order.Customer") is the nil pointer or interface on the way to it, or
// empty where the placeholder itself is nil.
func KeyNil(p *Policy, placeholder, step string) error {
	if step == "" {
		return keyError(p, invalidf("%s is nil; a key needs a value there", placeholder))
	}
	return keyError(p, invalidf("%s: %s is nil; a key needs a value there", placeholder, step))
}

func keyError(p *Policy, err error) error {
	if p == nil {
		p = defaultPolicy
	}
	return &Error{Op: "key", Method: p.Method, Key: p.Pattern, Err: err}
}

func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return r.IsNil()
	}
	return false
}
