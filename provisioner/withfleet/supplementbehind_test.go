package provisioner_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// stalledLog is a log of revocations in which something happens while the first entry is on its
// way there, and while all later ones are.
type stalledLog struct {
	provisioner.Store
	appends      atomic.Int64
	first, later func()
	once         sync.Once
}

func (s *stalledLog) AppendRevocation(ctx context.Context, e *provisioner.Revocation) (provisioner.Sequence, error) {
	s.way()
	return s.Store.AppendRevocation(ctx, e)
}

func (s *stalledLog) SupplementRevocation(ctx context.Context, e *provisioner.Revocation, after provisioner.Sequence) (provisioner.Sequence, error) {
	s.way()
	return s.Store.SupplementRevocation(ctx, e, after)
}

func (s *stalledLog) way() {
	if s.appends.Add(1) == 1 {
		s.first()
	} else {
		s.once.Do(s.later)
	}
}

// TestWhatAnEntryLacksIsNotSaidOfWhoComesNext revokes or retires a machine that is given one
// more certificate meanwhile, at a provisioner that stands still right before it adds that to
// the log. Another one completes the order, and the next machine gets the name.
func TestWhatAnEntryLacksIsNotSaidOfWhoComesNext(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]func(*provisioner.Provisioner, context.Context) error{
		"revoke": func(p *provisioner.Provisioner, ctx context.Context) error { return p.RevokeNode(ctx, web1, operator) },
		"retire": func(p *provisioner.Provisioner, ctx context.Context) error { return p.RetireNode(ctx, web1, operator) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{})
			n, e := provisioned(f, web1)
			heir := f.Node(web1)
			var late, given *wire.Enrolled
			s := &stalledLog{}
			slow := f.Provisioner(func(real provisioner.Store) provisioner.Store { s.Store = real; return s })
			s.first = func() {
				_, late = f.Renew(n, e)
				f.Faults.Blind(true) // so that the other one has not completed it before
			}
			s.later = func() {
				f.Faults.Blind(false)
				f.Eventually("another provisioner has completed it", func() bool {
					state := f.Record(web1).State
					return state == provisioner.StateRevoked || state == provisioner.StateRetired
				})
				f.Retire(web1)
				f.Eventually("the next machine gets the name", func() bool { given = f.Ask(heir).Enrolled; return given != nil })
				f.Apply(heir, given)
			}
			if err := order(slow, f.Context()); err != nil {
				t.Fatal(err)
			}
			if given == nil {
				t.Fatal("nothing was added to the entry")
			}
			f.Eventually("the certificate that came meanwhile is on the CRL", func() bool { return f.OnCRL(late.Serial) })
			if r := f.Record(web1); r.State != provisioner.StateProvisioned || !f.Admits(web1, given.Serial) {
				t.Errorf("the machine that has the name since is %s, admitted %v", r.State, f.Admits(web1, given.Serial))
			}
			f.Check()
		})
	}
}
