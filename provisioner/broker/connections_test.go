package broker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/broker"
	"muster/provisioner/fleet"
)

// known has what a follower was told: the brokers of open connections.
type known struct {
	mu      sync.Mutex
	open    map[wire.Identity]string
	settled time.Time
}

func (k *known) Changed(b fleet.Broker, c fleet.Connection) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.Ended.IsZero() {
		k.open[c.Node] = b.Name
	} else {
		delete(k.open, c.Node)
	}
}

func (k *known) Listed(open fleet.Open, _ time.Time) {
	for b, all := range open {
		for _, c := range all {
			k.Changed(b, c)
		}
	}
}

func (k *known) Settled(at time.Time, _ bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.settled = at
}

func (k *known) at(id wire.Identity) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.open[id]
}

func (k *known) listed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.settled.IsZero()
}

func follow(t *testing.T, run func(context.Context, broker.Connections) error) *known {
	t.Helper()
	k := &known{open: make(map[wire.Identity]string)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, k) }()
	t.Cleanup(func() {
		cancel()
		if err := receive(t, "end of following", done); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "list of connections", k.listed)
	return k
}

func TestConnectionsAreFollowed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	before, later := wire.Identity("web1.example.net"), wire.Identity("web2.example.net")
	node := func(id wire.Identity) *raw {
		return s.dial(t, s.tlsConfig(s.ca.issue(t, wire.RoleNode, string(id)))).mustHello(nil)
	}
	first := node(before)
	k := follow(t, s.Follow)
	if got := k.at(before); got != "muster" {
		t.Errorf("a node that was connected before is at broker %q, want muster", got)
	}
	node(later)
	eventually(t, "connection of a node", func() bool { return k.at(later) == "muster" })
	if err := first.conn.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "end of the first connection", func() bool { return k.at(before) == "" })
	if k.at(later) == "" {
		t.Error("the other node's connection ended too")
	}
}
