//go:build !unix

package server

import (
	"io/fs"
	"os"
	"path/filepath"
)

// lockFile does nothing where there is no flock: running one agent per
// directory is then the service manager's to ensure.
func lockFile(string) (*lock, error) { return &lock{}, nil }

type lock struct{}

func (*lock) removed() bool { return false }

func (*lock) release() {}

func device(fs.FileInfo) uint64 { return 0 }

func inode(fs.FileInfo) uint64 { return 0 }

// takeOver gives f the mode of like.
func takeOver(f *os.File, like fs.FileInfo) error { return f.Chmod(like.Mode().Perm()) }

// linkBetween links a file of one directory into another.
func linkBetween(from, to *os.File, name, as string) error {
	return os.Link(filepath.Join(from.Name(), name), filepath.Join(to.Name(), as))
}
