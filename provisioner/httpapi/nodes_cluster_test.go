package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

// TestEveryProvisionerListsTheSame kills one server of a cluster: two provisioners
// go on seeing every node that is enrolled meanwhile, and neither loses one.
func TestEveryProvisionerListsTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 3})
	f.AddProvisioner("second.fleet.test")
	both := []*httpapi.Client{client(f), observed(httpapi.NewClient(filepath.Join(f.Dir, "data-second.fleet.test", httpapi.SocketName)))}
	listed := func(want int) {
		t.Helper()
		for i, c := range both {
			f.Eventually(fmt.Sprintf("provisioner %d lists %d nodes", i, want), func() bool {
				var p fleet.Page
				err := c.Do(f.Context(), http.MethodGet, "/v1/nodes", nil, &p)
				return err == nil && len(p.Nodes) == want && p.Total == want
			})
		}
	}
	listed(0)
	nodes := f.Nodes(6)
	for _, n := range nodes[:3] {
		f.Enroll(n)
	}
	listed(3)
	// What follows the records may have been on it.
	leader := f.Leader("MUSTER_NODES")
	leader.Kill()
	for _, n := range nodes[3:] {
		f.Eventually("the cluster has a leader again", func() bool {
			ctx, cancel := context.WithTimeout(f.Context(), 3*time.Second) // what was sent to the dead server is lost
			defer cancel()
			nc, err := simnode.Dial(f.URL(), n.Token) // as an agent: a server without a leader may refuse, and end the connection for good
			if err != nil {
				return false
			}
			defer nc.Close()
			r, err := simnode.Enroll(ctx, nc, n.Request())
			return err == nil && r.Enrolled != nil
		})
	}
	listed(6)
	leader.Start()
	f.Check()
}
