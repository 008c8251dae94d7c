package natsapi_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// heldLog is a store that takes no claims until it is told to.
type heldLog struct {
	provisioner.Store
	release <-chan struct{}
}

func (s *heldLog) AppendClaims(ctx context.Context, tid jwt.TokenID, e *provisioner.ClaimEntry, after provisioner.Revision) (provisioner.Revision, error) {
	<-s.release
	return s.Store.AppendClaims(ctx, tid, e, after)
}

// TestASlowTokenLogLeavesRoomForOthers has more nodes of one limited token than a
// service works on at once, and a log of that token that takes nothing. A node with
// another token is served meanwhile, those for whom there is no room are sent
// away, and when the log goes on all of them get in.
func TestASlowTokenLogLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	const nodes = 300 // of 256 that are worked on by default
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 0), Quiet: true})
	release := make(chan struct{})
	conn := service(t, f, "test.", func(s provisioner.Store) provisioner.Store { return &heldLog{s, release} }, nil)
	token := f.Token(testbed.Limited(nodes))
	var busy atomic.Int64
	var all sync.WaitGroup
	for i := range nodes {
		n := f.Node(fmt.Sprintf("web%d.example.net", i))
		n.Token = token
		all.Go(func() {
			r, _, err := persist(f.Context(), conn, "test."+wire.SubjectEnroll, n.Request(), &busy)
			if err != nil || r.Enrolled == nil {
				t.Errorf("%s: %+v, %v", n.Identity, r, err)
			}
		})
	}
	f.Eventually("there is no room for all of them", func() bool { return busy.Load() >= nodes-provisioner.MaxClaiming })
	if r := ask(t, f, conn, "test."+wire.SubjectEnroll, f.Node("db1.example.net").Request()); r.Enrolled == nil {
		t.Errorf("a node with another token: %+v", r.Refusal)
	}
	close(release)
	all.Wait()
	f.Check()
}
