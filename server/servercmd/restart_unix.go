//go:build unix

package servercmd

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// again starts the program anew in the place of this process: what is at its path
// by now, with the same arguments. It returns only if that is not possible; whoever
// looks after the process then sees it fail.
func again() error {
	// The path that it was started by, as a service manager gives it: it may be a link,
	// which leads to another version by now.
	path, err := os.Args[0], error(nil)
	if !filepath.IsAbs(path) {
		path, err = os.Executable()
	}
	if err == nil {
		err = syscall.Exec(path, os.Args, os.Environ()) //nolint:gosec // this program itself
	}
	return fmt.Errorf("start again: %w", err)
}
