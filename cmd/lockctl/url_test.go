package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNoPasswordIsPrinted(t *testing.T) {
	for _, url := range []string{
		"redis://user:secret@host:6379/0", "consul://:secret@host:8500", "etcd://user:secret@host:2379,host2:2379",
		"postgres://user@host/db?password=secret", "postgres://user@host:1,host2:2/db?password=secret", "redis://user:secret?secret@host",
	} {
		assert.NotContains(t, redacted(url), "secret", url)
		assert.Contains(t, redacted(url), "host", url)
	}
}
