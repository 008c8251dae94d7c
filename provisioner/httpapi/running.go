package httpapi

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// RunningSockets returns the control sockets of the provisioners that run on this machine as root or as the caller, so
// that a command that a node's log advises works as pasted. It returns none where the system has no /proc.
func RunningSockets() (sockets []string) {
	file, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		path := fields[len(fields)-1]
		if filepath.Base(path) != SocketName || !filepath.IsAbs(path) || slices.Contains(sockets, path) {
			continue
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Type() != fs.ModeSocket {
			continue
		}
		owner, ok := info.Sys().(*syscall.Stat_t)
		if ok && (owner.Uid == 0 || int(owner.Uid) == os.Geteuid()) {
			sockets = append(sockets, path)
		}
	}
	return sockets
}
