package provisioner_test

import (
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestAConfirmationNeedsNoRead confirms what was just enrolled while the store
// cannot be read. What is not a write is decided on what is read, and waits.
func TestAConfirmationNeedsNoRead(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, liar := f.Node("web1.example.net"), f.Node("web2.example.net")
	e := f.Enroll(n)
	lie, err := liar.Confirm(f.Enroll(liar))
	if err != nil {
		t.Fatal(err)
	}
	lie.Digest = e.Digest
	f.Faults.Unreadable(true)
	if r := f.Apply(n, e); r.Applied == nil || r.Applied.Serial != e.Serial {
		t.Errorf("confirmation: %+v", r.Refusal)
	}
	for what, r := range map[string]*wire.Reply{"again": f.Apply(n, e), "of something else": f.Send(liar, lie)} {
		if r.Refusal == nil || r.Refusal.Code != wire.CodeStoreUnavailable.ToldAs() {
			t.Errorf("confirmation %s, unread: %+v, want %s", what, r.Refusal, wire.CodeStoreUnavailable)
		}
	}
	f.Faults.Unreadable(false)
	if r := f.Apply(n, e); r.Applied == nil {
		t.Errorf("confirmation again: %+v", r.Refusal)
	}
	if r := f.Send(liar, lie); r.Refusal == nil || r.Refusal.Code != wire.CodeNotIssued.ToldAs() {
		t.Errorf("confirmation of something else: %+v, want %s", r, wire.CodeNotIssued)
	}
	if got := f.Revisions(n.Identity); got != 2 {
		t.Errorf("%d revisions, want 2", got)
	}
	f.Check()
}

// TestWhatOthersWroteDecides has another process write the record between an
// enrollment and its confirmation: what this process remembers of it is worth
// nothing then.
func TestWhatOthersWroteDecides(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edit func(*provisioner.Record)
		want wire.Code // "" if it is taken
	}{
		"revoked": {func(r *provisioner.Record) { r.State = provisioner.StateRevoked }, wire.CodeIdentityRevoked},
		"retired": {func(r *provisioner.Record) { r.State = provisioner.StateRetired }, wire.CodeNotIssued},
		"another configuration offered": {func(r *provisioner.Record) {
			next := *r.Next
			next.Digest = "0"
			r.Next = &next
		}, wire.CodeNotIssued},
		"confirmed": {func(r *provisioner.Record) {
			r.State, r.Current, r.Next = provisioner.StateProvisioned, r.Next, nil
		}, ""},
		"something else": {func(r *provisioner.Record) { r.Agent = "another" }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{})
			n := f.Node("web1.example.net")
			e := f.Enroll(n)
			f.PutRecord(n.Identity, tt.edit)
			written := f.Record(n.Identity)
			r := f.Apply(n, e)
			if tt.want != "" {
				if r.Refusal == nil || r.Refusal.Code != tt.want.ToldAs() {
					t.Errorf("confirmation: %+v, want %s", r, tt.want)
				}
				if now := f.Record(n.Identity); now.Attempt != written.Attempt || now.State != written.State {
					t.Errorf("the other's record was written over: %+v", now)
				}
				return
			}
			if r.Applied == nil {
				t.Errorf("confirmation: %+v", r.Refusal)
			}
			now := f.Record(n.Identity)
			if now.State != provisioner.StateProvisioned || now.Current.Serial != e.Serial || now.Agent != written.Agent {
				t.Errorf("record = %+v", now)
			}
		})
	}
}

// TestAnOldMemoryIsNotAsked confirms a minute after the enrollment.
func TestAnOldMemoryIsNotAsked(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	e := f.Enroll(n)
	f.Clock.Advance(time.Minute)
	f.Faults.Unreadable(true)
	if r := f.Apply(n, e); r.Refusal == nil || r.Refusal.Code != wire.CodeStoreUnavailable.ToldAs() {
		t.Errorf("confirmation, unread: %+v, want %s", r.Refusal, wire.CodeStoreUnavailable)
	}
	f.Faults.Unreadable(false)
	if r := f.Apply(n, e); r.Applied == nil {
		t.Errorf("confirmation: %+v", r.Refusal)
	}
	f.Check()
}
