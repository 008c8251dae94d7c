// Package disk measures free space, syncs file systems and locks files.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
)

// SyncDir syncs dir, so that new and renamed files in it survive a power cut.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(syncNames(d), d.Close())
}

// InPlace returns an error unless the file is still at the path that it was opened by.
func InPlace(opened *os.File) error {
	mine, err := opened.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(opened.Name())
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(mine, there) {
		return fmt.Errorf("%s was replaced since the start", opened.Name())
	}
	return err
}

// Size is a number of bytes.
type Size int64

var units = []struct {
	name string
	size int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

// ParseSize parses a whole number of bytes, KiB, MiB, GiB or TiB. "" is 0.
func ParseSize(s string) (Size, error) {
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
		return Size(n * u.size), nil
	}
	return 0, fmt.Errorf("is %q, want a size like 512MiB or 2GiB", s)
}

// String returns the size in whole units, rounded down.
func (b Size) String() string {
	for _, u := range units {
		if n := int64(b); n >= 10*u.size {
			return strconv.FormatInt(n/u.size, 10) + " " + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}
