package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// size is a number of bytes.
type size int64

// units are what a size may end in.
var units = []struct {
	name string
	size int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

// parseBytes returns a size in a configuration file: a whole number of bytes,
// or one with KiB, MiB, GiB or TiB after it. Nothing is 0.
func parseBytes(s string) (size, error) {
	if s == "" {
		return 0, nil
	}
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.size {
			break
		}
		return size(n * u.size), nil
	}
	return 0, fmt.Errorf("is %q, want a size like 512MiB or 2GiB", s)
}

// rough returns the size in whole units, for people.
func (b size) rough() string {
	for _, u := range units {
		if n := int64(b); n >= 10*u.size {
			return strconv.FormatInt(n/u.size, 10) + " " + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// maxLowWater bounds the default low-water mark: on a large disk a
// twentieth would be more than anybody needs to clean up in peace. Chosen: at
// 3 KiB a record, 512 MiB are 170,000 renewals.
const maxLowWater = 512 << 20

// space is what a file system has.
type space struct{ total, free int64 }

// spaceOf returns what the file system of dir, or of the nearest directory
// above it that exists, has for us.
func spaceOf(dir string) (space, error) {
	var s unix.Statfs_t
	for {
		err := unix.Statfs(dir, &s)
		if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return space{}, fmt.Errorf("%s: %w", dir, err)
		}
		block := int64(s.Bsize)                                                          //nolint:unconvert // of another type elsewhere
		return space{total: int64(s.Blocks) * block, free: int64(s.Bavail) * block}, nil //nolint:unconvert // as above
	}
}

// lowWater returns the mark for a file system of this size.
func lowWater(configured size, s space) int64 {
	if configured > 0 {
		return int64(configured)
	}
	return min(maxLowWater, s.total/20)
}

// checkStorage returns why the file system of dir, which has s, has too little left,
// or nil. low says that it was so before: then it takes a quarter more than the mark
// to be enough, or one file would turn the alarm on and off.
func checkStorage(dir string, s space, configured size, low bool) error {
	mark := lowWater(configured, s)
	want := mark
	if low {
		want += mark / 4
	}
	if s.free < want {
		return fmt.Errorf("%s has %s free, below the mark of %s (store.low_water): no new identities until %s are free",
			dir, size(s.free).rough(), size(mark).rough(), size(mark+mark/4).rough())
	}
	return nil
}

// capacity is how much of the disk the store may ever take: nine tenths. It is
// the same at each start, so that the streams which are bounded by it are not
// cut by a start on a fuller disk.
func capacity(dir string) (int64, error) {
	s, err := spaceOf(dir)
	return s.total / 10 * 9, err
}

// storeSize is what the file system of dir has for the store.
func storeSize(dir string) (limit, most int64, err error) {
	if limit, err = maxStore(dir); err != nil {
		return 0, 0, err
	}
	most, err = capacity(dir)
	return limit, most, err
}

// maxStore is JetStream's own limit: what it has already, and three quarters of
// what is free. It is never below half of the capacity: JetStream sets aside
// what bounded streams may take and does not start with less, and a provisioner
// that cannot start on a nearly full disk cannot renew either. In that case the
// low-water mark is what keeps it from the end of the disk.
func maxStore(dir string) (int64, error) {
	s, err := spaceOf(dir)
	if err != nil {
		return 0, err
	}
	used := int64(0)
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return ignoreAbsent(err)
		}
		info, err := e.Info()
		if err != nil {
			return ignoreAbsent(err)
		}
		used += info.Size()
		return nil
	})
	return max(used+s.free/4*3, s.total/10*9/2), err
}

// syncFiles brings the file system of dir to its disk: records are synced as
// they are written, the streams that they are in are not when they are made.
func syncFiles(dir string) error {
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

// ignoreAbsent is err, but for files that are not there, or no more.
func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// startRoom is what must be free on the store's disk at a start: its streams are made or looked through, and the
// first writes would fail without. It is a few times what they take.
const startRoom = 16 << 20

// roomToStart returns an error if the disk of dir is too full for a start.
func roomToStart(dir string) error {
	s, err := spaceOf(dir)
	if err != nil {
		return err
	}
	if s.free < startRoom {
		return fmt.Errorf("data_dir: %s: the disk has %s free, and a start needs %s: free some space", dir, size(s.free).rough(), size(startRoom).rough())
	}
	return nil
}

// storageEvery is how often the free space is looked at: a disk of 1 GB/s
// fills a low-water mark of 512 MiB in half a second at worst, and at the pace
// of enrollment in minutes.
const storageEvery = 2 * time.Second
