// Package other calls what another package annotates.
package other

import (
	"context"

	"example.com/bypass/calls"
	"example.com/bypass/values"
)

func use(ctx context.Context, s *calls.Service, w *calls.ServiceWithLock) error {
	if err := w.Pay(ctx, 1); err != nil {
		return err
	}
	return s.Pay(ctx, 1) // want `calls.Service.Pay is called without its lock "order:<id>"`
}

type payer interface {
	Pay(ctx context.Context, id int64) error
}

var p payer = &values.Service{} // want `\*example.com/bypass/values.Service becomes payer here`
