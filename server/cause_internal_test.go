package server

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A firewall that rejects, a route that prohibits and what confines a program forbid a
// connection with the errors that disks have for files. A machine that has run out of
// something says nothing of the broker.
func TestWhatTheKernelSaysIsNotMixedUp(t *testing.T) {
	t.Parallel()
	dial := func(errno syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv6loopback, Port: 4222}, Err: os.NewSyscallError("connect", errno)}
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{dial(syscall.EACCES), "firewall"}, // of ICMPv6: administratively prohibited
		{dial(syscall.EPERM), "firewall"},
		{dial(syscall.EHOSTUNREACH), "firewall"}, // of ICMP: the same
		{dial(syscall.EADDRNOTAVAIL), "no port left"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}, "LimitNOFILE="},
		{&os.PathError{Op: "open", Path: "/etc/muster/.ssl.next", Err: syscall.EMFILE}, "LimitNOFILE="},
		{&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.ENFILE)}, "this machine has as many files open"},
		{&os.PathError{Op: "open", Path: "/etc/muster/.ssl.next", Err: syscall.EACCES}, "write there"},
		{&os.PathError{Op: "open", Path: "/etc/muster/.ssl.next", Err: syscall.EROFS}, "write there"},
		{&os.PathError{Op: "unlinkat", Path: "/etc/muster/.ssl.next", Err: syscall.EPERM}, "chattr -ia"},
	} {
		if got := remedyOf(explain(fmt.Errorf("broker: %w", tt.err), peer{})); !strings.Contains(got, tt.want) {
			t.Errorf("%v: remedy %q, want one about %q", tt.err, got, tt.want)
		}
	}
}
