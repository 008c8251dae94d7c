package chaos_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"muster/internal/testproc"
)

// cutConnections ends connections in the middle of messages, over and over.
func cutConnections(r *run) { badNetwork(r, cuts) }

// stallConnections holds connections in the middle of messages.
func stallConnections(r *run) { badNetwork(r, stalls) }

func badNetwork(r *run, mode int32) {
	r.d = newEmbedded(r.T, r.dir, "127.0.0.1")
	r.d.serve()
	p := newProxy(r.T, r.d.address())
	r.enroll(size(150, 5000), p.address())
	p.set(mode)
	r.w.start()
	for i := range 3 {
		hold(lasting(time.Second, 10*time.Second))
		p.set(passes)
		r.recovers()
		r.w.part(0.2 + 0.25*float64(i))
		p.set(mode)
	}
	hold(lasting(time.Second, 10*time.Second))
	p.set(passes)
	r.recovers()
	r.settle()
}

// partition cuts the network between the nodes' host and the provisioner's: packets get lost without an error.
func partition(r *run) {
	n := newNetwork(r.T, 1)
	r.d = newEmbedded(r.T, r.dir, n.address(0))
	r.d.prefix = n.in(0)
	r.d.serve()
	r.enroll(size(150, 5000), r.d.address())
	r.w.prefix = n.atSwitch()
	r.w.start()
	r.somewhere(0.2, 0.5)
	n.link(0, "down")
	hold(lasting(2*time.Second, 30*time.Second))
	n.link(0, "up")
	r.recovers()
	r.settle()
}

// A network is hosts at a switch: network namespaces with virtual devices to a bridge in a further one, for nodes,
// provisioners and the checker.
type network struct {
	t     *testing.T
	names []string // of the switch, then of the hosts
}

// networks counts the networks of this process, for their names.
var networks atomic.Int32

func newNetwork(t *testing.T, hosts int) *network {
	t.Helper()
	testproc.Needs(t, "ip")
	testproc.NeedsRoot(t)
	n := &network{t: t}
	number := networks.Add(1)
	for i := range hosts + 1 {
		name := fmt.Sprintf("muster-%d-%d-%d", os.Getpid(), number, i)
		n.names = append(n.names, name)
		n.ip("netns", "add", name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() }) // its devices go with it
		n.ip("-n", name, "link", "set", "lo", "up")
	}
	n.ip("-n", n.names[0], "link", "add", "switch", "type", "bridge")
	n.ip("-n", n.names[0], "addr", "add", "10.99.0.254/24", "dev", "switch")
	n.ip("-n", n.names[0], "link", "set", "switch", "up")
	for i, name := range n.names[1:] {
		port := fmt.Sprintf("port%d", i)
		n.ip("link", "add", port, "netns", n.names[0], "type", "veth", "peer", "name", "cable", "netns", name)
		n.ip("-n", n.names[0], "link", "set", port, "master", "switch", "up")
		n.ip("-n", name, "addr", "add", n.address(i)+"/24", "dev", "cable")
		n.ip("-n", name, "link", "set", "cable", "up")
	}
	return n
}

// address returns a host's.
func (n *network) address(host int) string { return fmt.Sprintf("10.99.0.%d", host+1) }

// in returns what runs a program on a host.
func (n *network) in(host int) []string { return []string{"ip", "netns", "exec", n.names[host+1]} }

// atSwitch returns what runs a program at the switch.
func (n *network) atSwitch() []string { return []string{"ip", "netns", "exec", n.names[0]} }

// link plugs a host's cable in or out: "up" or "down".
func (n *network) link(host int, state string) {
	n.t.Helper()
	n.ip("-n", n.names[host+1], "link", "set", "cable", state)
}

func (n *network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// Dial connects from the switch for this process, which is outside.
func (n *network) Dial(protocol, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		// The thread is not unlocked: it ends with the goroutine.
		runtime.LockOSThread()
		f, err := os.Open(filepath.Join("/run/netns", n.names[0]))
		if err == nil {
			defer f.Close()
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		}
		if err != nil {
			done <- result{nil, err}
			return
		}
		// Only an address: a look-up could run on another thread.
		conn, err := net.DialTimeout(protocol, address, 10*time.Second)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}
