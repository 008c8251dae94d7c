package provisioner_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// An away store is one that answers nobody who asks what operators said, while it is set.
type away struct {
	provisioner.Store
	away *atomic.Bool
}

func (s away) check() error {
	if s.away.Load() {
		return testbed.ErrInjected
	}
	return nil
}

func (s away) NextPause(ctx context.Context, after provisioner.Sequence) (*provisioner.Pause, provisioner.Sequence, error) {
	if err := s.check(); err != nil {
		return nil, 0, err
	}
	return s.Store.NextPause(ctx, after)
}

func (s away) NextAnswer(ctx context.Context, after provisioner.Sequence) (*provisioner.Answer, provisioner.Sequence, error) {
	if err := s.check(); err != nil {
		return nil, 0, err
	}
	return s.Store.NextAnswer(ctx, after)
}

func (s away) NextAllowance(ctx context.Context, after provisioner.Sequence) (*provisioner.Allowance, provisioner.Sequence, error) {
	if err := s.check(); err != nil {
		return nil, 0, err
	}
	return s.Store.NextAllowance(ctx, after)
}

// TestWhoStoodStillKnowsWhatOperatorsSaid has operators pause, reject a key and take a name
// off the allow-list while a provisioner stands still, as one does whose machine is suspended.
// It goes on with requests that wait for it, before it looks at anything by
// itself, and nobody is let in on what was so before.
func TestWhoStoodStillKnowsWhatOperatorsSaid(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	p := f.Daemon().Operator()
	var gone atomic.Bool
	life, stand := context.WithCancel(f.Context())
	other := f.ProvisionerFor(life, func(s provisioner.Store) provisioner.Store { return away{s, &gone} })
	asking := func(p *provisioner.Provisioner, r *wire.EnrollRequest) wire.Code {
		t.Helper()
		_, err := p.Enroll(f.Context(), r, provisioner.Source{Address: "192.0.2.1"})
		return provisioner.CodeOf(err)
	}
	ask := func(r *wire.EnrollRequest) wire.Code { t.Helper(); return asking(other, r) }
	n := 0
	newcomer := func(kind string) *wire.EnrollRequest {
		n++
		return f.Node(fmt.Sprintf("%s%d.example.net", kind, n)).Request()
	}
	for _, pattern := range []wire.Pattern{"web*.example.net", "db*.example.net"} {
		if _, err := p.AllowNames(f.Context(), string(pattern), 0, 0, false, operator); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"web", "db"} {
		f.Eventually("a name is allowed there, too", func() bool { return ask(newcomer(kind)) == "" })
	}

	stand() // what it does by itself ends; it is asked all the same
	rejected := f.Node("key1.example.net")
	if err := p.DisallowNames(f.Context(), "web*.example.net", operator); err != nil {
		t.Fatal(err)
	}
	f.Eventually("a name that is not allowed any more waits", func() bool { return ask(newcomer("web")) == wire.CodeApprovalPending })
	if code := ask(newcomer("db")); code != "" {
		t.Errorf("a name that is still allowed: %s", code)
	}
	if code := ask(rejected.Request()); code != wire.CodeApprovalPending {
		t.Fatalf("a key that is to be rejected: %s", code)
	}
	if code := asking(p, rejected.Request()); code != wire.CodeApprovalPending { // who stands still lists nobody
		t.Fatalf("a key that is to be rejected: %s", code)
	}
	f.Eventually("it is rejected", func() bool {
		_, err := p.RejectNode(f.Context(), "key1.example.net", "", operator)
		return err == nil // else it is not listed yet
	})
	f.Eventually("a rejected key is refused", func() bool { return ask(rejected.Request()) == wire.CodeRejected })
	if _, err := p.Pause(f.Context(), "", false, operator); err != nil {
		t.Fatal(err)
	}
	f.Eventually("a pause is known", func() bool { return ask(newcomer("db")) == wire.CodePaused })
	if err := p.Resume(f.Context(), "", operator); err != nil {
		t.Fatal(err)
	}
	f.Eventually("its end is known", func() bool { return ask(newcomer("db")) == "" })

	gone.Store(true)
	f.Eventually("who cannot look lets nobody in", func() bool { return ask(newcomer("db")) == wire.CodeRevocationsUnknown })
	gone.Store(false)
	f.Eventually("who can does", func() bool { return ask(newcomer("db")) == "" })
	f.Check()
}
