package provisioner_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"muster/provisioner/trust"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/operate"
)

// eachDeath calls scene for a death before and after every call to the store, until one scene has survived. Its other
// processes live until life is done.
func eachDeath(t *testing.T, least int, scene func(life context.Context, step int, after bool) (calls int)) {
	t.Helper()
	for step := 0; ; step++ {
		calls := 0
		for _, after := range []bool{false, true} {
			life, over := context.WithCancel(t.Context())
			calls = scene(life, step, after)
			over()
		}
		if calls <= step {
			if step < least {
				t.Errorf("%d steps, want %d or more: the test dies at none of them", step, least)
			}
			return
		}
	}
}

// listed waits until exactly this machine is pending under its name.
func listed(t *testing.T, f *testbed.Fleet, n *simnode.Node) {
	t.Helper()
	f.Refused(n)
	f.Eventually("it is listed", func() bool {
		list, err := f.Daemon().Orders().Keys.Waiting(f.Context(), wire.Identity(n.Identity))
		return err == nil && len(list) == 1 && list[0].KeyHash == keyHash(t, n)
	})
}

// asks has a process decide, and again if the store did not answer in time.
func asks(f *testbed.Fleet, p *provisioner.Provisioner, n *simnode.Node) (e *wire.Enrolled, code wire.Code) {
	f.Eventually("an answer to "+n.Identity, func() bool {
		var err error
		e, err = p.Enroll(f.Context(), n.Request(), provisioner.Source{Address: "192.0.2.1"})
		code = provisioner.CodeOf(err)
		return !slices.Contains([]wire.Code{wire.CodeRevocationsUnknown, wire.CodeStoreUnavailable,
			wire.CodeBusy}, code)
	})
	return e, code
}

// insist gives an order, and again if the store did not answer in time.
func insist(f *testbed.Fleet, p *provisioner.Provisioner,
	order func(context.Context, *provisioner.Provisioner) error) (err error) {
	f.Eventually("an answer to an order", func() bool {
		err = order(f.Context(), p)
		return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, trust.ErrRevocationsUnknown)
	})
	return err
}

// TestADeathAtEveryStepOfAnApproval ends the operator's process at every call of an approval, and the node's while
// using it. Both try again: the machine is in, and one approval is spent.
func TestADeathAtEveryStepOfAnApproval(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: testbed.Quotas(0, 0)})
	approves := func(n *simnode.Node) func(context.Context, *provisioner.Provisioner) error {
		return func(ctx context.Context, p *provisioner.Provisioner) error {
			_, err := testbed.Orders(p).Keys.Approve(ctx, operate.Named(wire.Identity(n.Identity), ""), 0, operator)
			return err
		}
	}
	in := func(life context.Context, what string, n *simnode.Node) {
		t.Helper()
		next, id := f.ProvisionerFor(life, nil), wire.Identity(n.Identity)
		first, code := asks(f, next, n)
		again, _ := asks(f, next, n)
		if first == nil || again == nil || first.Serial != again.Serial || f.Revisions(n.Identity) != 1 {
			t.Fatalf("%s: refused as %q, or not the same certificate again", what, code)
		}
		if _, code := asks(f, next, f.Node(n.Identity)); code != wire.CodeIdentityTaken {
			t.Errorf("%s: another key with that name: %q", what, code)
		}
		// Two approvals of one key are spent at once: it is pending again.
		if err := testbed.Orders(next).Nodes.Retire(f.Context(), id, operator); err != nil {
			t.Fatal(err)
		}
		if _, code := asks(f, next, n); code != wire.CodeApprovalPending {
			t.Errorf("%s: the same key when the name is free again: %q, want %s", what, code, wire.CodeApprovalPending)
		}
	}
	name := func(what string, step int, after bool) string {
		return fmt.Sprintf("%s%d-%v.example.net", what, step, after)
	}
	eachDeath(t, 2, func(life context.Context, step int, after bool) int {
		n := f.Node(name("said", step, after))
		listed(t, f, n)
		calls, err := dyingIn(t, f, step, after, approves(n))
		if (err != nil) != (step < calls) {
			t.Errorf("death at call %d of %d: %v", step, calls, err)
		}
		if err := insist(f, f.ProvisionerFor(life, nil), approves(n)); err != nil {
			t.Fatalf("approved again after a death at call %d: %v", step, err)
		}
		in(life, n.Identity, n)
		return calls
	})
	eachDeath(t, 3, func(life context.Context, step int, after bool) int {
		n := f.Node(name("used", step, after))
		listed(t, f, n)
		if err := insist(f, f.ProvisionerFor(life, nil), approves(n)); err != nil {
			t.Fatal(err)
		}
		calls, _ := dying(t, f, step, after, n)
		in(life, n.Identity, n)
		return calls
	})
	f.Check()
}
