package provisioner_test

import (
	"context"
	"sync/atomic"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// slowHistory is a store in which something happens before the second history is read, or
// while it is: that of who brings a record to what its entry says. Either may be nil.
type slowHistory struct {
	provisioner.Store
	reads        atomic.Int64
	before, what func()
}

func (s *slowHistory) Certificates(ctx context.Context, id wire.Identity) ([]*provisioner.Issued, error) {
	if ctx.Value(foreground{}) == nil { // it follows the log as well, and may be the first to read
		return s.Store.Certificates(ctx, id)
	}
	second := s.reads.Add(1) == 2
	if second && s.before != nil {
		s.before()
	}
	list, err := s.Store.Certificates(ctx, id)
	if second && s.what != nil {
		s.what()
	}
	return list, err
}

// TestARevocationThatIsOverIsNotSaidAgain has one provisioner revoke a node and, before
// the record says so, another one retire it and let another machine have the name.
func TestARevocationThatIsOverIsNotSaidAgain(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	provisioned(f, web1)
	s := &slowHistory{}
	p := f.Provisioner(func(records provisioner.Store) provisioner.Store { s.Store = records; return s })
	heir := f.Node(web1)
	var given *wire.Enrolled
	s.what = func() {
		f.Retire(web1)
		given = f.Enroll(heir)
		f.Apply(heir, given)
		_ = p.RetireNode(f.Context(), web1, operator, provisioner.Seen{Revision: 1}) // it reads what is new, and is refused
	}
	if err := p.RevokeNode(context.WithValue(f.Context(), foreground{}, true), web1, operator); err != nil {
		t.Fatal(err)
	}
	entries := 0
	err := f.Daemon().Store().Revocations(f.Context(), 0, func(e *provisioner.Revocation, at provisioner.Sequence) error {
		entries++
		t.Logf("%d: %s of %s, %d keys", at, e.Kind, e.Node, len(e.Keys))
		return nil
	})
	if err != nil || entries != 2 {
		t.Errorf("%d entries, %v, want the revocation and the retirement", entries, err)
	}
	if r := f.Record(web1); r.State != provisioner.StateProvisioned || !f.Admits(web1, given.Serial) {
		t.Errorf("the machine that has the name since is %s, admitted %v", r.State, f.Admits(web1, given.Serial))
	}
	f.Check()
}

// TestARetirementThatOthersCompleteIsNotOfWhoComesNext has a provisioner retire a name, and
// another one bring that to the record and enroll the next machine while the first reads
// the history.
func TestARetirementThatOthersCompleteIsNotOfWhoComesNext(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	provisioned(f, web1)
	next := f.Node(web1)
	s := &slowHistory{before: func() {
		f.Eventually("another provisioner has done it", func() bool { return f.Record(web1).State == provisioner.StateRetired })
		f.Apply(next, f.Enroll(next))
	}}
	slow := f.Provisioner(func(real provisioner.Store) provisioner.Store { s.Store = real; return s })
	if err := slow.RetireNode(context.WithValue(f.Context(), foreground{}, true), web1, provisioner.Cause{By: "anna", Why: "reinstalled"}); err != nil {
		t.Fatal(err)
	}
	if s.reads.Load() < 2 {
		t.Fatal("the history was not read as the record was to be written")
	}
	r := f.Record(web1)
	if r.State != provisioner.StateProvisioned {
		t.Fatalf("the next machine is %s", r.State)
	}
	if err := f.Daemon().Admits(f.Context(), web1, r.Current.Serial); err != nil {
		t.Errorf("the next machine is not admitted: %v", err)
	}
	f.Check()
}
