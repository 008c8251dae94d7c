package provisioner_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/operate"
)

// beforehand is a store with a call before its next verdict or pause: another operator at another provisioner is
// quicker.
type beforehand struct {
	provisioner.Store
	what func()
	read bool // call before the read
}

func (s *beforehand) happens() {
	if what := s.what; what != nil {
		s.what = nil
		what()
	}
}

func (s *beforehand) Logs() *orders.Logs {
	return testbed.WrapLogs(s.Store.Logs(), func(_ context.Context, _ string, put testbed.Put) (trust.Revision, error) {
		s.happens()
		return put()
	})
}

// TestAVerdictAboutAShownKeyLiftsNoOtherRejection: a rejection comes between what the operator saw and the verdict,
// which fails.
func TestAVerdictAboutAShownKeyLiftsNoOtherRejection(t *testing.T) {
	t.Parallel()
	verdicts := map[string]func(context.Context, *provisioner.Provisioner, operate.KeyChoice) error{
		"approve": func(ctx context.Context, p *provisioner.Provisioner, k operate.KeyChoice) error {
			_, err := testbed.Orders(p).Keys.Approve(ctx, k, 0, operator)
			return err
		},
		"forget": func(ctx context.Context, p *provisioner.Provisioner, k operate.KeyChoice) error {
			_, err := testbed.Orders(p).Keys.Forget(ctx, k, operator)
			return err
		},
	}
	for name, read := range map[string]bool{"before it is looked what was said": true,
		"before the verdict is written": false} {
		for verdict, say := range verdicts {
			t.Run(verdict+" "+name, func(t *testing.T) {
				t.Parallel()
				f := testbed.New(t, testbed.Options{DefaultPolicy: true})
				s := &beforehand{read: read}
				p := f.Provisioner(func(store provisioner.Store) provisioner.Store { s.Store = store; return s })
				other := f.Daemon().Operator()
				n := f.Node(web1)
				ask := func() {
					t.Helper()
					if code := f.Refused(n); code != wire.CodeApprovalPending {
						t.Fatalf("it does not wait: %s", code)
					}
					thosePending(t, f, n)
				}
				reject := func() *orders.Answer {
					t.Helper()
					a, err := testbed.Orders(other).Keys.Reject(f.Context(), operate.Named(web1, ""), operator)
					if err != nil {
						t.Error(err)
					}
					return a
				}
				kept := func(k operate.KeyChoice) {
					t.Helper()
					if err := say(f.Context(), p, k); !errors.Is(err, trust.ErrState) ||
						!strings.Contains(err.Error(), "was rejected after the list was shown") {
						t.Errorf("%s = %v, want %v, and that it was rejected", verdict, err, trust.ErrState)
					}
					if code := f.Refused(n); code != wire.CodeRejected {
						t.Errorf("the rejected key is refused as %s, want %s", code, wire.CodeRejected)
					}
				}
				k := operate.KeyChoice{Identity: web1, Key: keyHash(t, n), Shown: true}
				ask()
				var first *orders.Answer
				s.what = func() { first = reject() }
				kept(k)
				k.Rejected, k.Rejection = true, first.ID
				s.what = func() {
					if _, err := testbed.Orders(other).Keys.Forget(f.Context(), operate.Named(web1, ""),
						operator); err != nil {
						t.Error(err)
					}
					ask()
					first = reject()
				}
				kept(k)
				k.Rejection = first.ID
				if err := say(f.Context(), p, k); err != nil {
					t.Fatal(err)
				}
				f.Eventually("it is rejected nowhere",
					func() bool { return len(testbed.Orders(other).Keys.Rejected()) == 0 })
				f.Check()
			})
		}
	}
}

// TestAResumeEndsNoPauseOfThatMoment: another pause comes between, and the resume fails.
func TestAResumeEndsNoPauseOfThatMoment(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	s := &beforehand{}
	p := f.Provisioner(func(store provisioner.Store) provisioner.Store { s.Store = store; return s })
	other := f.Daemon().Operator()
	if _, err := testbed.Orders(other).Pauses.Begin(f.Context(), "", false, operator); err != nil {
		t.Fatal(err)
	}
	s.what = func() {
		if _, err := testbed.Orders(other).Pauses.Begin(f.Context(),
			"", true, trust.Cause{By: "ben", Why: "we are broken into"}); err != nil {
			t.Error(err)
		}
	}
	if err := testbed.Orders(p).Pauses.End(f.Context(), "", operator); !errors.Is(err, trust.ErrState) {
		t.Errorf("resume = %v, want %v", err, trust.ErrState)
	}
	for name, p := range map[string]*provisioner.Provisioner{"one": p, "the other": other} {
		if list := testbed.Orders(p).Pauses.List(); len(list) != 1 || !list[0].Renewals {
			t.Errorf("pauses of %s: %+v, want the newer one", name, list)
		}
	}
	s.what = func() {
		if err := testbed.Orders(other).Pauses.End(f.Context(), "", operator); err != nil {
			t.Error(err)
		}
	}
	if err := testbed.Orders(p).Pauses.End(f.Context(), "", operator); !errors.Is(err, trust.ErrState) {
		t.Errorf("resume = %v, want %v: another operator has", err, trust.ErrState)
	}
	f.Enroll(f.Node(web1))
	f.Check()
}
