//go:build unix

package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Space is the total and free space of a file system in bytes.
type Space struct{ Total, Free int64 }

// SpaceOf returns the space on the file system of dir, or of its nearest existing parent.
func SpaceOf(dir string) (Space, error) {
	for {
		s, err := spaceOf(dir)
		if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return Space{}, fmt.Errorf("%s: %w", dir, err)
		}
		return s, nil
	}
}

func spaceOf(dir string) (Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return Space{}, err
	}
	//nolint:unconvert // of another type elsewhere
	block := int64(s.Bsize)
	return Space{Total: int64(s.Blocks) * block, Free: int64(s.Bavail) * block}, nil //nolint:unconvert // as above
}

// NeedRoom returns an error if the file system of dir has less than needed bytes free.
func NeedRoom(dir string, needed int64) error {
	s, err := SpaceOf(dir)
	if err == nil && s.Free < needed {
		err = fmt.Errorf("%s: the disk has %s free, needs %s: free some space", dir, Size(s.Free), Size(needed))
	}
	return err
}

// StoreSize returns how many bytes JetStream may use. The limit is for now: the size of dir plus three quarters of the
// free space, and at least half of the capacity; with less JetStream does not start. The capacity is nine tenths of the
// disk. It ignores free space, so a restart on a fuller disk does not cut streams.
func StoreSize(dir string) (limit, capacity int64, err error) {
	s, err := SpaceOf(dir)
	if err != nil {
		return 0, 0, err
	}
	capacity = s.Total / 10 * 9
	used := int64(0)
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return ignoreAbsent(err)
		}
		info, err := e.Info()
		if err == nil {
			used += info.Size()
		}
		return ignoreAbsent(err)
	})
	return max(used+s.Free/4*3, capacity/2), capacity, err
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Sync syncs the file system of dir, since JetStream does not sync new streams.
func Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := syncFileSystem(f); err != nil {
		err = fmt.Errorf("sync %s: %w", dir, err)
		return errors.Join(err, f.Close())
	}
	return f.Close()
}
