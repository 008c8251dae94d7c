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
	var peer *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if uid := int(peer.Uid); uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("the process at the other end is of user %d, want root or user %d", uid, os.Geteuid())
	}
	return nil
}
