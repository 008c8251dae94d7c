package provisioner_test

import (
	"errors"
	"strings"
	"testing"

	"muster/internal/testbed"
	"muster/provisioner"
)

// TestARetirementComesBehindTheRevocation revokes a node while the store does not take
// the entry, and retires it when it does.
func TestARetirementComesBehindTheRevocation(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	provisioned(f, web1)
	p := f.Daemon().Operator()
	f.Faults.Blind(true) // so that nobody appends the entry again before
	f.Faults.Appends(testbed.Lost)
	if err := p.RevokeNode(f.Context(), web1, operator); !errors.Is(err, provisioner.ErrPending) {
		t.Fatalf("revoke = %v, want %v", err, provisioner.ErrPending)
	}
	if err := p.RetireNode(f.Context(), web1, operator); err != nil && !errors.Is(err, provisioner.ErrPending) {
		t.Fatal(err)
	}
	f.Faults.Blind(false)
	f.Eventually("both are in the log", func() bool {
		return strings.Contains(f.Log(), "revocation appended again") && p.Fresh() == nil
	})
	f.Eventually("the name is free", func() bool { return f.Ask(f.Node(web1)).Enrolled != nil })
	f.Check()
}
