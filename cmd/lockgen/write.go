package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockgen/lockgen/generator"
)

// write puts a generated file in its place, or removes it. Whoever reads it
// meanwhile sees the old one or the new one, whole.
func write(f generator.File) error {
	if f.New == nil {
		if err := os.Remove(f.Path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	// The name starts with a dot, so that the go command does not see it.
	tmp, err := os.CreateTemp(filepath.Dir(f.Path), ".lock_gen-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone already if all went well
	_, err = tmp.Write(f.New)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), f.Path)
}
