package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
)

// The test's own program stands in for the Java one, as the environment says.
const standIn = "JAVABESIDE_STAND_IN"

func TestMain(m *testing.M) {
	if how := os.Getenv(standIn); how != "" {
		if err := speak(how, os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// speak does what Shop.java does, or something else.
func speak(how, server string) error {
	if how == "dumb" {
		return nil
	}
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: server})
	locker := lock.New(redislock.New(client), nil)
	fmt.Println("ready")
	var held *lock.Hold // of what is sold by both
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		id, err := strconv.ParseInt(in.Text(), 10, 64)
		if err != nil {
			return err
		}
		n := 0
		switch {
		case id == warmUp:
			if _, held, err = locker.Acquire(ctx, &shopSellLock, ShopSellKey(item)); err != nil {
				return err
			}
		case how == "idle":
			held.Release(nil)
		default:
			if n, err = shares(ctx, client, held); err != nil {
				return err
			}
		}
		for shop := newShopWithLock(&shop{client}, locker); how != "idle" || id == warmUp; n++ {
			sold, err := shop.Sell(ctx, id)
			if err != nil {
				return err
			}
			if !sold {
				break
			}
		}
		fmt.Println(n)
	}
	return nil
}

// shares sees to it that each of the two sells pieces, whichever the machine lets run: it sells some
// before the other can begin, and then waits until the other has sold as many.
func shares(ctx context.Context, client *redis.Client, held *lock.Hold) (n int, err error) {
	left, err := client.Get(ctx, stockKey(item)).Int()
	if err != nil {
		return 0, err
	}
	share := left / 50
	for ; n < share; n++ {
		if _, err := (&shop{client}).Sell(ctx, item); err != nil {
			return n, err
		}
	}
	held.Release(nil)
	for end := left - 2*share; left > end && err == nil; time.Sleep(time.Millisecond) {
		left, err = client.Get(ctx, stockKey(item)).Int()
	}
	return n, err
}

// Both sell the item, each piece once, when what is beside has been warm for as long as a sale
// takes; a program that is never ready or sells nothing is told.
func TestBesideAStandIn(t *testing.T) {
	server := testserver.StartRedis(t).Addr()
	built, bin := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(built, "classes"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "java"), []byte("#!/bin/sh\nexec '"+self+"' \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for how, want := range map[string]string{"shop": "", "idle": "nearly none", "dumb": "instead of ready"} {
		t.Setenv(standIn, how)
		err := run(ctx, server, built, 200)
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("beside %s: %v; want %q", how, err, want)
		}
	}
}
