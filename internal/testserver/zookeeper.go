package testserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var zookeeperServer = &Server{
	Name:    "zookeeper",
	Env:     "LOCKGEN_TEST_ZOOKEEPER",
	Ports:   1,
	Find:    findZooKeeper,
	Command: zookeeperCommand,
	Probe:   probeZooKeeper,
}

var sharedZooKeeper = &shared{server: zookeeperServer}

// ZooKeeper returns the address of the ZooKeeper that all tests share. Use a root
// path that contains the test's name. Its ticks are 100 ms long and its session timeouts
// may be 200 ms to a minute.
func ZooKeeper(t testing.TB) string {
	t.Helper()
	return sharedZooKeeper.addr(t)
}

// StartZooKeeper starts a private ZooKeeper. The args are lines of its
// configuration, such as "minSessionTimeout=1000". They follow the defaults and so
// override them. It keeps its data over Kill and Restart.
func StartZooKeeper(t testing.TB, args ...string) *Instance {
	t.Helper()
	return startPrivate(t, zookeeperServer, args)
}

// findZooKeeper returns the jar of ZooKeeper. Java finds the other jars by its manifest or in
// its folder. LOCKGEN_ZOOKEEPER_JAR comes before the places where the packages of Debian
// and Homebrew put it.
func findZooKeeper() (string, error) {
	if _, err := exec.LookPath("java"); err != nil {
		return "", errors.New("no java found, which zookeeper needs")
	}
	places := []string{
		os.Getenv("LOCKGEN_ZOOKEEPER_JAR"),
		"/usr/share/java/zookeeper.jar",
		"/opt/homebrew/opt/zookeeper/libexec/lib/zookeeper-3*.jar",
		"/usr/local/opt/zookeeper/libexec/lib/zookeeper-3*.jar",
		"/home/linuxbrew/.linuxbrew/opt/zookeeper/libexec/lib/zookeeper-3*.jar",
	}
	for _, place := range places {
		if found, _ := filepath.Glob(place); len(found) > 0 { // Glob fails only for a wrong pattern
			return found[0], nil
		}
	}
	return "", errors.New("no zookeeper.jar found")
}

func zookeeperCommand(_ context.Context, l Launch) (*exec.Cmd, error) {
	lines := []string{
		"dataDir=" + filepath.Join(l.Dir, "data"),
		"clientPort=" + l.Port(),
		"clientPortAddress=127.0.0.1",
		"tickTime=100",
		"initLimit=50",
		"syncLimit=20",
		"minSessionTimeout=200",
		"maxSessionTimeout=60000",
		"maxClientCnxns=0",
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
		"forceSync=no",
		"standaloneEnabled=true",
		"quorumListenOnAllIPs=false",
	}
	conf := filepath.Join(l.Dir, "zoo.cfg")
	text := strings.Join(append(lines, l.Args...), "\n") + "\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return exec.Command("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-Dzookeeper.preAllocSize=256",           // KiB at a time of its log; the default is 64 MiB
		"-Dznode.container.checkIntervalMs=1000", // empty containers go after a second or two; the default is a minute
		"-cp", strings.Join([]string{l.Dir, l.Bin, filepath.Join(filepath.Dir(l.Bin), "*")}[:classPath(l.Bin)], string(os.PathListSeparator)),
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", conf), nil
}

// classPath returns how many of the folder, the jar and the jar's neighbours are on the class
// path. The manifest of Debian's jar names the jars that it needs, and Debian's folder
// also has the jars of all other Java programs.
func classPath(jar string) int {
	if filepath.Dir(jar) == "/usr/share/java" {
		return 2
	}
	return 3
}

// probeZooKeeper returns an error for a server that has no quorum yet.
func probeZooKeeper(ctx context.Context, addr string) error {
	_, err := zookeeperMode(ctx, addr)
	return err
}

// zookeeperMode returns "standalone", "leader" or "follower".
func zookeeperMode(ctx context.Context, addr string) (string, error) {
	text, err := fourLetters(ctx, addr, "srvr")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if mode, ok := strings.CutPrefix(strings.TrimSpace(line), "Mode: "); ok {
			return mode, nil
		}
	}
	return "", fmt.Errorf("zookeeper at %s is not serving: %q", addr, strings.TrimSpace(text))
}

// fourLetters sends one of ZooKeeper's four-letter commands.
func fourLetters(ctx context.Context, addr, command string) (string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, command); err != nil {
		return "", err
	}
	text, err := io.ReadAll(bufio.NewReader(conn))
	return string(text), err
}

// FourLetters returns the answer of a ZooKeeper to one of its four-letter
// commands, such as "mntr" or "cons".
func FourLetters(t testing.TB, addr, command string) string {
	t.Helper()
	// Not the test's own ctx: a clean-up function may ask as well.
	text, err := fourLetters(context.WithoutCancel(t.Context()), addr, command)
	if err != nil {
		t.Fatalf("testserver: %s: %v", command, err)
	}
	return text
}

// port returns the nth port of the instance as a string for a configuration.
func (i *Instance) port(n int) string { return strconv.Itoa(i.place.launch.Ports[n]) }
