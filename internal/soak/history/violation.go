package history

import (
	"fmt"
	"time"
)

// Violation is one broken promise.
type Violation struct {
	Invariant string    `json:"invariant"`
	Key       string    `json:"key,omitempty"`
	At        int64     `json:"atNs"`
	Text      string    `json:"text"`
	Records   []Record  `json:"records,omitempty"` // the records that contradict each other
	Sample    *KeyState `json:"sample,omitempty"`
}

func (v Violation) String() string {
	if v.Key == "" {
		return fmt.Sprintf("%s: %s", v.Invariant, v.Text)
	}
	return fmt.Sprintf("%s on %s: %s", v.Invariant, v.Key, v.Text)
}

// Between returns the time from from to to, rounded for a reader.
func Between(from, to int64) time.Duration { return time.Duration(to - from).Round(time.Microsecond) }
