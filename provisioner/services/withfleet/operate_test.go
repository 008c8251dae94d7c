package services_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/services"
	"muster/provisioner/trust"
)

const approved = `package muster.certificate

default allow := false

approval := true

reasons contains "ask the network team"

certificate := {"dns_names": input.csr.dns_names}
`

func TestAnOperatorApprovesARequest(t *testing.T) {
	t.Parallel()
	f := newFleet(t, approved)
	n := connected(t, f, web1)
	s := f.Daemon().Services()
	r := n.request("https", newKey(t), web1)
	for range 2 { // also the repeated request waits
		if got := n.code(r); got != wire.CodeApprovalPending {
			t.Fatalf("code %s, want %s", got, wire.CodeApprovalPending)
		}
	}
	waits := n.listed("https")
	if waits.State != services.StateWaiting || waits.Note != "policy: ask the network team" || waits.Names[0] != web1 {
		t.Fatalf("listed as %+v, want it as waiting", waits)
	}
	if err := s.Reject(f.Context(), web1, "https", waits.Request, cause); err != nil {
		t.Fatal(err)
	}
	if got := n.code(r); got != wire.CodeRejected {
		t.Errorf("code %s, want %s", got, wire.CodeRejected)
	}
	if err := s.Approve(f.Context(), web1, "https", "", cause); err != nil {
		t.Fatal(err)
	}
	first := n.granted(r)
	if l := n.listed("https"); l.State != services.StateCurrent || l.Serial != first.Serial {
		t.Errorf("listed as %+v, want it as current", l)
	}
	n.granted(n.request("https", newKey(t), web1)) // a renewal
	if got := n.code(n.request("https", newKey(t), "svc."+web1)); got != wire.CodeApprovalPending {
		t.Errorf("other names: code %s, want %s", got, wire.CodeApprovalPending)
	}
	if err := s.Approve(f.Context(), web1, "https", waits.Request, cause); !errors.Is(err, trust.ErrState) {
		t.Errorf("approval of what was shown before: %v, want %v", err, trust.ErrState)
	}
	if err := s.Approve(f.Context(), web1, "none", "", cause); !errors.Is(err, services.ErrNone) {
		t.Errorf("approval of nothing: %v, want %v", err, services.ErrNone)
	}
	f.Check()
}

func TestAnApprovalEnds(t *testing.T) {
	t.Parallel()
	f := newFleet(t, approved)
	n := connected(t, f, web1)
	r := n.request("https", newKey(t), web1)
	n.code(r)
	if err := f.Daemon().Services().Approve(f.Context(), web1, "https", "", cause); err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(services.ApprovalTTL)
	if got := n.code(r); got != wire.CodeApprovalPending {
		t.Errorf("code %s, want %s", got, wire.CodeApprovalPending)
	}
}

// TestSeveralNodesHaveAName if the policy shares it, or if an operator approves it.
func TestSeveralNodesHaveAName(t *testing.T) {
	t.Parallel()
	f := newFleet(t, strings.Replace(anything, "certificate := {", `certificate := {"shared": ["vip.example.net"],`, 1))
	n, other := connected(t, f, web1), connected(t, f, db1)
	n.granted(n.request("https", newKey(t), "vip.example.net", "www.example.net"))
	other.granted(other.request("vip", newKey(t), "vip.example.net"))
	r := other.request("www", newKey(t), "www.example.net")
	if got := other.code(r); got != wire.CodeApprovalPending {
		t.Errorf("a name that is not shared: %s, want %s", got, wire.CodeApprovalPending)
	}
	if err := f.Daemon().Services().Approve(f.Context(), db1, "www", "", cause); err != nil {
		t.Fatal(err)
	}
	other.granted(r)
	other.granted(other.request("www", newKey(t), "www.example.net"))
}

func TestOneCertificateIsRevoked(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "")
	n := connected(t, f, web1)
	former, other := n.granted(n.request("https", newKey(t), web1)), n.granted(n.request("ldap", newKey(t), web1))
	key := newKey(t)
	newest := n.granted(n.request("https", key, web1))
	if err := f.Daemon().Services().Revoke(f.Context(), web1, "https", cause); err != nil {
		t.Fatal(err)
	}
	wantRevoked(f, former.Serial, newest.Serial)
	if l := n.listed("https"); l.State != services.StateRevoked || f.OnCRL(other.Serial) {
		t.Errorf("listed as %+v, the other on the CRL: %v, want this one alone revoked", l, f.OnCRL(other.Serial))
	}
	if got := n.code(n.request("https", key, web1)); got != wire.CodeCSRInvalid {
		t.Errorf("the same key again: %s, want %s", got, wire.CodeCSRInvalid)
	}
	n.granted(n.request("https", newKey(t), web1))
	give := &wire.CertificateRequest{ID: wire.NewID(), Identity: web1, Name: "ldap", Source: "file",
		Verb: wire.CertificateRevoke}
	if got := n.ask(give); got.Certificate == nil || got.Certificate.Name != "ldap" {
		t.Errorf("giving up: %+v, want done", got.Refusal)
	}
	wantRevoked(f, other.Serial)
	if err := f.Daemon().Services().Revoke(f.Context(), web1, "none", cause); !errors.Is(err, services.ErrNone) {
		t.Errorf("nothing revoked: %v, want %v", err, services.ErrNone)
	}
	f.Check()
}

func TestANodeReportsItsStates(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "")
	n := connected(t, f, web1)
	report := func(stuck bool) {
		t.Helper()
		r := &wire.CertificateRequest{ID: wire.NewID(), Identity: web1, Name: "https", Source: "file",
			Verb: wire.CertificateReport, Report: &wire.CertificateState{State: "failed", Stuck: stuck, Error: "disk full",
				Since: time.Now()}}
		if got := n.code(r); got != "" {
			t.Fatalf("report: %s", got)
		}
	}
	report(true)
	if l := n.listed("https"); l.State != services.StateNone || !l.Stuck || l.Note != "disk full" {
		t.Errorf("listed as %+v, want it as stuck", l)
	}
	f.WaitAlarm(events.AlarmCertificatesStuck)
	report(false)
	f.WaitNoAlarm(events.AlarmCertificatesStuck)
	n.granted(n.request("https", newKey(t), web1))
	f.Clock.Advance(28 * 24 * time.Hour)
	f.WaitAlarm(events.AlarmCertificatesEnd)
}

func TestANodeHasALimitedNumberOfCertificates(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "")
	n := connected(t, f, web1)
	for i := range wire.MaxCertificates {
		if got := n.code(n.request(fmt.Sprint("s", i), newKey(t), web1)); got != "" {
			t.Fatalf("certificate %d: %s", i, got)
		}
	}
	if got := n.code(n.request("more", newKey(t), web1)); got != wire.CodeQuotaExceeded {
		t.Errorf("one more: %s, want %s", got, wire.CodeQuotaExceeded)
	}
	if got := n.code(n.request("s1", newKey(t), web1)); got != "" {
		t.Errorf("a renewal: %s, want none", got)
	}
	r, refused := n.request("s2", newKey(t), db1), 0
	for range 2 * wire.MaxCertificates {
		if n.code(r) == wire.CodeQuotaExceeded {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no request was too many")
	}
}
