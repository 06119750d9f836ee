// Package backends has a key with a bar where others have the name of a backend before it.
package backends

import "context"

type Store struct{ other *OtherWithLock }

//lock:key="<id>" backend=a
func (s *Store) Save(ctx context.Context, id int) error { return s.other.Move(ctx, id) }

type Other struct{}

//lock:key="a|<id>"
func (o *Other) Move(ctx context.Context, id int) error { return nil }
