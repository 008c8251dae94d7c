//go:build darwin || freebsd

package httpapi

import "golang.org/x/sys/unix"

// peerUID returns the user of the process at the other end of a Unix socket (LOCAL_PEERCRED, unix(4)).
func peerUID(fd int) (uint32, error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
