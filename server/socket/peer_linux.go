package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// checkPeer returns an error if the process at the other end is neither root's nor of this process's user.
func checkPeer(conn net.Conn) error {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		var peer *syscall.Ucred
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		if err == nil && peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
			err = fmt.Errorf("user %d may not ask the agent", peer.Uid)
		}
	})
	return errors.Join(err, failed)
}
