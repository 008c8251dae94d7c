package provisioner_test

import (
	"context"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// lateAnswers is a store whose acknowledgement of a verdict comes after what.
type lateAnswers struct {
	provisioner.Store
	what func()
}

func (s *lateAnswers) PutAnswer(ctx context.Context, a *provisioner.Answer, after provisioner.Revision) error {
	err := s.Store.PutAnswer(ctx, a, after)
	if s.what != nil {
		s.what()
	}
	return err
}

func (s *lateAnswers) PutAllowance(ctx context.Context, a *provisioner.Allowance, after provisioner.Revision) error {
	err := s.Store.PutAllowance(ctx, a, after)
	if s.what != nil {
		s.what()
	}
	return err
}

// looks returns what has somebody else look, who may have to wait until the write
// in hand is over, and what is closed once they have.
func looks(t *testing.T) (look func(what func()), looked <-chan struct{}) {
	t.Helper()
	done := make(chan struct{})
	return func(what func()) {
		go func() { defer close(done); what() }()
		select {
		case <-done:
		case <-time.After(time.Second):
		}
	}, done
}

// TestALateAcknowledgementTakesNoRejectionBack has one provisioner approve a key; before it
// hears that it has, another one's rejection of it is on record and read.
func TestALateAcknowledgementTakesNoRejectionBack(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	s := &lateAnswers{}
	p := f.Provisioner(func(records provisioner.Store) provisioner.Store { s.Store = records; return s })
	n := f.Node(web1)
	f.Refused(n)
	waiting(t, f, n)
	other := f.Daemon().Operator()
	look, looked := looks(t)
	s.what = func() {
		s.what = nil
		if _, err := other.RejectNode(f.Context(), web1, "", operator); err != nil {
			t.Error(err)
		}
		look(func() { _, _ = p.RejectNode(f.Context(), "web2.example.net", "", operator) }) // looks at the verdicts, as p does every second
	}
	if _, err := p.ApproveNode(f.Context(), web1, "", 0, operator); err != nil {
		t.Fatal(err)
	}
	<-looked
	if len(other.Rejected()) != 1 || len(p.Rejected()) != 1 {
		t.Errorf("rejected there %d, here %d, want 1 and 1: the rejection is the last word", len(other.Rejected()), len(p.Rejected()))
	}
}

// TestALateAcknowledgementAllowsNothing is the same for the allow-list.
func TestALateAcknowledgementAllowsNothing(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	s := &lateAnswers{}
	p := f.Provisioner(func(records provisioner.Store) provisioner.Store { s.Store = records; return s })
	other := f.Daemon().Operator()
	look, looked := looks(t)
	s.what = func() {
		s.what = nil
		if err := other.DisallowNames(f.Context(), "web*.example.net", operator); err != nil {
			t.Error(err)
		}
		look(func() { _, _ = p.Allowances(f.Context()) }) // looks, as p does every second
	}
	if _, err := p.AllowNames(f.Context(), "web*.example.net", 0, 0, false, operator); err != nil {
		t.Fatal(err)
	}
	<-looked
	list, err := p.Allowances(f.Context())
	if err != nil || len(list) != 0 {
		t.Errorf("allow-list here = %v, %v, want nothing: what was added is removed", list, err)
	}
	if e, err := p.Enroll(f.Context(), f.Node(web1).Request(), provisioner.Source{}); provisioner.CodeOf(err) != wire.CodeApprovalPending {
		t.Errorf("by an entry that was removed: %+v, %v, want %s", e, err, wire.CodeApprovalPending)
	}
}
