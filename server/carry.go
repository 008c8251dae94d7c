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
	case keyFile, certificateFile, caFile, confName, appliedFile, untriedFile, markerFile, csrFile:
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
func carry(from, to, below string) error {
	n := 0
	return carryDir(from, to, below, &n)
}

func carryDir(from, to, below string, n *int) error {
	dir := filepath.Join(from, filepath.FromSlash(below))
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(below, e.Name())
		if ours(name) {
			continue
		}
		if *n++; *n > maxForeign {
			return &cause{what: fmt.Errorf("more than %d files in %s", maxForeign, from),
				remedy: "give the agent an --ssl-dir of its own"}
		}
		a, b := filepath.Join(from, filepath.FromSlash(name)), filepath.Join(to, filepath.FromSlash(name))
		fi, err := os.Lstat(a)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			return err
		}
		if fi.IsDir() {
			err = carrySubdir(from, to, name, fi, device(info), n)
		} else {
			err = link(a, b, fi)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// carrySubdir carries a directory and what is in it.
func carrySubdir(from, to, name string, fi fs.FileInfo, onDevice uint64, n *int) error {
	a, b := filepath.Join(from, filepath.FromSlash(name)), filepath.Join(to, filepath.FromSlash(name))
	if device(fi) != onDevice {
		return mountedInside(a)
	}
	if !exists(b) {
		if name == policyDir || name == regoDir {
			if empty, err := onlyOurs(from, name); err != nil || empty {
				return err // ours alone, and the new set has none
			}
		}
		if err := os.Mkdir(b, 0o700); err != nil {
			return err
		}
		if err := takeOver(b, fi); err != nil {
			return err
		}
	}
	if err := carryDir(from, to, name, n); err != nil {
		return err
	}
	return syncDir(b)
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

// link links a file, or copies it where links are not possible.
func link(a, b string, fi fs.FileInfo) error {
	err := os.Link(a, b)
	switch {
	case errors.Is(err, fs.ErrExist):
		return replaceOlder(a, b, fi)
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.EXDEV):
		return mountedInside(a)
	case !fi.Mode().IsRegular():
		return err
	}
	// No hard links on this file system, or none to files of others.
	return copyFile(a, b, fi)
}

// replaceOlder puts a in the place of b if it was written later: somebody replaced it
// after b had been linked.
func replaceOlder(a, b string, fi fs.FileInfo) error {
	is, err := os.Lstat(b)
	if err != nil || is.IsDir() || os.SameFile(fi, is) || !fi.ModTime().After(is.ModTime()) {
		return nil // removed since, or the newer one already
	}
	temp := tempName(b)
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := link(a, temp, fi); err != nil {
		return err
	}
	return os.Rename(temp, b)
}

func copyFile(a, b string, fi fs.FileInfo) error {
	in, err := os.Open(a)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(b, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Sync(), out.Close())
	if err == nil {
		err = errors.Join(takeOver(b, fi), os.Chtimes(b, fi.ModTime(), fi.ModTime()))
	}
	if err != nil {
		return errors.Join(err, os.Remove(b)) // half a copy must not pass for the file
	}
	return nil
}

func mountedInside(path string) error {
	return &cause{what: fmt.Errorf("%s is mounted inside the directory that is switched", path),
		remedy: "mount it elsewhere, or choose another --ssl-dir"}
}
