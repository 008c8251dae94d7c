package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
)

// clustered starts a cluster on loopback and makes a wave of n nodes.
func (r *run) clustered(nodes int) {
	r.Helper()
	r.cluster()
	r.d.serveAll()
	r.enroll(nodes, r.d.address())
}

// cluster sets up a cluster on loopback.
func (r *run) cluster() {
	r.Helper()
	// A network of its own, so that no port is taken between two starts.
	a, b := 1+rand.IntN(250), 1+rand.IntN(250)
	var hosts [servers]string
	for i := range hosts {
		hosts[i] = fmt.Sprintf("127.%d.%d.%d", a, b, i+1)
	}
	r.d = newCluster(r.T, r.dir, hosts)
}

// killLeader kills the broker that leads the stream of records, and later starts
// it again.
func killLeader(r *run) {
	r.clustered(size(150, 5000))
	r.w.start()
	r.somewhere(0.2, 0.4)
	leader := r.d.leader()
	leader.p.kill()
	r.recovers()
	r.somewhere(0.6, 0.8)
	leader.start()
	r.settle()
}

// killFollower kills a broker that does not lead, and later starts it again.
func killFollower(r *run) {
	r.clustered(size(150, 5000))
	r.w.start()
	r.somewhere(0.2, 0.4)
	follower := r.d.followers()[r.rand.IntN(servers-1)]
	follower.p.kill()
	r.recovers()
	r.somewhere(0.6, 0.8)
	follower.start()
	r.settle()
}

// killMajority kills two brokers of three, the leader among them, and later starts
// them again. Nothing can be written meanwhile.
func killMajority(r *run) {
	r.clustered(size(150, 5000))
	r.w.start()
	r.somewhere(0.2, 0.5)
	leader, follower := r.d.leader(), r.d.followers()[0]
	leader.p.kill()
	follower.p.kill()
	hold(lasting(2*time.Second, 30*time.Second))
	leader.start()
	follower.start()
	r.recovers()
	r.settle()
}

// killOneProvisioner kills one of two provisioners, and later starts it again.
func killOneProvisioner(r *run) {
	r.clustered(size(150, 5000))
	r.w.start()
	r.somewhere(0.2, 0.4)
	r.d.p.kill()
	r.recovers()
	r.somewhere(0.6, 0.8)
	r.d.start()
	r.d.p.waitFor("provisioner is serving")
	r.settle()
}

// stopLeader stops the broker that leads the stream of records, and continues it later.
func stopLeader(r *run) {
	r.clustered(size(150, 5000))
	r.w.start()
	r.somewhere(0.2, 0.4)
	leader := r.d.leader()
	leader.p.signal(syscall.SIGSTOP)
	hold(lasting(2*time.Second, 30*time.Second))
	leader.p.signal(syscall.SIGCONT)
	r.recovers()
	r.settle()
}

// partitionLeader cuts the host of the leading broker off the network, and reconnects it later.
func partitionLeader(r *run) {
	n := newNetwork(r.T, servers)
	r.d = newCluster(r.T, r.dir, [servers]string{n.address(0), n.address(1), n.address(2)})
	for i, b := range r.d.cluster.brokers {
		b.prefix = n.in(i)
	}
	r.d.prefix, r.d.cluster.second.prefix = n.atSwitch(), n.atSwitch()
	r.d.cluster.dial = []nats.Option{nats.SetCustomDialer(n)}
	r.d.serveAll()
	r.enroll(size(150, 5000), r.d.address())
	r.w.prefix = n.atSwitch()
	r.w.start()
	r.somewhere(0.2, 0.4)
	host := slices.Index(r.d.cluster.brokers, r.d.leader())
	n.link(host, "down")
	hold(lasting(2*time.Second, 30*time.Second))
	n.link(host, "up")
	r.recovers()
	r.settle()
}

// restartCluster restarts every broker and provisioner, one after the other, while nodes enroll. A broker dismisses
// its clients over ten seconds, so the wave lasts longer than three of them.
func restartCluster(r *run) {
	r.clustered(size(300, 5000))
	r.w.job.Spread = lasting(30*time.Second, 90*time.Second)
	r.w.start()
	r.w.part(0.1)
	for i, b := range r.d.cluster.brokers {
		b.p.stop()
		b.start()
		r.d.waitWhole() // otherwise the next one would cost the majority
		r.w.part(0.1 + 0.15*float64(i+1))
	}
	r.d.p.stop()
	r.d.serve()
	second := r.d.cluster.second
	second.p.stop()
	second.start()
	second.p.waitFor("provisioner is serving")
	r.recovers()
	r.settle()
}

// stormCluster kills the leader in the middle of very many nodes.
func stormCluster(r *run) {
	r.clustered(size(300, 20_000))
	r.stormLeader()
}

// stormStock is stormCluster with plain nats-servers, which send a PING to connections that are not admitted after
// two seconds.
func stormStock(r *run) {
	r.cluster()
	r.d.cluster.stock()
	r.d.serveAll()
	r.enroll(size(300, 20_000), r.d.address())
	r.stormLeader()
}

func (r *run) stormLeader() {
	r.Helper()
	r.w.job.Spread = 0
	r.w.start()
	r.somewhere(0.25, 0.35)
	leader := r.d.leader()
	leader.p.kill()
	r.recovers()
	r.w.part(0.9)
	leader.start()
	r.settle()
}
