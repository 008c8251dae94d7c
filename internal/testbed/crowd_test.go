package testbed_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	_ "muster/internal/eventcheck" // checks what fleets emit
	"muster/internal/testbed"
)

// TestANodeTakesFewPlacesOfACluster has a node of the fleet connect to the servers of a cluster over and over: its
// oldest connections end, and no other node's.
func TestANodeTakesFewPlacesOfACluster(t *testing.T) {
	t.Parallel()
	const many, may = 60, 16
	f := testbed.New(t, testbed.Options{Servers: 2})
	servers := f.Servers()
	honest, crowd := f.Node("web1.example.net"), f.Node("web2.example.net")
	given := f.Enroll(honest)
	f.Apply(honest, given)
	other := dialFleet(t, servers[0], honest, given)
	given = f.Enroll(crowd)
	f.Apply(crowd, given)
	var all []*nats.Conn
	for i := range many {
		all = append(all, dialFleet(t, servers[i%len(servers)], crowd, given))
	}
	f.Eventually("the oldest connections are dropped", func() bool {
		there := 0
		for _, nc := range all {
			if !nc.IsClosed() {
				there++
			}
		}
		return there <= 2*may // who was looked at may come as often until he is looked at again
	})
	if all[many-1].IsClosed() {
		t.Error("the newest connection is dropped")
	}
	if err := other.Flush(); err != nil {
		t.Errorf("the connection of another node: %v", err)
	}
	f.Check()
}
