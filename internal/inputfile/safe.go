package inputfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrUnsafe means that another user could change the file. The error text has the command to fix it.
var ErrUnsafe = errors.New("lets other users change it")

const maxLinks = 40 // as Linux follows

// Permissions by which other users change a file: of what a path names, and of a directory that only has to keep it.
const (
	anyWriter   fs.FileMode = 0o022
	worldWriter fs.FileMode = 0o002
)

// Safe returns an error that wraps [ErrUnsafe] if a user besides root, this process's and the owners could change what
// the path names, as ssh judges: the file or directory, the directory that it is in, and each link and directory on the
// way. A file system that is mounted read-only is not judged. A path that does not exist is an [fs.ErrNotExist] after
// all that exists was judged.
func Safe(path string, owners ...int) error { return safe(path, anyWriter, owners) }

// SafeDir is [Safe] for a directory of state, which may be open to a group: volumes of containers are.
func SafeDir(path string, owners ...int) error { return safe(path, worldWriter, owners) }

func safe(path string, writers fs.FileMode, owners []int) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	owners = append(slices.Clone(owners), 0, os.Geteuid())
	dir, rest := split(abs)
	links := 0
	for len(rest) > 0 {
		at := filepath.Join(dir, rest[0])
		if len(rest) == 1 {
			if err := judge(dir, writers, owners); err != nil {
				return err
			}
		}
		target, unlinked := os.Readlink(at)
		switch {
		case unlinked == nil && links == maxLinks:
			return fmt.Errorf("%s: more than %d links", path, maxLinks)
		case unlinked == nil || len(rest) == 1:
			err = judge(at, writers, owners)
		default:
			err = judge(at, worldWriter, nil)
		}
		if err != nil {
			return err
		}
		if unlinked != nil {
			dir, rest = at, rest[1:]
			continue
		}
		root, names := split(target)
		if links++; filepath.IsAbs(target) {
			dir = root
		}
		rest = append(names, rest[1:]...)
	}
	return nil
}

// split returns the root directory of the volume of a path, and the names below it.
func split(path string) (root string, names []string) {
	volume := filepath.VolumeName(path)
	names = strings.FieldsFunc(path[len(volume):], func(r rune) bool { return r == filepath.Separator })
	return volume + string(filepath.Separator), names
}

// ShellWord quotes a path for a command line that an error shows.
func ShellWord(path string) string {
	if strings.HasPrefix(path, "-") {
		path = "./" + path
	}
	const safe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+,:@%="
	if strings.Trim(path, safe) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
