package interop

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// built is where scripts/build-interop puts the Java programs.
const built = "../.cache/interop"

// jvm is a Java program of java/. It encodes the key itself.
type jvm struct {
	*dialog
	waiting func(ctx context.Context, name string) (bool, error)
}

// startJVM starts a class of the Java package lockgen.interop.
func startJVM(t *testing.T, class string, args ...string) *jvm {
	t.Helper()
	classes := filepath.Join(built, "classes")
	if _, err := os.Stat(classes); err != nil {
		require.FailNow(t, "the Java programs are not built: run make interop", "%v", err)
	}
	path := classes + string(os.PathListSeparator) + filepath.Join(built, "lib", "*")
	argv := []string{
		"java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", path, "lockgen.interop." + class,
	}
	j := &jvm{dialog: startDialog(t, append(argv, args...)...)}
	line, err := j.next(t.Context())
	require.NoError(t, err)
	require.Equal(t, "ready", line)
	return j
}

func (j *jvm) lock(ctx context.Context, name string) error {
	_, err := j.ask(ctx, "lock "+name)
	return err
}

func (j *jvm) try(ctx context.Context, name string) (bool, error) {
	answer, err := j.ask(ctx, "trylock 0 "+name)
	return answer == "locked", err
}

func (j *jvm) unlock(ctx context.Context) error {
	_, err := j.ask(ctx, "unlock")
	return err
}

func (j *jvm) waits(ctx context.Context, name string) (bool, error) { return j.waiting(ctx, name) }
