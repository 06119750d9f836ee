//go:build unix

package section

import (
	"os"
	"syscall"
)

func mapShared(file *os.File, size int) ([]byte, error) {
	return syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

func unmap(memory []byte) error { return syscall.Munmap(memory) }
