package server

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
)

// maxForeign bounds how many files of others are carried from one set to the
// next; chosen, far beyond what lies in a directory for certificates.
const maxForeign = 10_000

// ours reports whether a name in a set's directory is of the set, so that it
// comes from the set or not at all.
func ours(name string) bool {
	switch name {
	case keyFile, certificateFile, caFile, confName, appliedFile, confirmedFile, untriedFile, markerFile, csrFile:
		return true
	}
	switch path.Dir(name) {
	case policyDir:
		return path.Ext(name) == ".policy"
	case regoDir:
		return path.Ext(name) == ".rego"
	}
	return false
}

// carry links every file below from that is not ours into to, unless that has
// one of the name. They are the same files afterwards, not copies: whoever
// has one open, or appends to it, notices nothing.
//
// Something mounted in the directory cannot be carried, and would be emptied
// with the old set, so it is an error.
//
// The directories may be another user's, who changes them meanwhile, and the agent
// is root: each is held open, and no link in its place is followed.
func carry(from, to string) error {
	a, err := openFolder(from)
	if err != nil {
		return err
	}
	defer a.close()
	b, err := openFolder(to)
	if err != nil {
		return err
	}
	defer b.close()
	return (&carrier{from: from}).dir(a, b, "")
}

// A folder is a directory that is held open: what has its path by now may be
// another one.
type folder struct {
	*os.Root
	path string // for people
	file *os.File
}

func openFolder(path string) (*folder, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return newFolder(root, path)
}

func newFolder(root *os.Root, path string) (*folder, error) {
	file, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &folder{Root: root, path: path, file: file}, nil
}

func (f *folder) close() {
	_, _ = f.file.Close(), f.Close() // nothing was written to them
}

// sub opens a directory in the folder. A link to one is none.
func (f *folder) sub(name string) (*folder, error) {
	fi, err := f.Lstat(name)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(f.path, name)
	if !fi.IsDir() {
		return nil, fmt.Errorf("%s: %w", path, syscall.ENOTDIR)
	}
	root, err := f.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	sub, err := newFolder(root, path)
	if err != nil {
		return nil, err
	}
	if is, err := sub.file.Stat(); err != nil || !os.SameFile(fi, is) { // a link since
		sub.close()
		return nil, errors.Join(err, fmt.Errorf("%s: %w", path, syscall.ENOTDIR))
	}
	return sub, nil
}

// A carrier is one carry.
type carrier struct {
	from string
	n    int
}

func (c *carrier) dir(from, to *folder, below string) error {
	info, err := from.file.Stat()
	if err != nil {
		return err
	}
	entries, err := from.file.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(below, e.Name())
		if ours(name) {
			continue
		}
		if c.n++; c.n > maxForeign {
			return &cause{what: fmt.Errorf("more than %d files in %s", maxForeign, c.from),
				remedy: "give the agent an --ssl-dir of its own"}
		}
		fi, err := from.Lstat(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			return err
		}
		if fi.IsDir() {
			err = c.subdir(from, to, name, fi, device(info))
		} else {
			err = link(from, to, e.Name(), e.Name(), fi)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// subdir carries a directory and what is in it.
func (c *carrier) subdir(from, to *folder, name string, fi fs.FileInfo, onDevice uint64) error {
	base := path.Base(name)
	if device(fi) != onDevice {
		return mountedInside(filepath.Join(from.path, base))
	}
	_, err := to.Lstat(base)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing {
		if name == policyDir || name == regoDir {
			if empty, err := onlyOurs(c.from, name); err != nil || empty {
				return err // ours alone, and the new set has none
			}
		}
		err = to.Mkdir(base, 0o700)
	}
	if err != nil {
		return err
	}
	b, err := to.sub(base)
	if err != nil {
		return err
	}
	defer b.close()
	if missing {
		if err := takeOver(b.file, fi); err != nil {
			return err
		}
	}
	a, err := from.sub(base)
	if err != nil {
		return err
	}
	defer a.close()
	if err := c.dir(a, b, name); err != nil {
		return err
	}
	return syncOpen(b.file)
}

// onlyOurs reports whether nothing of others is in a directory.
func onlyOurs(from, name string) (bool, error) {
	entries, err := os.ReadDir(filepath.Join(from, filepath.FromSlash(name)))
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		sub := path.Join(name, e.Name())
		if e.IsDir() && sub == regoDir {
			if only, err := onlyOurs(from, sub); err != nil || !only {
				return false, err
			}
			continue
		}
		if !ours(sub) {
			return false, nil
		}
	}
	return true, nil
}

// link links a file as another name, or copies it where links are not possible.
func link(from, to *folder, name, as string, fi fs.FileInfo) error {
	err := linkBetween(from.file, to.file, name, as)
	switch {
	case errors.Is(err, fs.ErrExist):
		return replaceOlder(from, to, name, as, fi)
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.EXDEV):
		return mountedInside(filepath.Join(from.path, name))
	case !fi.Mode().IsRegular():
		return err
	}
	// No hard links on this file system, or none to files of others.
	return copyFile(from, to, name, as, fi)
}

// replaceOlder puts a file in the place of another one if it was written later:
// somebody replaced it after that had been linked.
func replaceOlder(from, to *folder, name, as string, fi fs.FileInfo) error {
	is, err := to.Lstat(as)
	if err != nil || is.IsDir() || os.SameFile(fi, is) || !fi.ModTime().After(is.ModTime()) {
		return nil // removed since, or the newer one already
	}
	temp := tempName(as)
	if err := to.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := link(from, to, name, temp, fi); err != nil {
		return err
	}
	return to.Rename(temp, as)
}

func copyFile(from, to *folder, name, as string, fi fs.FileInfo) error {
	in, err := from.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if is, err := in.Stat(); err != nil || !os.SameFile(fi, is) {
		return errors.Join(err, fmt.Errorf("%s: replaced while it was carried", filepath.Join(from.path, name)))
	}
	out, err := to.OpenFile(as, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = takeOver(out, fi)
	}
	err = errors.Join(err, out.Sync(), out.Close())
	if err == nil {
		err = to.Chtimes(as, fi.ModTime(), fi.ModTime())
	}
	if err != nil {
		return errors.Join(err, to.Remove(as)) // half a copy must not pass for the file
	}
	return nil
}

func mountedInside(path string) error {
	return &cause{what: fmt.Errorf("%s is mounted inside the directory that is switched", path),
		remedy: "mount it elsewhere, or choose another --ssl-dir"}
}
