package templates

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/dave/jennifer/jen"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCommentWraps(t *testing.T) {
	long := strings.Repeat("word ", 40)
	c := render(t, comment(long, "Second "+unbroken(`"a key  with spaces"`)+"."))
	for line := range strings.Lines(c) {
		assert.LessOrEqual(t, len(line), width+1)
		assert.True(t, strings.HasPrefix(line, "//"), line)
	}
	assert.Contains(t, c, "\n//\n// Second \"a key  with spaces\".")
	assert.Equal(t, 40, strings.Count(c, "word"))
}

func TestFieldsOfOneTypeStandTogether(t *testing.T) {
	list := []Field{{"ctx", "context.Context"}, {"a", "int"}, {"b", "int"}, {"c", "string"}, {"d", "...string"}}
	got := render(t, jen.Func().Id("f").Params(fields(list)...).Block())
	assert.Equal(t, "func f(ctx context.Context, a, b int, c string, d ...string) {}", got)
}

func TestDurations(t *testing.T) {
	n := Names{Time: "time"}
	assert.Equal(t, "60 * time.Second", render(t, Duration{60, time.Second}.expr(n)))
	assert.Equal(t, "time.Hour", render(t, Duration{1, time.Hour}.expr(n)))
}

// The same model gives the same bytes, with the header as its first line.
func TestRenderIsRepeatable(t *testing.T) {
	f := &File{Package: "p", Names: Names{Lock: "lock"}, Imports: []Import{{"", "context"}, {"lock", "example.com/lock"}}}
	one, err := f.Render()
	require.NoError(t, err)
	two, err := f.Render()
	require.NoError(t, err)
	assert.Equal(t, string(one), string(two))
	assert.Equal(t, Header+"\n\npackage p\n\nimport (\n\t\"context\"\n\n\tlock \"example.com/lock\"\n)\n", string(one))
}

func render(t *testing.T, c jen.Code) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, jen.Add(c).Render(&b))
	return b.String()
}
