package peers

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// redissonKinds is Redisson's locks other than RLock, in a JVM for each process. The JVM's threads
// lock for five seconds before the measurement begins.
var redissonKinds = &Peer{
	Name:    "redisson-kinds",
	About:   "Redisson 4.7.0: RReadWriteLock, RPermitExpirableSemaphore, RFairLock, in a JVM that is warm",
	Rival:   true,
	Missing: JavaMissing,
	Laps:    func(l Laps) *exec.Cmd { return javaLaps("redisson", l) },
}

// curatorKinds is the same for Curator, on ZooKeeper.
var curatorKinds = &Peer{
	Name:    "curator-kinds",
	About:   "Curator 5.9.0: InterProcessReadWriteLock, InterProcessSemaphoreV2, InterProcessMutex, in a JVM that is warm",
	Rival:   true,
	Missing: JavaMissing,
	Laps:    func(l Laps) *exec.Cmd { return javaLaps("curator", l) },
}

// interopClasses is where scripts/build-interop puts the Java programs, and interopLibraries their libraries.
const interopClasses, interopLibraries = "../.cache/interop/classes", "../.cache/interop/lib/*"

// JavaMissing returns what the peers in Java lack to take part.
func JavaMissing() error {
	if _, err := exec.LookPath("java"); err != nil {
		return err
	}
	if _, err := os.Stat(interopClasses); err != nil {
		return fmt.Errorf("run scripts/build-interop: %w", err)
	}
	return nil
}

// java returns the command that runs a program of interop/java.
func java(options []string, program string, args ...string) *exec.Cmd {
	all := append(options, "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-cp", interopClasses+string(os.PathListSeparator)+interopLibraries, "lockgen.interop."+program)
	return exec.Command("java", append(all, args...)...)
}

func javaLaps(library string, l Laps) *exec.Cmd {
	return java([]string{"-Xmx512m"}, "Laps", library, l.Addr, strconv.FormatInt(l.TTL.Milliseconds(), 10),
		string(l.Kind), strconv.Itoa(l.Goroutines), l.Key, strconv.FormatInt(l.Section.Milliseconds(), 10), strconv.Itoa(PermitsOf))
}
