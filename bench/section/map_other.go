//go:build !unix

package section

import (
	"errors"
	"os"
)

func mapShared(*os.File, int) ([]byte, error) {
	return nil, errors.New("processes can't share memory on this system as the benchmark needs it")
}

func unmap([]byte) error { return nil }
