package generator_test

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/generator"
)

// A literal may contain bytes that are not valid UTF-8.
func TestMatchOfBytes(t *testing.T) {
	const src = "package p\n\nimport \"context\"\n\n//lock:key=\"é\\xff:<id>:\\xfe\"\n" +
		"func F(ctx context.Context, id string) error { return nil }\n"
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", src, parser.ParseComments)
	require.NoError(t, err)
	annotated, wrong := generator.ReadDirectives(fset, file)
	require.Empty(t, wrong)
	d := annotated[0].Directives[0]
	values, ok := d.Match("é\xff:a%C3%A9:\xfe")
	require.True(t, ok)
	require.Equal(t, []generator.Value{{Placeholder: "id", Text: "aé"}}, values)
	_, ok = d.Match("é\xfe:a:\xfe")
	require.False(t, ok)
}

// A placeholder has one value in a key, even if the key has the placeholder twice.
func TestMatchOfAPlaceholderTwice(t *testing.T) {
	const src = "package p\n\nimport \"context\"\n\n//lock:key=\"<id>:<by>:<id>\"\n" +
		"func F(ctx context.Context, id, by string) error { return nil }\n"
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", src, parser.ParseComments)
	require.NoError(t, err)
	annotated, wrong := generator.ReadDirectives(fset, file)
	require.Empty(t, wrong)
	d := annotated[0].Directives[0]
	_, ok := d.Match("1:2:1")
	require.True(t, ok)
	_, ok = d.Match("1:2:3")
	require.False(t, ok)
}

// The parser removes the carriage returns of a block comment.
func TestPlaceInABlockCommentOfOtherLineEnds(t *testing.T) {
	for _, end := range []string{"\n", "\r\n"} {
		src := strings.ReplaceAll("package p\n\n/* lock:ttl=5s\none\ntwo\n\n\tlock:key=\"x\"\n*/\nfunc F() {}\n", "\n", end)
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "p.go", src, parser.ParseComments)
		require.NoError(t, err)
		_, wrong := generator.ReadDirectives(fset, file)
		require.Len(t, wrong, 2)
		require.Equal(t, "p.go:3:4", fset.Position(wrong[0].Pos).String(), "%q", end)
		require.Equal(t, "p.go:7:2", fset.Position(wrong[1].Pos).String(), "%q", end)
	}
}
