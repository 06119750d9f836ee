// This file lets chance.go declare functions without a body.
