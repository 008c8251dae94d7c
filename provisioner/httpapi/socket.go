package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"muster/internal/peer"
)

// SocketName is the socket's name in the provisioner's data directory.
const SocketName = "control.sock"

// maxSocketPath is the size of sockaddr_un without the closing zero (unix(7): 108 bytes; BSD 104).
const maxSocketPath = len(unix.RawSockaddrUnix{}.Path) - 1

// listenUnix replaces a socket that an earlier process left. The directory has mode 0700, and the store has a lock.
func listenUnix(path string) (*net.UnixListener, error) {
	short, done, err := shortened(path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	defer done()
	_ = os.Remove(path) // if this fails, listening reports it
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // unlinking would use the shortened name
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), l.Close())
	}
	return l, nil
}

func dial(ctx context.Context, path string) (net.Conn, error) {
	short, done, err := shortened(path)
	if err != nil {
		return nil, err
	}
	defer done()
	return new(net.Dialer).DialContext(ctx, "unix", short)
}

// shortened returns a name for path that fits into a socket address, through the directory's file descriptor if
// needed.
func shortened(path string) (short string, done func(), err error) {
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }, nil
}

// peerName returns the user at the other end, by name or as "uid N".
func peerName(c net.Conn) string {
	uid, err := peer.UID(c)
	if err != nil {
		return "unknown"
	}
	return UserName(uid)
}

// UserName returns "uid N" for a user without a name, as in containers.
func UserName(n uint32) string {
	uid := strconv.FormatUint(uint64(n), 10)
	if account, err := user.LookupId(uid); err == nil {
		return account.Username
	}
	return "uid " + uid
}

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
