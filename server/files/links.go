package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Check returns why [Dir.Switch] cannot link a set's files: ErrOccupied, or a directory in which it cannot create
// links.
func (d *Dir) Check() error {
	for name, at := range d.cfg.Links {
		if d.isLinked(name) {
			continue
		}
		if err := checkOccupied(at, d.target(name)); err != nil {
			return err
		}
		temp, err := makeLink(at, d.target(name))
		if err == nil {
			err = os.Remove(temp)
		}
		if err != nil {
			return fmt.Errorf("make %s a link: %w", at, err)
		}
	}
	return nil
}

// Writable returns why the directory takes no files. It writes as much as a small set, removes it, and syncs nothing.
func (d *Dir) Writable() error {
	probe := filepath.Join(d.cfg.Dir, ".probe")
	err := os.WriteFile(probe, make([]byte, 32<<10), 0o600)
	if removed := os.Remove(probe); err == nil {
		err = removed
	}
	return err
}

// checkOccupied returns an error if something at the path at must not be replaced.
func checkOccupied(at, target string) error {
	fi, err := os.Stat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.IsDir() {
		return fmt.Errorf("%s: %w: it is a directory", at, ErrOccupied)
	}
	if to, err := os.Readlink(at); err == nil && to != target && filepath.Base(filepath.Dir(to)) == dataLink {
		return fmt.Errorf("%s: %w: it is a link into another set", at, ErrOccupied)
	}
	return nil
}

// Replace writes a file atomically: after a crash, it has the former content or data. Only one caller at a time may
// write it. The name is durable once the directory is synced.
func Replace(path string, data []byte, mode fs.FileMode) error {
	temp := filepath.Join(filepath.Dir(path), "."+strings.TrimLeft(filepath.Base(path), ".")+".new")
	err := WriteNew(temp, data, func(f *os.File) error { return f.Chmod(mode) })
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp) // err is what matters
	}
	return err
}

// WriteNew writes and syncs a file, which finish then gives its owner and mode. It first removes what is at the path.
func WriteNew(path string, data []byte, finish func(*os.File) error) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, finish(f), f.Sync(), f.Close())
}

// link replaces what is at the path at by a link to target.
func (d *Dir) link(at, target string) error {
	temp, err := makeLink(at, target)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, at); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	d.cfg.Step("linked " + filepath.Base(at))
	return nil
}

// makeLink makes a link to target beside the path at.
func makeLink(at, target string) (temp string, err error) {
	temp = filepath.Join(filepath.Dir(at), "."+strings.TrimLeft(filepath.Base(at), ".")+".link")
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return temp, newLink(target, temp)
}
