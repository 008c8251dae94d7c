package setup

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// giveToOwnerOf gives dir and its content to the owner of like, if this process is root: the provisioner may run as
// another user.
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
