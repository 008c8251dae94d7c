package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// SocketName is the socket's name in the provisioner's data directory.
const SocketName = "control.sock"

// maxSocketPath is what fits into sockaddr_un (unix(7): 108 bytes with the
// closing zero; elsewhere 104).
const maxSocketPath = len(unix.RawSockaddrUnix{}.Path) - 1

// socketLook is how often it is looked whether the socket is still there; chosen, a look
// is one stat(2).
const socketLook = time.Second

// A socket is the control socket. If somebody deletes it, operators of this machine
// could order nothing until the next start, so it is made again. What is in its place
// is somebody's, and stays.
type socket struct {
	path string
	log  *slog.Logger
	lost bool // it is gone, and that it stays so was said; only touched by Accept

	mu       sync.Mutex
	listener *net.UnixListener // guarded by mu
	closed   bool              // guarded by mu
	made     fs.FileInfo       // guarded by mu: the socket's file
}

func openSocket(path string, log *slog.Logger) (*socket, error) {
	l, err := listen(path)
	if err != nil {
		return nil, err
	}
	s := &socket{path: path, log: log, listener: l}
	s.made, err = os.Lstat(path)
	if err != nil { // somebody was quicker than that
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), l.Close())
	}
	return s, nil
}

// remove removes the file, if it is still the socket's. If that fails a stale one says
// the same: nobody answers.
func (s *socket) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fi, err := os.Lstat(s.path); err == nil && os.SameFile(fi, s.made) {
		_ = os.Remove(s.path)
	}
}

// Accept implements [net.Listener], for one goroutine. It is where the socket is looked
// at, so that nobody else waits on a listener that it replaces.
func (s *socket) Accept() (net.Conn, error) {
	for {
		l := s.current()
		if err := l.SetDeadline(time.Now().Add(socketLook)); err != nil {
			return nil, err
		}
		c, err := l.Accept()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return c, err
		}
		s.look()
	}
}

func (s *socket) current() *net.UnixListener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listener
}

// look makes the socket again if it is gone.
func (s *socket) look() {
	if _, err := os.Lstat(s.path); !errors.Is(err, fs.ErrNotExist) {
		s.lost = false
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	l, err := listen(s.path)
	if err == nil {
		if s.made, err = os.Lstat(s.path); err != nil {
			_ = l.Close()
		}
	}
	if err != nil {
		if !s.lost {
			s.log.Error("control socket is gone, and cannot be made again", "path", s.path, "err", err)
		}
		s.lost = true
		return
	}
	_ = s.listener.Close() // nobody finds it any more
	s.listener, s.lost = l, false
	s.log.Warn("control socket was gone, and is made again", "path", s.path)
}

// Close implements [net.Listener].
func (s *socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.listener.Close()
}

// Addr implements [net.Listener].
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// listen makes the socket at path, for its owner only, in place of one that an
// earlier process left. It appears under its name only when nobody else can
// open it. The directory must be ours alone to serve: package broker's lock on
// the store sees to that.
func listen(path string) (*net.UnixListener, error) {
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
