//go:build linux

package discover_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"muster/internal/discover"
	"muster/internal/testproc"
)

// inChild marks a child process of a test, in its own network.
const inChild = "MUSTER_TEST_CHILD"

var families = map[string]uint32{"AF_UNIX": unix.AF_UNIX, "AF_INET": unix.AF_INET, "AF_INET6": unix.AF_INET6,
	"AF_NETLINK": unix.AF_NETLINK}

// The name server has an IPv6 link-local address with a zone, as routers announce it. The agent must reach it with
// the permissions of its systemd unit.
func TestLinkLocalNameServer(t *testing.T) {
	t.Parallel()
	const link = "cable"
	if os.Getenv(inChild) == "" {
		testproc.NeedsRoot(t)
		testproc.Needs(t, "unshare", "ip", "mount")
		cmd := exec.CommandContext(t.Context(), "unshare", "--net", "--mount", os.Args[0], "-test.run",
			"^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), inChild+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: "+t.Name()) {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	for _, args := range []string{
		"link set lo up",
		"link add " + link + " type veth peer name end",
		"link set end up",
		"link set " + link + " up",
		"address add fe80::53/64 dev " + link + " nodad",
	} {
		if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	// resolv.conf implies port 53. The server must not resolve the link's name, because this process would cache
	// it.
	started := make(chan struct{})
	server := &dns.Server{Net: "udp", Addr: "[::]:53", NotifyStartedFunc: func() { close(started) }}
	server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		rr, err := dns.NewRR(choriaName + " 60 IN SRV 0 0 4222 a.example.net.")
		if err != nil {
			t.Error(err)
		}
		m.Answer = append(m.Answer, rr)
		_ = w.WriteMsg(m) // the client may have gone
	})
	done := make(chan error, 1)
	go func() { done <- server.ListenAndServe() }()
	select {
	case <-started:
	case err := <-done:
		t.Fatal(err)
	}
	defer func() {
		_ = server.Shutdown()
		<-done
	}()
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver fe80::53%"+link+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mount := exec.CommandContext(t.Context(), "mount", "--bind", conf, "/etc/resolv.conf")
	if out, err := mount.CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	leave(t, unitFamilies(t))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if brokers, err := (discover.Config{SRVDomain: "example.net"}).Brokers(ctx); err != nil || len(brokers) != 1 {
		t.Errorf("Brokers = %v, %v, want one", brokers, err)
	}
}

// unitFamilies returns the socket families that the agent's unit allows.
func unitFamilies(t *testing.T) (allowed []uint32) {
	t.Helper()
	b, err := os.ReadFile("../../deploy/systemd/muster-server.service")
	if err != nil {
		t.Fatal(err)
	}
	_, names, ok := strings.Cut(string(b), "\nRestrictAddressFamilies=")
	names, _, _ = strings.Cut(names, "\n")
	for _, name := range strings.Fields(names) {
		family, known := families[name]
		ok = ok && known
		allowed = append(allowed, family)
	}
	if !ok {
		t.Fatalf("address families of the unit: %q", names)
	}
	return allowed
}

// leave restricts this process to sockets of the families, as systemd does.
func leave(t *testing.T, allowed []uint32) {
	t.Helper()
	const number, family = 0, 16 // where they are in struct seccomp_data; the low half of the first argument
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	end := func(with uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: with}
	}
	equal := func(k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	filter := []unix.SockFilter{load(number), equal(unix.SYS_SOCKET, 1, 0), end(unix.SECCOMP_RET_ALLOW), load(family)}
	for _, k := range allowed {
		filter = append(filter, equal(k, 0, 1), end(unix.SECCOMP_RET_ALLOW))
	}
	filter = append(filter, end(unix.SECCOMP_RET_ERRNO|uint32(unix.EAFNOSUPPORT)))
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		t.Fatal(errno)
	}
}
