package files

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// madeFile is in each set. All files of a set have its time, so that a later change of a person is seen.
const madeFile = ".made"

// stamp gives all files of a generation the same time.
func (d *Dir) stamp(root *os.Root, generation string) error {
	if err := d.write(root, generation, File{Name: madeFile, Mode: 0o600}); err != nil {
		return err
	}
	now := time.Now()
	return fs.WalkDir(root.FS(), generation, func(at string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Chtimes(at, now, now)
	})
}

// keepChanged keeps what a person wrote at the path of a name beside it, before the next set replaces it.
func (d *Dir) keepChanged(root *os.Root, name string) error {
	at := d.cfg.Links[name]
	info, err := os.Lstat(at)
	if err != nil || info.IsDir() {
		return nil // nothing is there, or show refuses it
	}
	if !d.isLinked(name) {
		return d.keep(at, at, "")
	}
	made, err := root.Stat(path.Join(dataLink, madeFile))
	if err != nil {
		return nil // the agent was killed in its first switch, which kept what was there
	}
	written, err := filepath.EvalSymlinks(at)
	if err != nil {
		return nil // the set in force has no such name
	}
	return filepath.WalkDir(written, func(file string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil || info.ModTime().Equal(made.ModTime()) {
			return err
		}
		return d.keep(file, at, strings.TrimPrefix(file, written))
	})
}

// keep links a file, or a link, to a name beside at; below is its path below at. If that directory takes none, it is
// kept in the directory of sets. Repeating is harmless: what is kept is not kept again.
func (d *Dir) keep(file, at, below string) error {
	info, err := os.Lstat(file)
	if err != nil {
		return err
	}
	for _, base := range []string{at, filepath.Join(d.cfg.Dir, filepath.Base(at))} {
		copies, _ := filepath.Glob(base + ".before-*" + below)
		for _, c := range copies {
			if kept, err := os.Lstat(c); err == nil && os.SameFile(kept, info) {
				return nil
			}
		}
		kept := base + ".before-" + time.Now().UTC().Format("20060102T150405Z") + below
		err = os.MkdirAll(filepath.Dir(kept), 0o755)
		if err == nil {
			err = os.Link(file, kept)
		}
		if err == nil {
			d.cfg.Kept(at+below, kept)
			return d.cfg.Sync(filepath.Dir(kept))
		}
	}
	return fmt.Errorf("keep a copy of %s: %w", file, err)
}
