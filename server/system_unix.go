//go:build unix

package server

import (
	"io/fs"
	"syscall"
)

// Default paths.
const (
	DefaultConfFile = "/etc/muster/server.conf"
	DefaultSSLDir   = "/etc/muster/ssl"

	hostsFile = "/etc/hosts"
)

// DefaultTokenFiles are the paths of the token, the first one preferred.
var DefaultTokenFiles = []string{"/etc/provisioning.jwt", "/etc/choria/provisioning.jwt"}

func inode(fi fs.FileInfo) uint64 {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(st.Ino) //nolint:unconvert // its width differs between systems
}
