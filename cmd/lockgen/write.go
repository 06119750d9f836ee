package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockgen/lockgen/generator"
)

// writeAll writes the changed files. If one can't be written, it still writes the others. It
// returns the files that it wrote and, by path, why the others failed.
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
		switch { // leave out the name of the temporary file, which helps nobody
		case errors.As(err, &at):
			err = at.Err
		case errors.As(err, &of):
			err = of.Err
		}
		failed[f.Path] = fmt.Errorf("%s can't be written: %w", c.relative(f.Path), err)
	}
	return written, failed
}

// write puts a generated file in its place, or removes it. A reader sees the whole old file
// or the whole new one.
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
	// The go command ignores names that start with a dot.
	tmp, err := os.CreateTemp(filepath.Dir(path), ".lock_gen-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // fails after the rename, since the file has another name
	_, err = tmp.Write(f.New)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// place follows symbolic links to the file that is to be written. It also returns the
// permissions of that file, which are kept.
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
