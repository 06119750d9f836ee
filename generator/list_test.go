package generator_test

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/generator"
)

// A literal may hold bytes that are no UTF-8.
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
