//go:build !unix

package server

import "io/fs"

// lockFile does nothing where there is no flock: running one agent per
// directory is then the service manager's to ensure.
func lockFile(string) (*lock, error) { return &lock{}, nil }

type lock struct{}

func (*lock) release() {}

func inode(fs.FileInfo) uint64 { return 0 }
