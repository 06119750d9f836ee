package paths

import "context"

//lock:key="jobs"
func Jobs(ctx context.Context) error { return nil }

//lock:key="jobs/<name>"
func Job(ctx context.Context, name string) error { return nil }

//lock:key="jobsdone"
func Done(ctx context.Context) error { return nil }
