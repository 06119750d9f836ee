package calls

import "context"

// Tests call what they like.
func check(s *Service) error { return s.Pay(context.Background(), 1) }
