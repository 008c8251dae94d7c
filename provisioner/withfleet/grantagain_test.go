package provisioner_test

import (
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestAGrantThatIsSentAgainOpensNothing sends an order for a grant once more after it
// was used, and after another one was given and used.
func TestAGrantThatIsSentAgainOpensNothing(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	provisioned(f, web1)
	grant := func(id string) {
		t.Helper()
		f.Clock.Advance(2 * time.Second)
		_, _ = f.Daemon().Operator().GrantNode(f.Context(), web1, provisioner.GrantOrder{ID: id}, operator)
	}
	take := func() *simnode.Node {
		t.Helper()
		n := f.Node(web1)
		f.Apply(n, f.Enroll(n))
		return n
	}
	first, second := wire.NewID(), wire.NewID()
	grant(first)
	take()
	grant(second)
	take()
	grant(first) // a form that is sent again, or a client that never heard
	if r := f.Ask(f.Node(web1)); r.Refusal == nil {
		t.Errorf("a grant that was used let a third machine in: %+v", f.Record(web1).Decision)
	}
	f.Check()
}
