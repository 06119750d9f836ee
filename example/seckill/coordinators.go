package main

import (
	"context"
	"time"

	"github.com/hashicorp/consul/api"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockgen/lockgen/runtime/backends/consullock"
	"github.com/lockgen/lockgen/runtime/backends/etcdlock"
	"github.com/lockgen/lockgen/runtime/backends/zklock"
	"github.com/lockgen/lockgen/runtime/driver"
)

type etcdBackend struct{}

func (b etcdBackend) serve(ctx context.Context, address string) (*engine, error) {
	if err := hostPort(address); err != nil {
		return nil, err
	}
	return server(ctx, b, "etcd", "etcd", address)
}

func (etcdBackend) open(address string) (driver.Backend, func() error, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
	if err != nil {
		return nil, nil, err
	}
	return etcdlock.New(client), client.Close, nil
}

type zookeeperBackend struct{}

func (b zookeeperBackend) serve(ctx context.Context, address string) (*engine, error) {
	if err := hostPort(address); err != nil {
		return nil, err
	}
	return server(ctx, b, "zookeeper", "ZooKeeper", address)
}

func (zookeeperBackend) open(address string) (driver.Backend, func() error, error) {
	return zklock.New([]string{address}), func() error { return nil }, nil
}

type consulBackend struct{}

func (b consulBackend) serve(ctx context.Context, address string) (*engine, error) {
	if err := hostPort(address); err != nil {
		return nil, err
	}
	return server(ctx, b, "consul", "Consul", address)
}

func (consulBackend) open(address string) (driver.Backend, func() error, error) {
	client, err := api.NewClient(&api.Config{Address: address})
	if err != nil {
		return nil, nil, err
	}
	// No other program uses these keys, so they need not stay closed after a loss.
	b := consullock.New(client, consullock.Options{LockDelay: time.Millisecond})
	return b, func() error { return nil }, nil
}
