package provisioner_test

import (
	"strings"
	"testing"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestANodeThatCannotUseItsOffer has a node refuse what it was given. That is an event of a
// refusal and no write, whoever else says so proves nothing, and the node is as it was.
func TestANodeThatCannotUseItsOffer(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, other := f.Node("web1.example.net"), f.Node("web2.example.net")
	f.Apply(other, f.Enroll(other))
	complain := func(by *simnode.Node, e *wire.Enrolled, digest string) *wire.Reply {
		t.Helper()
		a, err := n.Confirm(e)
		if err != nil {
			t.Fatal(err)
		}
		a.Digest = digest
		if a.Signature, err = wire.Sign(by.Key, wire.AppliedDigest(a.Identity, a.Serial, a.Digest)); err != nil {
			t.Fatal(err)
		}
		return f.Send(n, a)
	}
	told := func(code wire.Code) (all []provisioner.Event) {
		for _, e := range f.Events() {
			if e.Code == code && e.Node == n.Identity {
				all = append(all, e)
			}
		}
		return all
	}
	e := f.Enroll(n)
	const why = "open server.conf: no space left on device"
	for name, tt := range map[string]struct {
		by     *simnode.Node
		digest string
		want   wire.Code
		typ    provisioner.EventType
	}{
		"a stranger":    {other, wire.Unusable(e.Digest, why), wire.CodeAppliedSignature, provisioner.EventAttempt},
		"another offer": {n, wire.Unusable("0"+e.Digest[1:], why), wire.CodeNotIssued, provisioner.EventAttempt},
		"the node":      {n, wire.Unusable(e.Digest, why), wire.CodeOfferUnusable, provisioner.EventRefused},
	} {
		if strings.HasPrefix(e.Digest, "0") && tt.want == wire.CodeNotIssued {
			tt.digest = wire.Unusable("1"+e.Digest[1:], why)
		}
		if r := complain(tt.by, e, tt.digest); r.Refusal == nil || r.Refusal.Code != tt.want {
			t.Errorf("%s: %+v, want %s", name, r, tt.want)
		}
		if all := told(tt.want); len(all) != 1 || all[0].Type != tt.typ {
			t.Errorf("%s: events %+v, want one %s", name, all, tt.typ)
		}
	}
	if all := told(wire.CodeOfferUnusable); len(all) == 1 && (all[0].Cause != why || all[0].OfSource != 0) {
		t.Errorf("event %+v, want cause %q, which counts against nobody", all[0], why)
	}
	if got := f.Revisions(n.Identity); got != 1 {
		t.Errorf("%d revisions, want 1", got)
	}
	f.Apply(n, e)
	if r := complain(n, e, wire.Unusable(e.Digest, "no broker of the configuration was ever reached")); r.Refusal == nil || r.Refusal.Code != wire.CodeOfferUnusable {
		t.Errorf("of what it has confirmed: %+v", r)
	}
	if r := f.Record(n.Identity); r.State != provisioner.StateProvisioned {
		t.Errorf("the node is %s", r.State)
	}
	f.Revoke(n.Identity)
	if r := complain(n, e, wire.Unusable(e.Digest, why)); r.Refusal == nil || r.Refusal.Code != wire.CodeIdentityRevoked.ToldAs() {
		t.Errorf("of a revoked one: %+v", r)
	}
	f.Check()
}
