//go:build unix

package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"muster/internal/inputfile"
)

// EachLinked reports whether every name in a set may have a link.
const EachLinked = true

func makeDir(dir string, mode fs.FileMode) error { return os.MkdirAll(dir, mode) }

func setMode(f *os.File, mode fs.FileMode) error { return f.Chmod(mode) }

func newLink(target, path string) error { return os.Symlink(target, path) }

func (d *Dir) stage(_ *os.Root, generation string) error {
	return d.link(filepath.Join(d.cfg.Dir, nextLink), generation)
}

func (d *Dir) staged(root *os.Root) (string, error) { return root.Readlink(nextLink) }

func (d *Dir) putInForce(root *os.Root) error { return root.Rename(nextLink, dataLink) }

func (d *Dir) finish(*os.Root) error { return nil }

func (d *Dir) isLinked(name string) bool {
	to, err := os.Readlink(d.cfg.Links[name])
	return err == nil && to == d.target(name)
}

// target returns a link's target. It is relative if possible, so that the link also works in a mounted image.
func (d *Dir) target(name string) string {
	to := filepath.Join(d.cfg.Dir, dataLink, name)
	if below, ok := strings.CutPrefix(to, filepath.Dir(d.cfg.Links[name])+string(filepath.Separator)); ok {
		return below
	}
	return to
}

// show replaces the path of a name with a link through ..data. It first copies an existing file into the set in force.
func (d *Dir) show(root *os.Root, name string) error {
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
