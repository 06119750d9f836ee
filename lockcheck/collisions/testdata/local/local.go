package local

import "context"

type id [16]byte

func (id) String() string { return "" }

type Service struct{}

//lock:key="order:<name>"
func (s *Service) ByName(ctx context.Context, name string) error { return nil }

/* want `"order:all" of local.Service.All and "order:<name>" of local.Service.ByName \(local.go:11\) can make one key, "order:all": let their literals differ before the first placeholder` */ //lock:key="order:all"
func (s *Service) All(ctx context.Context) error                                                                                                                                               { return nil }

// Of one class, and so one lock on purpose.
//
//lock:key="order:<other>"
func (s *Service) Again(ctx context.Context, other string) error { return nil }

// An integer never makes these.
//
//lock:key="item:<n>"
func (s *Service) Item(ctx context.Context, n int) error { return nil }

//lock:key="item:all"
func (s *Service) Items(ctx context.Context) error { return nil }

//lock:key="item:<n>:<m>"
func (s *Service) Part(ctx context.Context, n, m int) error { return nil }

// But it makes this.
//
/* want `"item:-12" of local.Service.One and "item:<n>" of local.Service.Item \(local.go:24\) can make one key, "item:-12"` */ //lock:key="item:-12"
func (s *Service) One(ctx context.Context) error                                                                               { return nil }

// Bools are two words.
//
//lock:key="flag:<on>"
func (s *Service) Flag(ctx context.Context, on bool) error { return nil }

//lock:key="flag:fa"
func (s *Service) NoFlag(ctx context.Context) error { return nil }

/* want `can make one key, "flag:true"` */          //lock:key="flag:true"
func (s *Service) IsFlag(ctx context.Context) error { return nil }

// A type of one's own has a form of its own.
//
//lock:key="uuid:<u>"
func (s *Service) UUID(ctx context.Context, u id) error { return nil }

//lock:key="uuid:all"
func (s *Service) UUIDs(ctx context.Context) error { return nil }

// On another engine.
//
//lock:key="order:all" backend=other
func (s *Service) Elsewhere(ctx context.Context) error { return nil }

/* want `can make one key, "item:1"` `can make one key, "order:1"` */ //lock:key="<kind>:1"
func (s *Service) Any(ctx context.Context, kind string) error         { return nil }

// No engine of this program takes a / for a path.
//
//lock:key="jobs"
func (s *Service) Jobs(ctx context.Context) error { return nil }

//lock:key="jobs/<name>"
func (s *Service) Job(ctx context.Context, name string) error { return nil }

//lock:key="fee:<id>:of" read
func Fee(ctx context.Context, id int64) error { return nil }

// Of one class, and so one lock on purpose, which can't be of two kinds.
//
/* want `"fee:<item>:of" of local.SetFees is a mutex, and "fee:<id>:of" of local.Fee \(local.go:\d+\), which makes the same keys, is a read-write lock` */ //lock:key="fee:<item>:of"
func SetFees(ctx context.Context, item int64) error                                                                                                        { return nil }

//lock:key="fee:<other>:of" write
func SetFee(ctx context.Context, other int64) error { return nil }

//lock:key="fee:<elsewhere>:of" backend=other
func FeeElsewhere(ctx context.Context, elsewhere int64) error { return nil }

// A name need not be one of these numbers.
//
//lock:key="fee:<name>:of" fair
func NamedFee(ctx context.Context, name string) error { return nil }
