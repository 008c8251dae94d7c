package server

import (
	"io/fs"
	"syscall"
)

// Default paths.
const (
	DefaultConfFile = `C:\ProgramData\muster\server.conf`
	DefaultSSLDir   = `C:\ProgramData\muster\ssl`

	hostsFile = `C:\Windows\System32\drivers\etc\hosts`
)

// DefaultTokenFiles are the paths of the token, the first one preferred.
var DefaultTokenFiles = []string{`C:\ProgramData\muster\provisioning.jwt`, `C:\ProgramData\choria\provisioning.jwt`}

// inode returns a file's creation time: its number needs an open file.
func inode(fi fs.FileInfo) uint64 {
	if d, ok := fi.Sys().(*syscall.Win32FileAttributeData); ok {
		return uint64(d.CreationTime.Nanoseconds())
	}
	return 0
}
