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

// listenUnix makes the socket at path, for its owner only, in place of one that an
// earlier process left. It appears under its name only when nobody else can
// open it. The directory must be ours alone to serve: package broker's lock on
// the store sees to that.
func listenUnix(path string) (*net.UnixListener, error) {
	// In a directory of its own until it is for its owner only, whatever the
	// umask is. What a killed process leaves of it is empty or a dead socket.
	private, err := os.MkdirTemp(filepath.Dir(path), ".control-")
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	defer func() { _ = os.RemoveAll(private) }() // empty after the rename
	first := filepath.Join(private, "s")
	short, done, err := shortened(first)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // it would unlink the name that it had first
	if err := errors.Join(os.Chmod(first, 0o600), os.Rename(first, path)); err != nil {
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

// peerName says which user's process is at the other end: the user's name, or
// uid and number where there is none.
func peerName(c net.Conn) string {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return "unknown"
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return "unknown"
	}
	var peer uint32
	cerr := raw.Control(func(fd uintptr) { peer, err = peerUID(int(fd)) })
	if cerr != nil || err != nil {
		return "unknown"
	}
	uid := strconv.FormatUint(uint64(peer), 10)
	if account, err := user.LookupId(uid); err == nil {
		return account.Username
	}
	return "uid " + uid
}
