package consullock

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
)

// ttlRange is how long sessions may last at the server.
type ttlRange struct{ min, max time.Duration }

func outOfRange(ttl time.Duration, r ttlRange) error {
	return fmt.Errorf("%w: a ttl of %v; Consul's sessions last from %v (session_ttl_min) to %v",
		driver.ErrInvalid, ttl, r.min, r.max)
}

var ttlRefused = regexp.MustCompile(`Invalid Session TTL .*between \[(\S+)=([^\]\s]+)\]`)

// ttls returns the range that the server allows, which it tells whoever asks for
// a session that is too short. It is asked once.
func (b *Backend) ttls(ctx context.Context) (ttlRange, error) {
	if r := b.allowed.Load(); r != nil {
		return *r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	o := (&api.WriteOptions{}).WithContext(ctx)
	id, _, err := b.client.Session().CreateNoChecks(&api.SessionEntry{Name: "lockgen", TTL: "1ms"}, o)
	r := ttlRange{time.Millisecond, maxTTL}
	if err == nil { // nothing is too short for it
		_, _ = b.client.Session().Destroy(id, o)
	} else {
		found := ttlRefused.FindStringSubmatch(err.Error())
		if found == nil {
			return ttlRange{}, advised(err)
		}
		if d, err := time.ParseDuration(found[1]); err == nil {
			r.min = d
		}
		if d, err := time.ParseDuration(found[2]); err == nil {
			r.max = d
		}
	}
	b.allowed.Store(&r)
	return r, nil
}
