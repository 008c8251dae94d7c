package peer

import "golang.org/x/sys/unix"

// uidOf returns the user of the process at the other end of a Unix socket (SO_PEERCRED, unix(7)).
func uidOf(fd int) (uint32, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
