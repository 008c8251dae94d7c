//go:build darwin || freebsd

package peer

import "golang.org/x/sys/unix"

// uidOf returns the user of the process at the other end of a Unix socket (LOCAL_PEERCRED, unix(4)).
func uidOf(fd int) (uint32, error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
