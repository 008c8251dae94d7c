package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"muster/internal/inputfile"
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

func (d *Dir) isLinked(name string) bool {
	to, err := os.Readlink(d.cfg.Links[name])
	return err == nil && to == d.target(name)
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

// target returns a link's target. It is relative if possible, so that the link also works in a mounted image.
func (d *Dir) target(name string) string {
	to := filepath.Join(d.cfg.Dir, dataLink, name)
	if below, ok := strings.CutPrefix(to, filepath.Dir(d.cfg.Links[name])+string(filepath.Separator)); ok {
		return below
	}
	return to
}

// makeLinkFor replaces the path of a name with a link through ..data. It first copies an existing file into the set in
// force.
func (d *Dir) makeLinkFor(root *os.Root, name string) error {
	if d.isLinked(name) {
		return nil
	}
	at := d.cfg.Links[name]
	if err := checkOccupied(at, d.target(name)); err != nil {
		return err
	}
	if fi, err := os.Stat(at); err == nil && fi.Mode().IsRegular() {
		if err := d.copyIntoSet(root, name, fi.Mode()); err != nil {
			return err
		}
	}
	d.unsynced = true
	return d.link(at, d.target(name))
}

func (d *Dir) copyIntoSet(root *os.Root, name string, mode fs.FileMode) error {
	at := d.cfg.Links[name]
	data, err := root.Readlink(dataLink)
	if errors.Is(err, fs.ErrNotExist) {
		if data, err = d.newGeneration(root); err == nil {
			err = d.link(filepath.Join(d.cfg.Dir, dataLink), data)
		}
	}
	if err != nil {
		return err
	}
	b, err := inputfile.Read(at, inputfile.Configured, inputfile.MaxBytes)
	if err != nil {
		return err
	}
	if err := d.write(root, data, File{Name: name, Data: b, Mode: mode}); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(d.cfg.Dir, data), d.cfg.Dir} {
		if err := d.cfg.Sync(dir); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dir) link(at, target string) error {
	temp, err := makeLink(at, target)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, at); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	d.unsynced = true
	d.cfg.Step("linked " + filepath.Base(at))
	return nil
}

func makeLink(at, target string) (temp string, err error) {
	temp = filepath.Join(filepath.Dir(at), "."+strings.TrimLeft(filepath.Base(at), ".")+".link")
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return temp, os.Symlink(target, temp)
}

// Replace writes a file atomically: after a crash, it has the former content or data. Only one caller at a time may
// write it. The name is durable once the directory is synced.
func Replace(path string, data []byte, mode fs.FileMode) error {
	temp := filepath.Join(filepath.Dir(path), "."+strings.TrimLeft(filepath.Base(path), ".")+".new")
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// SyncDir syncs a directory's entries to disk.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	err = f.Sync()
	// Some file systems do not support syncing a directory, and do not need it.
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}
