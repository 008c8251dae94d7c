package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// SocketName is the socket's name in the provisioner's data directory.
const SocketName = "control.sock"

// maxSocketPath is what fits into sockaddr_un (unix(7): 108 bytes with the
// closing zero; elsewhere 104).
const maxSocketPath = len(unix.RawSockaddrUnix{}.Path) - 1

// listenUnix makes the socket at path, for its owner only, in place of one that an earlier process left. The directory
// has mode 0700, and package broker's lock on the store keeps other provisioners from it.
func listenUnix(path string) (*net.UnixListener, error) {
	short, done, err := shortened(path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	defer done()
	_ = os.Remove(path) // if it stays, listening says why
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // it would unlink the short name
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), l.Close())
	}
	return l, nil
}

// dial connects to the socket at path.
func dial(ctx context.Context, path string) (net.Conn, error) {
	short, done, err := shortened(path)
	if err != nil {
		return nil, err
	}
	defer done()
	return new(net.Dialer).DialContext(ctx, "unix", short)
}

// shortened returns a name for path that fits into a socket address: through
// its directory's descriptor if path itself is too long. done ends its life.
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

// peerName returns the user whose process is at the other end: the name, or uid and number without one.
func peerName(c net.Conn) string {
	peer, err := peerOf(c)
	if err != nil {
		return "unknown"
	}
	uid := strconv.FormatUint(uint64(peer), 10)
	if account, err := user.LookupId(uid); err == nil {
		return account.Username
	}
	return "uid " + uid
}

// peerOf returns the user id of the process at the other end of a Unix socket.
func peerOf(c net.Conn) (peer uint32, err error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) { peer, err = peerUID(int(fd)) })
	return peer, errors.Join(failed, err)
}
