package redislock

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
)

// reply is what a server answered to a script: an int64, a string, or a list of these.
type reply struct{ value any }

// number returns the number, or 0 if it is none.
func (r reply) number() int64 {
	n, _ := r.value.(int64)
	return n
}

// list returns the numbers of a list, and the text in it.
func (r reply) list() (numbers []int64, text string) {
	all, _ := r.value.([]any)
	for _, one := range all {
		switch one := one.(type) {
		case int64:
			numbers = append(numbers, one)
		case string:
			text = one
		}
	}
	return numbers, text
}

// owned returns ErrLost if the script says that the lock is not this owner's.
func (r reply) owned() error {
	if _, ok := r.value.(int64); !ok {
		return r.senseless()
	}
	if r.number() == 0 {
		return driver.ErrLost
	}
	return nil
}

// senseless is the error of a reply that no script of ours gives.
func (r reply) senseless() error {
	return fmt.Errorf("the server's answer to a lock script makes no sense: %q", fmt.Sprint(r.value))
}

// read notes what the server answered to c.
func (c *call) read(value any, err error) {
	var answer redis.Error
	switch {
	case err == nil && c.mark.at.Load() == nil:
		c.err = fmt.Errorf("%w: a hook has answered in the server's place", errNotSent)
	case err == nil:
		c.reply, c.err = reply{value}, nil
	case errors.As(err, &answer):
		c.err = answer // without what a hook has written around it
	default:
		c.err = c.mark.failed(err)
	}
}
