package helper

import "context"

func Run(ctx context.Context, f func(context.Context, int64) error, id int64) error {
	return f(ctx, id)
}
