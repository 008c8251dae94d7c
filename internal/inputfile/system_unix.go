//go:build unix

package inputfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// noWait are the flags with which an open does not wait for a pipe's other end, and takes no terminal.
const noWait = unix.O_NONBLOCK | unix.O_NOCTTY

// awaitWriter waits until a pipe has bytes, or until a program had time to open it.
func awaitWriter(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) {
		events := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			_, err := unix.Poll(events, int(writerWait.Milliseconds()))
			if !errors.Is(err, unix.EINTR) { // as by the signals of Go's scheduler
				return // another early end is found by the first read
			}
		}
	})
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
	shared := mode.IsDir() && (mode&fs.ModeSticky != 0 || isVolume(owner))
	switch {
	case owners != nil && !slices.Contains(owners, owner):
		what := "owned"
		if link {
			what = "a link that is owned"
		}
		err = fmt.Errorf("%s: %s by user %d, which %w: chown -h %d %s", at, what, owner, ErrUnsafe, os.Geteuid(),
			ShellWord(at))
	case !link && mode.Perm()&writers != 0 && !shared:
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

// ReadableByOthers returns nil: on Unix the mode says it.
func ReadableByOthers(string) error { return nil }
