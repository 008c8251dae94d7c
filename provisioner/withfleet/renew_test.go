package provisioner_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/events"
)

const web1 = "web1.example.net"

// provisioned returns a provisioned node with its reply.
func provisioned(f *testbed.Fleet, identity string) (*simnode.Node, *wire.Enrolled) {
	n := f.Node(identity)
	e := f.Enroll(n)
	f.Apply(n, e)
	return n, e
}

func TestANodeRenewsOverItsOwnSession(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	f.Clock.Advance(21 * 24 * time.Hour) // its token has expired
	next, second := f.Renew(n, first)
	r := f.Record(web1)
	if r.State != provisioner.StateProvisioned || r.Current.Serial != first.Serial || r.Next == nil ||
		r.Next.Serial != second.Serial ||
		r.Next.KeyHash != keyHash(t, next) || r.Decision.Reason != provisioner.ReasonRenew {
		t.Fatalf("record after the renewal = %+v", r)
	}
	for _, serial := range []string{first.Serial, second.Serial} {
		if !f.Admits(web1, serial) {
			t.Errorf("certificate %s is not admitted while the renewal is under way", serial)
		}
	}
	f.Check()
	old := f.DialFleet(n, first)
	if reply := f.AppliedOverFleet(next, second); reply.Applied == nil {
		t.Fatalf("confirmation: %+v", reply.Refusal)
	}
	r = f.Record(web1)
	if r.Current.Serial != second.Serial || r.Next != nil || len(r.Lineage) != 2 || r.Token == "" {
		t.Errorf("record after the confirmation = %+v", r)
	}
	if f.Admits(web1, first.Serial) || !f.Admits(web1, second.Serial) {
		t.Error("not exactly the new certificate is admitted")
	}
	f.Eventually("the connection of the old certificate is dropped", old.IsClosed)
	if _, err := n.DialFleet(f.URL(), first); err == nil {
		t.Error("the old certificate connects again")
	}
	if got := f.Revisions(web1); got != 4 {
		t.Errorf("%d revisions, want 4: one for each answer that mattered", got)
	}
	renewed := slices.ContainsFunc(f.Events(), func(e events.Event) bool {
		return e.Type == events.Renewed && e.Serial == second.Serial && e.Token == r.Token &&
			e.Reason == string(provisioner.ReasonRenew)
	})
	if !renewed || !strings.Contains(f.Log(), `"msg":"certificate renewed"`) {
		t.Errorf("no event, or no line in the log, says that it was renewed: %+v", f.Events())
	}
	f.Check()
}

// TestTheSameRenewalGetsTheSameCertificate repeats a renewal before and after the node has switched.
func TestTheSameRenewalGetsTheSameCertificate(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	next, second := f.Renew(n, first)
	for name, again := range map[string]*wire.Reply{
		"by the old key": f.AskRenew(n, first, next), "by the new one": f.AskRenew(next, second, next),
		"with the token": f.Ask(next),
	} {
		if diff := cmp.Diff(second, again.Enrolled); diff != "" {
			t.Errorf("again, %s (-first +again):\n%s", name, diff)
		}
	}
	if got := f.Revisions(web1); got != 3 {
		t.Errorf("%d revisions, want 3", got)
	}
	f.AppliedOverFleet(next, second)
	f.Check()
}

// TestANewerRenewalReplacesTheOneBefore: a node loses its next key, and then its confirmation is lost.
func TestANewerRenewalReplacesTheOneBefore(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	_, lost := f.Renew(n, first)
	f.Clock.Advance(minOfferAge)
	second, e2 := f.Renew(n, first)
	if f.Admits(web1, lost.Serial) || !f.Admits(web1, first.Serial) || !f.Admits(web1, e2.Serial) {
		t.Error("not exactly the current and the newest certificate are admitted")
	}
	old := f.DialFleet(n, first)
	third, e3 := f.Renew(second, e2) // unconfirmed
	if f.Admits(web1, first.Serial) || !f.Admits(web1, e2.Serial) || !f.Admits(web1, e3.Serial) {
		t.Error("not exactly what the node renewed by and what it was given are admitted")
	}
	f.Eventually("the connection of the certificate before is dropped", old.IsClosed)
	f.Check()
	if reply := f.Apply(second, e2); reply.Applied == nil {
		t.Errorf("a late confirmation of what is current by now: %+v", reply.Refusal)
	}
	f.AppliedOverFleet(third, e3)
	f.Check()
}

func TestARenewalForTheSameKey(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	if early := f.AskRenew(n, first, n).Enrolled; early == nil || early.Serial != first.Serial {
		t.Errorf("before two thirds of its life: %+v, want certificate %s", early, first.Serial)
	}
	f.Clock.Advance(20*24*time.Hour + time.Minute)
	second := f.AskRenew(n, first, n).Enrolled
	if second == nil || second.Serial == first.Serial {
		t.Fatalf("after two thirds of its life: %+v, want another certificate", second)
	}
	again := f.AskRenew(n, first, n).Enrolled
	if diff := cmp.Diff(second, again); diff != "" {
		t.Errorf("again (-first +again):\n%s", diff)
	}
	next := f.Successor(n)
	if r := f.AskRenew(n, first, next).Refusal; r == nil || r.Code != wire.CodeRenewSession {
		t.Errorf("to another key in between: %+v, want %s", r, wire.CodeRenewSession)
	}
	f.AppliedOverFleet(n, second)
	if f.Admits(web1, first.Serial) || !f.Admits(web1, second.Serial) {
		t.Error("not exactly the new certificate is admitted")
	}
	if r := f.AskRenew(n, second, next); r.Enrolled == nil {
		t.Errorf("to another key after the confirmation: %+v", r.Refusal)
	}
	f.Check()
}

// TestRenewalsThatAreRefused has a row per reason. None changes the record.
func TestRenewalsThatAreRefused(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	other, otherGiven := provisioned(f, "web2.example.net")
	tests := map[string]struct {
		request func(t *testing.T, n *simnode.Node, r *wire.RenewRequest)
		record  func(*provisioner.Record)
		over    bool // another node's session
		want    wire.Code
	}{
		"over another's session": {over: true, want: wire.CodeRenewSession},
		"no identity": {request: func(_ *testing.T, _ *simnode.Node, r *wire.RenewRequest) {
			r.Identity = ">"
		}, want: wire.CodeIdentityInvalid},
		"another's identity": {request: func(_ *testing.T, _ *simnode.Node, r *wire.RenewRequest) {
			r.Identity = other.Identity
		},
			want: wire.CodeRenewSession},
		"a name below one's own": {request: func(_ *testing.T, n *simnode.Node, r *wire.RenewRequest) {
			r.Identity = "x." + n.Identity
		},
			want: wire.CodeRenewSession},
		"vouched for by another's key": {request: func(t *testing.T, _ *simnode.Node, r *wire.RenewRequest) {
			r.Continuity = *must(wire.SignContinuity(other.Key, r.ID, r.Identity, r.CSR))(t)
		}, want: wire.CodeRenewSession},
		"vouched for by the new key": {request: func(t *testing.T, n *simnode.Node, r *wire.RenewRequest) {
			next := f.Successor(n)
			r.CSR = next.CSR
			r.Continuity = *must(wire.SignContinuity(next.Key, r.ID, r.Identity, r.CSR))(t)
		}, want: wire.CodeRenewSession},
		"another request's continuity": {request: func(_ *testing.T, _ *simnode.Node, r *wire.RenewRequest) {
			r.ID = wire.NewID()
		},
			want: wire.CodeBadRequest},
		"continuity over another key": {request: func(t *testing.T, n *simnode.Node, r *wire.RenewRequest) {
			r.CSR = f.Successor(n).CSR
		},
			want: wire.CodeBadRequest},
		"a certificate request for another name": {request: func(t *testing.T, n *simnode.Node, r *wire.RenewRequest) {
			r.CSR = must(simnode.CSR(f.Successor(n).Key, other.Identity))(t)
			r.Continuity = *must(wire.SignContinuity(n.Key, r.ID, r.Identity, r.CSR))(t)
		}, want: wire.CodeCSRIdentity},
		"no certificate request": {request: func(t *testing.T, n *simnode.Node, r *wire.RenewRequest) {
			r.CSR = nil
			r.Continuity = *must(wire.SignContinuity(n.Key, r.ID, r.Identity, r.CSR))(t)
		}, want: wire.CodeCSRInvalid},
		"revoked": {record: func(r *provisioner.Record) { r.State = provisioner.StateRevoked },
			want: wire.CodeIdentityRevoked},
		"retired": {record: func(r *provisioner.Record) {
			r.State, r.Current, r.Next = provisioner.StateRetired, nil, nil
		}, want: wire.CodeRenewSession},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, given := provisioned(f, strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), "'", "")+".example.net")
			nc := f.DialFleet(n, given)
			if tt.over {
				nc = f.DialFleet(other, otherGiven)
			}
			r := must(n.Renewal(f.Successor(n)))(t)
			if tt.request != nil {
				tt.request(t, n, r)
			}
			if tt.record != nil {
				f.PutRecord(n.Identity, tt.record)
			}
			before := f.Revisions(n.Identity)
			reply, err := simnode.Renew(f.Context(), nc, r)
			if err != nil || reply.Refusal == nil || reply.ID != r.ID {
				t.Fatalf("reply = %+v, %v", reply, err)
			}
			if got := reply.Refusal.Code; got != tt.want.SentAs() ||
				!strings.HasPrefix(f.Cause(r.Identity), string(tt.want)+":") {
				t.Errorf("refused as %s (%s), want %s", got, f.Cause(r.Identity), tt.want)
			}
			if got := f.Revisions(n.Identity); got != before {
				t.Errorf("%d revisions, %d before", got, before)
			}
		})
	}
	t.Cleanup(f.Check)
}

// must ends a test if the node cannot make its request.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestARenewalNeedsTheFleet: neither a token nor a forged header is enough.
func TestARenewalNeedsTheFleet(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, given := provisioned(f, web1)
	next := f.Successor(n)
	b, err := wire.Encode(must(n.Renewal(next))(t))
	if err != nil {
		t.Fatal(err)
	}
	// The broker stops it, and the provisioner would refuse it.
	nc := f.Dial(n.Token)
	ctx, cancel := context.WithTimeout(f.Context(), time.Second)
	defer cancel()
	if m, err := nc.RequestWithContext(ctx, wire.SubjectRenew, b); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("over a connection with a token: %+v, %v, want no answer", m, err)
	}
	p := f.Provisioner(nil)
	if _, err := p.Renew(f.Context(), must(n.Renewal(next))(t),
		provisioner.Source{Address: "192.0.2.1"}); provisioner.CodeOf(err) != wire.CodeRenewSession {
		t.Errorf("without a session: %v", err)
	}
	other, otherGiven := provisioned(f, "web2.example.net")
	forging := f.DialFleet(other, otherGiven)
	m, err := forging.RequestMsgWithContext(f.Context(), forged(b))
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := wire.DecodeReply(m.Data); err != nil || reply.Refusal == nil ||
		reply.Refusal.Code != wire.CodeRenewSession {
		t.Errorf("with a forged header: %s, %v", m.Data, err)
	}
	if r := f.Record(web1); r.Next != nil || r.Current.Serial != given.Serial {
		t.Errorf("record = %+v", r)
	}
	f.Check()
}

// TestARenewalKeepsTheTokensTerms: template and policy make the same configuration without a token.
func TestARenewalKeepsTheTokensTerms(t *testing.T) {
	t.Parallel()
	tests := map[string]testbed.Options{
		"template": {Template: "brokers = {{ join .URLs `,` }}\norg = {{ .Org }}\nenvironment = {{ " +
			".Extensions.environment }}\nrole = {{ .Facts.role }}\n"},
		"policy": {Policy: `package muster.enroll

default allow := false

allow if input.token.signer != ""

configuration := {
	"brokers": concat(",", input.token.urls), "org": input.token.org,
	"environment": input.token.extensions.environment, "role": input.facts.role,
}
`},
	}
	for name, options := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, options)
			n, err := simnode.New(web1, f.Token(func(c *jwt.Claims) {
				c.Organization, c.Extensions = "acme",
					map[string]json.RawMessage{"environment": json.RawMessage(`"staging"`)}
			}))
			if err != nil {
				t.Fatal(err)
			}
			n.Facts = testbed.Facts(t, map[string]string{"role": "web"})
			first := f.Enroll(n)
			f.Apply(n, first)
			if first.Configuration["environment"] != "staging" || first.Configuration["brokers"] == "" {
				t.Fatalf("configuration = %v", first.Configuration)
			}
			next, second := f.Renew(n, first)
			if diff := cmp.Diff(first.Files, second.Files); diff != "" {
				t.Errorf("files of the renewal (-first +renewed):\n%s", diff)
			}
			f.AppliedOverFleet(next, second)
			next.Facts = testbed.Facts(t, map[string]string{"role": "db"})
			if _, third := f.Renew(next, second); third.Configuration["role"] != "db" {
				t.Errorf("configuration with other facts = %v", third.Configuration)
			}
			f.Check()
		})
	}
}

func TestThePolicyMayRefuseARenewal(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: `package muster.enroll

default allow := false

allow if input.node.reason != "renew"

deny contains reason if {
	input.node.reason == "renew"
	reason := sprintf("%s by %s of %s", [input.node.state, input.node.reason, input.token.id])
}
`})
	n, first := provisioned(f, web1)
	r := f.AskRenew(n, first, f.Successor(n)).Refusal
	if r == nil || r.Code != wire.CodeDenied {
		t.Fatalf("reply = %+v, want %s", r, wire.CodeDenied)
	}
	if got, want := f.Cause(web1),
		"provisioned by renew of "+string(f.Record(web1).Token); !strings.Contains(got, want) {
		t.Errorf("cause = %q, want %q in it", got, want)
	}
	if !f.Admits(web1, first.Serial) || f.Record(web1).Next != nil {
		t.Error("a refused renewal changed what is admitted")
	}
	f.Check()
}

func TestARenewalCostsNoQuota(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(1, 1)})
	n, e := provisioned(f, web1)
	for range 3 {
		n, e = f.Renew(n, e)
		f.AppliedOverFleet(n, e)
	}
	f.Check()
}
