package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Only a slow run on a terminal prints what it is doing.
func TestProgressIsSilentElsewhere(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b)
	p.stage("listing")
	p.stop()
	assert.Nil(t, p.timer)
	assert.Empty(t, b.String())

	p.slow = true // as the timer sets it after a second
	p.stage("loading")
	p.stop()
	p.stage("done")
	assert.Equal(t, "lockgen: loading …\n", b.String())
}
