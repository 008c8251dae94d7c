package files

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/windows"
)

// EachLinked is false: directories have no hard links.
const EachLinked = false

// private lets the system, administrators and the owner in. Files inherit it.
const private = "D:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;FA;;;OW)"

// makeDir makes missing directories private: every user can read what is below C:\ProgramData.
func makeDir(dir string, mode fs.FileMode) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeDir(filepath.Dir(dir), mode); err != nil {
		return err
	}
	if err := os.Mkdir(dir, mode); err != nil {
		return err
	}
	return protect(dir)
}

// setMode protects private files.
func setMode(f *os.File, mode fs.FileMode) error {
	if mode&0o077 != 0 {
		return nil
	}
	return protect(f.Name())
}

func protect(path string) error {
	sd, err := windows.SecurityDescriptorFromString(private)
	if err != nil {
		return err
	}
	list, _, err := sd.DACL()
	if err != nil {
		return err
	}
	const which = windows.DACL_SECURITY_INFORMATION | windows.PROTECTED_DACL_SECURITY_INFORMATION
	if err := windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, which, nil, nil, list, nil); err != nil {
		return &fs.PathError{Op: "protect", Path: path, Err: err}
	}
	return nil
}

// newLink makes a file instead if target does not exist.
func newLink(target, path string) error {
	err := os.Link(target, path)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.WriteFile(path, nil, 0o600)
	}
	return err
}

// stage makes a generation the next set. A crash may leave none.
func (d *Dir) stage(root *os.Root, generation string) error {
	if err := root.RemoveAll(nextLink); err != nil {
		return err
	}
	return root.Rename(generation, nextLink)
}

func (d *Dir) staged(root *os.Root) (string, error) {
	_, err := root.Stat(nextLink)
	return nextLink, err
}

func (d *Dir) show(_ *os.Root, name string) error {
	return checkOccupied(d.cfg.Links[name], d.target(name))
}

// putInForce switches links, then directories. It undoes this after an error; after a crash, finish completes it.
func (d *Dir) putInForce(root *os.Root) error {
	if err := d.linkInto(root, nextLink); err != nil {
		return errors.Join(err, d.linkInto(root, dataLink))
	}
	former := prefix + rand.Text()
	err := root.Rename(dataLink, former)
	if err == nil || errors.Is(err, fs.ErrNotExist) { // the first set replaces none
		d.cfg.Step("former set moved")
		err = root.Rename(nextLink, dataLink)
	}
	if err == nil {
		return nil
	}
	_ = root.Rename(former, dataLink) // if it fails, finish repeats the switch
	return errors.Join(err, d.linkInto(root, dataLink))
}

// finish completes a switch that a crash has interrupted.
func (d *Dir) finish(root *os.Root) error {
	if _, err := root.Stat(path.Join(nextLink, madeFile)); err != nil {
		return nil // no complete set is staged
	}
	_, err := root.Stat(dataLink)
	begun := errors.Is(err, fs.ErrNotExist)
	for name := range d.cfg.Links {
		begun = begun || d.sameFile(name, nextLink)
	}
	if !begun {
		return nil
	}
	return d.putInForce(root)
}

func (d *Dir) linkInto(root *os.Root, set string) error {
	for _, name := range slices.Sorted(maps.Keys(d.cfg.Links)) {
		if _, err := root.Lstat(path.Join(set, name)); err != nil || d.sameFile(name, set) {
			continue
		}
		if err := d.link(d.cfg.Links[name], filepath.Join(d.cfg.Dir, set, name)); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dir) isLinked(name string) bool { return d.sameFile(name, dataLink) }

func (d *Dir) sameFile(name, set string) bool {
	at, err := os.Lstat(d.cfg.Links[name])
	if err != nil {
		return false
	}
	file, err := os.Lstat(filepath.Join(d.cfg.Dir, set, name))
	return err == nil && os.SameFile(at, file)
}

func (d *Dir) target(name string) string { return filepath.Join(d.cfg.Dir, dataLink, name) }
