// Package clientgo is a service before and after docs/migration.md.
package clientgo

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Before is a service on client-go.
type Before struct {
	client coordination.CoordinationV1Interface
	name   string
}

// Run has one process of all sync until ctx ends.
func (b *Before) Run(ctx context.Context) error {
	election := leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: "sync", Namespace: "shop"},
			Client:     b.client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: b.name},
		},
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { _ = sync(ctx) }, // its error is lost
			OnStoppedLeading: func() {},
		},
	}
	for ctx.Err() == nil { // RunOrDie returns when the leadership is lost
		leaderelection.RunOrDie(ctx, election)
	}
	return ctx.Err()
}

func sync(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
