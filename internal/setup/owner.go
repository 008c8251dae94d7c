package setup

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// giveToOwnerOf makes dir and all in it the owner's of another file, if we are root: a provisioner that runs as
// another user has to read it.
func giveToOwnerOf(like, dir string) error {
	owner, err := os.Stat(like)
	if err != nil {
		return err
	}
	stat, ok := owner.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(stat.Uid), int(stat.Gid)) //nolint:gosec // only its owner writes to the directory
	})
}
