package generator_test

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/generator"
)

// For code that reads directives without types, a list is a placeholder like any other.
func TestDirectiveOfAList(t *testing.T) {
	const src = "package p\n\nimport \"context\"\n\n//lock:key=\"shop:<shop>:item:<o.IDs...>\"\n" +
		"func F(ctx context.Context, shop string, o O) error { return nil }\n"
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", src, parser.ParseComments)
	require.NoError(t, err)
	annotated, wrong := generator.ReadDirectives(fset, file)
	require.Empty(t, wrong)
	d := annotated[0].Directives[0]
	require.Equal(t, generator.Part{Path: []string{"o", "IDs"}, Each: true}, d.Parts[3])
	values, ok := d.Match("shop:a%20b:item:7")
	require.True(t, ok)
	require.Equal(t, []generator.Value{{Placeholder: "shop", Text: "a b"}, {Placeholder: "o.IDs...", Text: "7"}}, values)
}
