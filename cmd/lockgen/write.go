package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockgen/lockgen/generator"
)

// writeAll writes what has changed. A file that can't be written keeps no other
// from being written: it is returned with the reason, and the others as they are.
func (c *command) writeAll(changed []generator.File) (written []generator.File, failed map[string]error) {
	failed = map[string]error{}
	for _, f := range changed {
		err := write(f)
		if err == nil {
			written = append(written, f)
			continue
		}
		var at *fs.PathError
		var of *os.LinkError
		switch { // what was tried with which temporary file tells nobody anything
		case errors.As(err, &at):
			err = at.Err
		case errors.As(err, &of):
			err = of.Err
		}
		failed[f.Path] = fmt.Errorf("%s can't be written: %w", c.relative(f.Path), err)
	}
	return written, failed
}

// write puts a generated file in its place, or removes it. Whoever reads it
// meanwhile sees the old one or the new one, whole.
func write(f generator.File) error {
	if f.New == nil {
		if err := os.Remove(f.Path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	path, mode, err := place(f.Path)
	if err != nil {
		return err
	}
	// The name starts with a dot, so that the go command does not see it.
	tmp, err := os.CreateTemp(filepath.Dir(path), ".lock_gen-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone already if all went well
	_, err = tmp.Write(f.New)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// place is where a file is really written, behind its symbolic links, and its
// permissions, which stay.
func place(path string) (string, fs.FileMode, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path, 0o644, nil
	case err != nil:
		return "", 0, err
	case !info.Mode().IsRegular():
		return "", 0, errors.New("a folder, a device or the like has its name")
	}
	path, err = filepath.EvalSymlinks(path)
	return path, info.Mode().Perm(), err
}
