//go:build !unix

package server

import (
	"io/fs"
	"os"
)

// lockFile does nothing where there is no flock: running one agent per
// directory is then the service manager's to ensure.
func lockFile(string) (unlock func(), err error) { return func() {}, nil }

func device(fs.FileInfo) uint64 { return 0 }

// takeOver gives path the mode of like.
func takeOver(path string, like fs.FileInfo) error { return os.Chmod(path, like.Mode().Perm()) }
