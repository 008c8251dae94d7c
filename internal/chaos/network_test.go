package chaos_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
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

// partition takes the network away between the nodes' host and the
// provisioner's: packets get lost, and nobody is told.
func partition(r *run) {
	if os.Getuid() != 0 {
		partitionByProxy(r)
		return
	}
	n := newNetwork(r.T)
	r.d = newEmbedded(r.T, r.dir, n.broker)
	r.d.prefix = n.in(0)
	r.d.serve()
	r.enroll(size(150, 5000), r.d.address())
	r.w.prefix = n.in(1)
	r.w.start()
	r.somewhere(0.2, 0.5)
	n.link("down")
	hold(lasting(2*time.Second, 30*time.Second))
	n.link("up")
	r.recovers()
	r.settle()
}

// partitionByProxy is the same where namespaces cannot be made.
func partitionByProxy(r *run) {
	r.d = newEmbedded(r.T, r.dir, "127.0.0.1")
	r.d.serve()
	p := newProxy(r.T, r.d.address())
	r.enroll(size(150, 5000), p.address())
	r.w.start()
	r.somewhere(0.2, 0.5)
	p.set(stalls)
	hold(lasting(2*time.Second, 30*time.Second))
	p.set(passes)
	r.recovers()
	r.settle()
}

// A network is two hosts with a cable between them: namespaces and a pair of
// virtual devices.
type network struct {
	t      *testing.T
	names  [2]string
	broker string // address of the first host
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{t: t, broker: "10.99.0.1"}
	for i := range n.names {
		n.names[i] = fmt.Sprintf("muster-%d-%d", os.Getpid(), i)
		n.ip("netns", "add", n.names[i])
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", n.names[i]).Run() }) // takes the devices along
	}
	n.ip("link", "add", "chaos", "netns", n.names[0], "type", "veth", "peer", "name", "chaos", "netns", n.names[1])
	for i, name := range n.names {
		n.ip("-n", name, "link", "set", "lo", "up")
		n.ip("-n", name, "addr", "add", fmt.Sprintf("10.99.0.%d/24", i+1), "dev", "chaos")
		n.ip("-n", name, "link", "set", "chaos", "up")
	}
	return n
}

// in returns what runs a program on a host.
func (n *network) in(host int) []string { return []string{"ip", "netns", "exec", n.names[host]} }

// link plugs the cable in or out, at the broker's end.
func (n *network) link(state string) {
	n.t.Helper()
	n.ip("-n", n.names[0], "link", "set", "chaos", state)
}

func (n *network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
