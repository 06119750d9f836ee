// Javabeside sells one stock from two programs at once: this one with lockgen, and a Java
// program with Redisson's RLock on the same keys. Each piece is sold once.
//
//	make javabeside
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
)

// The items. Only Java sells the first one, because Java runs slowly until its compiler has
// compiled the code.
const (
	warmUp = 7
	item   = 42
)

func stockKey(id int64) string { return "stock:" + strconv.FormatInt(id, 10) }

func main() {
	server := flag.String("redis", os.Getenv("LOCKGEN_TEST_REDIS"), "`address` of Redis")
	built := flag.String("java", "", "`folder` with the Java program's classes and lib")
	pieces := flag.Int("stock", 2000, "`pieces` to sell")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := run(ctx, *server, *built, *pieces); err != nil {
		fmt.Fprintln(os.Stderr, "javabeside:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, server, built string, pieces int) error {
	client := redis.NewClient(&redis.Options{Addr: server})
	defer client.Close()
	java, err := startJava(ctx, built, server)
	if err != nil {
		return err
	}
	defer java.stop()
	locker := lock.New(redislock.New(client), nil)
	defer locker.Close(context.WithoutCancel(ctx))
	for id, n := range map[int64]int{warmUp: pieces, item: pieces} {
		if err := client.Set(ctx, stockKey(id), n, 0).Err(); err != nil {
			return err
		}
	}
	if err := java.begin(warmUp); err != nil {
		return err
	}
	if _, err := java.sold(); err != nil {
		return err
	}
	if err := java.begin(item); err != nil {
		return err
	}
	ours, err := sell(ctx, newShopWithLock(&shop{client}, locker))
	if err != nil {
		return err
	}
	theirs, err := java.sold()
	if err != nil {
		return err
	}
	fmt.Printf("%d pieces: %d sold by Go, %d by Java\n", pieces, ours, theirs)
	switch {
	case ours+theirs != pieces:
		return fmt.Errorf("%d were sold, of %d", ours+theirs, pieces)
	case min(ours, theirs) < pieces/50:
		return fmt.Errorf("one of the two had nearly none: they did not run at once")
	}
	return nil
}

// sell sells pieces until none is left.
func sell(ctx context.Context, s *shopWithLock) (n int, err error) {
	for {
		sold, err := s.Sell(ctx, item)
		if err != nil || !sold {
			return n, err
		}
		n++
	}
}

// program is the Java program.
type program struct {
	cmd *exec.Cmd
	out *bufio.Reader
	in  io.WriteCloser
}

// startJava starts the program and waits until it has a connection.
func startJava(ctx context.Context, built, server string) (*program, error) {
	if _, err := exec.LookPath("java"); err != nil {
		return nil, fmt.Errorf("this example needs a JDK and Maven, run scripts/install-servers jdk maven: %w", err)
	}
	classes := filepath.Join(built, "classes")
	if _, err := os.Stat(classes); err != nil {
		return nil, fmt.Errorf("the Java program is not built, run make javabeside: %w", err)
	}
	p := &program{cmd: exec.CommandContext(ctx, "java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", classes+string(os.PathListSeparator)+filepath.Join(built, "lib", "*"), "shop.Shop", server)}
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.in, p.out = in, bufio.NewReader(out)
	if line, err := p.out.ReadString('\n'); err != nil || line != "ready\n" {
		p.stop()
		return nil, fmt.Errorf("the Java program said %q instead of ready: %v", line, err)
	}
	return p, nil
}

// begin tells the program to sell an item.
func (p *program) begin(id int64) error {
	_, err := fmt.Fprintln(p.in, id)
	return err
}

// sold waits until the stock is gone, and returns how many pieces Java sold.
func (p *program) sold() (int, error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("the Java program ended too early: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(line))
}

// stop ends the program.
func (p *program) stop() {
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
