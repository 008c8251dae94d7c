// Package peer tells which user is at the other end of a Unix socket.
package peer

import (
	"errors"
	"net"
)

// UID returns the user of the process at the other end. Where the system does not know it, the error
// wraps [errors.ErrUnsupported].
func UID(c net.Conn) (uid uint32, err error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) { uid, err = uidOf(int(fd)) })
	return uid, errors.Join(failed, err)
}
