package inputfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
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
	dir, rest, links := string(filepath.Separator), split(abs), 0
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
		if links++; filepath.IsAbs(target) {
			dir = string(filepath.Separator)
		}
		rest = append(split(target), rest[1:]...)
	}
	return nil
}

func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == filepath.Separator })
}

// judge judges a name of a path by its permissions and, unless owners is nil, by its owner: systems have directories of
// other users on the way to a file. In a sticky directory only owners replace files.
func judge(at string, writers fs.FileMode, owners []int) error {
	info, err := os.Lstat(at)
	if err != nil {
		return err
	}
	mode, owner := info.Mode(), ownerOf(info)
	link := mode&fs.ModeSymlink != 0
	if !link && !mode.IsDir() && !mode.IsRegular() {
		return nil // its reader refuses it
	}
	switch {
	case owners != nil && !slices.Contains(owners, owner):
		what := "owned"
		if link {
			what = "a link that is owned"
		}
		err = fmt.Errorf("%s: %s by user %d, which %w: chown -h %d %s", at, what, owner, ErrUnsafe, os.Geteuid(),
			ShellWord(at))
	case !link && mode.Perm()&writers != 0 && !(mode.IsDir() && (mode&fs.ModeSticky != 0 || isVolume(owner))):
		err = fmt.Errorf("%s: mode %04o %w: chmod go-w %s", at, mode.Perm(), ErrUnsafe, ShellWord(at))
	}
	if link {
		at = filepath.Dir(at)
	}
	if err != nil && readOnly(at) {
		return nil
	}
	return err
}

// isVolume is for an emptyDir of Kubernetes, which has mode 0777. The first process of a container has no other users.
func isVolume(owner int) bool { return owner == 0 && os.Getpid() == 1 }

// readOnly is for volumes of containers, whose mode is 0777 although nothing in them can be changed.
func readOnly(path string) bool {
	const flag = 1 // ST_RDONLY, MNT_RDONLY
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Flags&flag != 0
}

func ownerOf(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}

// FromRoot reports whether root owns a file and this process, not root's, is in its group, as in pods with fsGroup and
// Secrets.
func FromRoot(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || s.Uid != 0 || os.Geteuid() == 0 {
		return false
	}
	groups, err := os.Getgroups()
	return err == nil && slices.Contains(append(groups, os.Getegid()), int(s.Gid))
}

// OwnerOf returns the user of a file, or -1 if it cannot be found out.
func OwnerOf(path string) int {
	info, err := os.Stat(path)
	if err != nil {
		return -1
	}
	return ownerOf(info)
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
