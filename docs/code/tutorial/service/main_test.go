package main

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

func TestService(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- serve(ctx, client, listener) }()

	want := func(item string, status int) {
		t.Helper()
		r, err := http.Post("http://"+listener.Addr().String()+"/items/"+item+"/buy", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != status {
			t.Errorf("item %s: %s, want %d", item, r.Status, status)
		}
	}
	set := func(key, value string) {
		t.Helper()
		if err := server.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	set("{stock:42}", "2")
	want("42", http.StatusCreated)
	want("42", http.StatusCreated)
	want("42", http.StatusGone)
	want("43", http.StatusNotFound)
	want("x", http.StatusNotFound)
	set("{stock:42}", "1")
	set("{stock:42}:token", "9223372036854775807") // a later holder has written
	want("42", http.StatusInternalServerError)
	if left, _ := server.Get("{stock:42}"); left != "1" {
		t.Errorf("%s pieces are left after a refused write, want 1", left)
	}
	set("shop:item:44", "no lock")
	want("44", http.StatusInternalServerError)

	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if server.Exists("shop:item:42") {
		t.Error("the lock is still held")
	}
}
