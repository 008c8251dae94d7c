package provisioner_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestARetirementThatComesLateUndoesNothing has one provisioner retire a name and lose
// the store before it has the entry, and another one decide about the name
// meanwhile, by the same clock or by one that is behind.
func TestARetirementThatComesLateUndoesNothing(t *testing.T) {
	t.Parallel()
	for what, decide := range map[string]func(t *testing.T, f *testbed.Fleet, other *provisioner.Provisioner){
		"revoked since": func(t *testing.T, f *testbed.Fleet, other *provisioner.Provisioner) {
			if err := other.RevokeNode(f.Context(), web1, provisioner.Cause{By: "ben", Why: "stolen"}); err != nil {
				t.Fatal(err)
			}
		},
		"given to another machine since": func(t *testing.T, f *testbed.Fleet, other *provisioner.Provisioner) {
			if err := other.RetireNode(f.Context(), web1, provisioner.Cause{By: "ben", Why: "reinstalled"}); err != nil {
				t.Fatal(err)
			}
			n := f.Node(web1)
			e, err := other.Enroll(f.Context(), n.Request(), provisioner.Source{})
			if err != nil {
				t.Fatal(err)
			}
			confirmation, err := n.Confirm(e)
			if err != nil {
				t.Fatal(err)
			}
			if err := other.Applied(f.Context(), confirmation, provisioner.Source{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for later, by := range map[string]time.Duration{"": 10 * time.Second, ", by a clock that is behind": -3 * time.Minute} {
			t.Run(what+later, func(t *testing.T) {
				t.Parallel()
				f := testbed.New(t, testbed.Options{})
				provisioned(f, web1)
				other := f.Provisioner(nil)
				f.Faults.Appends(testbed.Lost)
				err := f.Daemon().Operator().RetireNode(f.Context(), web1, provisioner.Cause{By: "anna", Why: "gone"})
				if !errors.Is(err, provisioner.ErrPending) {
					t.Fatalf("retire = %v, want %v", err, provisioner.ErrPending)
				}
				f.Faults.Blind(true)
				f.Clock.Advance(by)
				decide(t, f, other)
				before := f.Record(web1)
				f.Faults.Blind(false)
				f.Eventually("the one before is there again", func() bool {
					return strings.Contains(f.Log(), "revocation appended again") || strings.Contains(f.Log(), "retirement left out")
				})
				if strings.Contains(f.Log(), "revocation appended again") {
					t.Error("the retirement is in the log behind what was decided since")
					f.Eventually("it is followed", func() bool { return f.Record(web1).State == provisioner.StateRetired })
				}
				f.Eventually("who ordered it can hear that it was left out", func() bool {
					return toldOf(f, provisioner.EventRetireLeftOut, provisioner.Cause{By: "anna", Why: "gone"}) == 1
				})
				if r := f.Record(web1); r.State != before.State {
					t.Errorf("record is %s, %s before", r.State, before.State)
				}
				if before.State == provisioner.StateRevoked {
					if code := f.Refused(f.Node(web1)); code != wire.CodeIdentityRevoked {
						t.Errorf("another machine: %s", code)
					}
				}
			})
		}
	}
}

// TestARetirementByAClockThatIsBehindIsNotLost retires a name that was revoked by a clock
// three minutes ahead, while the store does not take the entry: it follows once it does.
func TestARetirementByAClockThatIsBehindIsNotLost(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	provisioned(f, web1)
	f.Clock.Advance(3 * time.Minute)
	f.Revoke(web1)
	f.Clock.Advance(-3 * time.Minute)
	f.Faults.Appends(testbed.Lost)
	err := f.Daemon().Operator().RetireNode(f.Context(), web1, provisioner.Cause{By: "anna", Why: "gone"})
	if !errors.Is(err, provisioner.ErrPending) {
		t.Fatalf("retire = %v, want %v", err, provisioner.ErrPending)
	}
	f.Eventually("it is decided", func() bool {
		return strings.Contains(f.Log(), "retirement left out") || f.Record(web1).State == provisioner.StateRetired
	})
	if strings.Contains(f.Log(), "retirement left out") {
		t.Error("the retirement is left out, and nobody has decided about the name since")
	}
	f.Check()
}

// TestARetirementByAClockThatIsBehindIsNotLostByAStart retires a name that a machine has got by a
// clock three minutes ahead, and ends before the store has the entry: the start appends it.
func TestARetirementByAClockThatIsBehindIsNotLostByAStart(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	f.Clock.Advance(3 * time.Minute)
	provisioned(f, web1)
	f.Clock.Advance(-3 * time.Minute)
	f.Faults.Appends(testbed.Lost)
	err := f.Daemon().Operator().RetireNode(f.Context(), web1, provisioner.Cause{By: "anna", Why: "gone"})
	if !errors.Is(err, provisioner.ErrPending) {
		t.Fatalf("retire = %v, want %v", err, provisioner.ErrPending)
	}
	f.Stop()
	f.Start()
	f.Eventually("it is decided", func() bool {
		return strings.Contains(f.Log(), "retirement left out") || f.Record(web1).State == provisioner.StateRetired
	})
	if strings.Contains(f.Log(), "retirement left out") {
		t.Error("the retirement is left out, and nobody has got the name since")
	}
	f.Check()
}
