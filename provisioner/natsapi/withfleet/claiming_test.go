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
			r, _, err := persist(f, conn, "test."+wire.SubjectEnroll, n, n.Request(), &busy)
			if err != nil || r.Enrolled == nil {
				t.Errorf("%s: %s, %v", n.Identity, f.Cause(n.Identity), err)
			}
		})
	}
	f.Eventually("there is no room for all of them", func() bool { return busy.Load() >= nodes-provisioner.MaxClaiming })
	db1, others := f.Node("db1.example.net"), new(atomic.Int64)
	if r, _, err := persist(f, conn, "test."+wire.SubjectEnroll, db1, db1.Request(), others); err != nil || r.Enrolled == nil {
		t.Errorf("a node with another token: %s, %v", f.Cause(db1.Identity), err)
	}
	if others.Load() > 0 {
		t.Errorf("a node with another token was sent away %d times", others.Load())
	}
	close(release)
	all.Wait()
	f.Check()
}
