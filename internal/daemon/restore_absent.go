package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"muster/provisioner/broker"
)

// absent is what was not there when a restore began, what lies in a directory in
// front of it.
type absent []string

// absentBefore returns what is not there of the directory of a broker, its lock and
// the directories above it.
func absentBefore(dir string) absent { return absentUpTo(broker.LockFile(dir)) }

// absentUpTo returns what is not there of a path and of the directories above it.
func absentUpTo(path string) (all absent) {
	for ; ; path = filepath.Dir(path) {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return all
		}
		all = append(all, path)
	}
}

// give makes what was absent, and is there now, the owner's of the directory that it
// is in, if we are root: a provisioner that runs as another user has to write there.
func (a absent) give() error {
	if len(a) == 0 {
		return nil
	}
	top := a[len(a)-1]
	return giveAllTo(top, filepath.Dir(top))
}

// remove takes away what a restore that has failed has made: empty files, and
// directories with nothing in them. Whoever calls it holds the locks. A kill in it
// leaves what is harmless.
func (a absent) remove() error {
	var errs []error
	for _, path := range a {
		info, err := os.Lstat(path)
		if err != nil || info.Mode().IsRegular() && info.Size() > 0 {
			continue // it was not made, or it says something
		}
		if err := os.Remove(path); err != nil && !info.IsDir() {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
