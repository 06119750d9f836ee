package interop

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestJavaEncoderIsTheREADMEs checks that the encoder of the Java programs is exactly that of the README.
func TestJavaEncoderIsTheREADMEs(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	encoder := regexp.MustCompile("(?s)```java\n(.*?)```").FindSubmatch(readme)
	require.NotNil(t, encoder, "the README has no encoder")
	program, err := os.ReadFile(filepath.Join("java", "src", "main", "java", "lockgen", "interop", "Key.java"))
	require.NoError(t, err)
	require.Contains(t, flat(string(program)), flat(string(encoder[1])))
}

func flat(code string) string { return strings.Join(strings.Fields(code), " ") }

// encodes checks that the Java program encodes every string as the generated key function does.
func encodes(t *testing.T, java *jvm) {
	var ascii strings.Builder
	for c := ' '; c < 0x7f; c++ {
		ascii.WriteRune(c)
	}
	for _, value := range []string{"user:7@example.org", ascii.String(), "é ü ß", "日本語", "\U0001F512", "\t\x01\x7f", "a%3Ab"} {
		want, err := SectionRunKey(value)
		require.NoError(t, err)
		got, err := java.ask(t.Context(), "encode "+value)
		require.NoError(t, err)
		require.Equal(t, want, "interop:"+got, "%q", value)
	}
}
