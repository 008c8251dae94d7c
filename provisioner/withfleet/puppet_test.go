package provisioner_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/operate"
)

// TestWithoutATokenANameWaits: under both built-in policies, whatever an ordinary entry of the allow-list says.
func TestWithoutATokenANameWaits(t *testing.T) {
	t.Parallel()
	for name, closed := range map[string]bool{"default policy": true, "open policy": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newPuppetFleet(t, testbed.Options{DefaultPolicy: closed})
			allow := func(o operate.AllowOrder) {
				t.Helper()
				if _, err := f.AllowList.Add(f.Context(), o, operator); err != nil {
					t.Fatal(err)
				}
			}
			allow(operate.AllowOrder{Pattern: "*.example.net"})
			if r := f.agent("web1.example.net", "").refused(wire.CodeApprovalPending); r.Proven {
				t.Error("an agent without a token may know why it is refused")
			}
			f.agent("web1.example.net", "a word").refused(wire.CodeApprovalPending)
			right, wrong := f.agent("web1.example.net", ""), f.agent("web1.example.net", "")
			right.refused(wire.CodeApprovalPending)
			if _, err := f.Keys.Approve(f.Context(), operate.Named("web1.example.net", right.csr.KeyHash), 0,
				operator); err != nil {
				t.Fatal(err)
			}
			wrong.refused(wire.CodeApprovalPending)
			e := right.enrolled()
			r := f.Record("web1.example.net")
			if r.Protocol != provisioner.ProtocolPuppet || r.Token != "" || len(r.Terms) > 0 || r.Approval == nil ||
				r.Decision.Reason != provisioner.ReasonNew {
				t.Errorf("record = %+v, want an approved node without a token", r)
			}
			if c := leaf(t, e); time.Until(c.NotAfter).Round(24*time.Hour) != aYear {
				t.Errorf("certificate until %s, want a year", c.NotAfter)
			}
			if again := right.enrolled(); again.Serial != e.Serial {
				t.Errorf("the same key gets certificate %s, want %s again", again.Serial, e.Serial)
			}
			wrong.refused(wire.CodeIdentityTaken)

			allow(operate.AllowOrder{Pattern: "free*.example.net", WithoutToken: true})
			f.agent("free1.example.net", "").enrolled()
			if r := f.Record("free1.example.net"); r.Decision.Allowed != "free*.example.net" {
				t.Errorf("decision = %+v, want it by the entry", r.Decision)
			}
			// With a token an ordinary entry is enough.
			f.agent("db1.example.net", f.Token(nil)).enrolled()
			f.Check()
		})
	}
}

// TestAPolicyDecidesByExtensions: they are claims, and the certificate has what the policy says.
func TestAPolicyDecidesByExtensions(t *testing.T) {
	t.Parallel()
	f := newPuppetFleet(t, testbed.Options{Policy: `package muster.enroll

default allow := false

allow if input.csr.extensions.pp_role in {"web", "db"}

allow if input.csr.challenge == "open sesame"

deny contains "a secret was shown" if input.csr.extensions.pp_preshared_key

certificate := {"ttl": "2d", "extensions": {"pp_role": role}} if role := input.csr.extensions.pp_role

configuration := {"proof": input.proof, "role": object.get(input.csr.extensions, "pp_role", "none")}
`})
	role := func(value string) pkix.Extension { return puppetExtension(t, "pp_role", value) }
	a := f.agent("web1.example.net", "", role("web"), puppetExtension(t, "pp_preshared_key", "hush"))
	e := a.enrolled()
	c := leaf(t, e)
	if got := extensionsOf(c); !maps.Equal(got, map[int]string{13: "web"}) {
		t.Errorf("extensions = %v, want pp_role alone", got)
	}
	if c.Subject.CommonName != a.name || !slices.Equal(c.DNSNames, []string{a.name}) ||
		time.Until(c.NotAfter) > 49*time.Hour || e.Configuration["proof"] != "none" {
		t.Errorf("certificate %s %q until %s, configuration %v", c.Subject, c.DNSNames, c.NotAfter, e.Configuration)
	}
	f.agent("web2.example.net", "", role("boss")).refused(wire.CodeDenied)
	f.agent("web2.example.net", "").refused(wire.CodeDenied)
	f.agent("web2.example.net", "open sesame").enrolled()
	authorization := pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 34380, 1, 3, 39}, Value: []byte{12, 1, 'x'}}
	f.agent("web3.example.net", "", role("web"), authorization).refused(wire.CodeCSRInvalid)

	// The same key with another claim is the same node.
	liar := *a
	csr := *a.csr
	csr.Extensions = map[string]string{"pp_role": "db"}
	liar.csr = &csr
	if again := liar.enrolled(); again.Serial != e.Serial || again.Configuration["role"] != "web" {
		t.Errorf("a repeated request gets %s with %v, want the same", again.Serial, again.Configuration)
	}
	a.confirm()
	f.Clock.Advance(40 * time.Hour)
	renewed, err := a.renew(false, `{"role":"boss"}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := extensionsOf(leaf(t, renewed)); renewed.Serial == e.Serial || got[13] != "web" ||
		renewed.Configuration["proof"] != "certificate" {
		t.Errorf("renewed %s with %v, %v, want another with the same role", renewed.Serial, got, renewed.Configuration)
	}
	if !leaf(t, renewed).PublicKey.(*ecdsa.PublicKey).Equal(a.csr.PublicKey) {
		t.Error("the renewed certificate is for another key")
	}
	f.Check()
}

// TestATokenCountsAsWithAnyNode, and one for one use hands the name over.
func TestATokenCountsAsWithAnyNode(t *testing.T) {
	t.Parallel()
	f := newPuppetFleet(t, testbed.Options{DefaultPolicy: true})
	token := f.Token(testbed.Limited(1, "web1.example.net"))
	a := f.agent("web1.example.net", token)
	a.enrolled()
	a.confirm()
	if got := report(t, f.Fleet, token); got.Used != 1 || f.Record(a.name).Token != f.TokenID(token) {
		t.Errorf("report = %+v, want one use, and the token on record", got)
	}
	a.enrolled() // costs nothing
	if r := f.agent("web2.example.net", token).refused(wire.CodeTokenIdentity); !r.Proven {
		t.Error("the holder of a token may not know why it is refused")
	}
	if r := f.agent("web1.example.net", f.Token(nil)).refused(wire.CodeIdentityTaken); !r.Proven ||
		r.Message().Code != wire.CodeApprovalPending {
		t.Errorf("proven %v, told %s", r.Proven, r.Message().Code)
	}
	second := f.agent("web1.example.net", f.Token(func(c *jwt.Claims) {
		testbed.Limited(1, "web1.example.net")(c)
		c.IssuedAt = f.Record(a.name).Current.OfferedAt.Add(time.Second)
	}))
	second.enrolled()
	second.confirm()
	a.refused(wire.CodeIdentityTaken)
	f.agent("web3.example.net", "eyJ0.e30.x").refused(wire.CodeApprovalPending) // no token of this form
	revoked := f.Token(testbed.Limited(1, "web4.example.net"))
	if err := f.Tokens.Revoke(f.Context(), f.TokenID(revoked), operator); err != nil {
		t.Fatal(err)
	}
	f.agent("web4.example.net", revoked).refused(wire.CodeTokenRevoked)
	f.Check()
}

// TestASessionRenewsItsOwnCertificateOnly, and a run renews none.
func TestASessionRenewsItsOwnCertificateOnly(t *testing.T) {
	t.Parallel()
	f := newPuppetFleet(t, testbed.Options{
		Edit: func(c *daemon.Config) { c.Fleet.Facts = []string{"role"} },
		Policy: `package muster.enroll

default allow := true

configuration := {"role": object.get(input.facts, "role", "none")}
`})
	a := f.agent("web1.example.net", "")
	e := a.enrolled()
	a.confirm()
	renewed := func(keep bool, facts string) *wire.Enrolled {
		t.Helper()
		e, err := a.renew(keep, facts)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	revisions := f.Revisions(a.name)
	if again := renewed(false, `{}`); again.Serial != e.Serial || f.Revisions(a.name) != revisions {
		t.Errorf("renewed %s at once, after %s", again.Serial, e.Serial)
	}
	// A run writes another configuration once, and no certificate.
	for range 3 {
		run := renewed(true, `{"role":"web"}`)
		if run.Serial != e.Serial || run.Configuration["role"] != "web" || f.Revisions(a.name) != revisions+1 {
			t.Errorf("run = %s %v, %d revisions after %d", run.Serial, run.Configuration, f.Revisions(a.name), revisions)
		}
	}
	a.confirm()
	revisions = f.Revisions(a.name)
	renewed(true, `{"role":"web"}`)
	if got := f.Revisions(a.name); got != revisions {
		t.Errorf("%d revisions after %d", got, revisions)
	}
	seen := len(f.Events())
	f.Clock.Advance(aYear * 9 / 10)
	if run := renewed(true, `{"role":"web"}`); run.Serial != e.Serial {
		t.Error("a run issued a certificate")
	}
	if got := f.Events()[seen:]; slices.ContainsFunc(got, func(e events.Event) bool { return e.Node == a.name }) {
		t.Errorf("a run is told: %+v", got)
	}
	next := renewed(false, `{"role":"web"}`)
	c := leaf(t, next)
	if next.Serial == e.Serial || !c.PublicKey.(*ecdsa.PublicKey).Equal(a.csr.PublicKey) || c.Subject.CommonName != a.name {
		t.Errorf("renewed %s for %s, want another certificate of the key", next.Serial, c.Subject)
	}
	if again := renewed(false, `{"role":"web"}`); again.Serial != next.Serial {
		t.Errorf("renewed %s again, want %s", again.Serial, next.Serial)
	}
	for _, serial := range []string{e.Serial, next.Serial} {
		if _, err := f.p.Gate.AdmitPeer(f.Context(), provisioner.ProtocolPuppet, wire.Identity(a.name), serial); err != nil {
			t.Errorf("%s is not admitted: %v", serial, err)
		}
	}
	a.confirm()
	_, err := f.p.Gate.AdmitPeer(f.Context(), provisioner.ProtocolPuppet, wire.Identity(a.name), e.Serial)
	if provisioner.CodeOf(err) != wire.CodeNotIssued {
		t.Errorf("the certificate before: %v", err)
	}

	// Neither another name nor another key.
	other := f.agent("web2.example.net", "")
	other.enrolled()
	other.confirm()
	for what, edit := range map[string]func(*puppetAgent){
		"another name":      func(a *puppetAgent) { a.name = other.name },
		"another node":      func(a *puppetAgent) { a.name, a.csr = other.name, other.csr },
		"another key":       func(a *puppetAgent) { a.csr = other.csr },
		"a name of no node": func(a *puppetAgent) { a.name = "web3.example.net" },
	} {
		thief := *a
		edit(&thief)
		key, err := ca.KeyRequest(thief.csr.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		for _, keep := range []bool{false, true} {
			source := a.session()
			source.Edge = &provisioner.Edge{Key: key, Session: true, Keep: keep}
			e, err := f.p.Renew(f.Context(), &wire.RenewRequest{ID: wire.NewID(), Identity: thief.name}, source)
			if provisioner.CodeOf(err) != wire.CodeRenewSession || e != nil {
				t.Errorf("%s, keep %v: %v", what, keep, err)
			}
		}
	}
	f.Check()
}

// TestThePeersOfOneProtocolAreNotThoseOfAnother, nor does one enroll over the other.
func TestThePeersOfOneProtocolAreNotThoseOfAnother(t *testing.T) {
	t.Parallel()
	f := newPuppetFleet(t, testbed.Options{})
	n := f.Node("own.example.net")
	own := f.Enroll(n)
	f.Apply(n, own)
	a := f.agent("puppet1.example.net", f.Token(nil))
	e := a.enrolled()
	gate := f.p.Gate
	if r, err := gate.AdmitPeer(f.Context(), provisioner.ProtocolPuppet, "puppet1.example.net", e.Serial); err != nil ||
		r.Next.Serial != e.Serial {
		t.Errorf("AdmitPeer = %+v, %v", r, err)
	}
	for what, err := range map[string]error{
		"an agent in the fleet": gate.AdmitNode(f.Context(), "puppet1.example.net", e.Serial),
		"muster's node at the gateway": func() error {
			_, err := gate.AdmitPeer(f.Context(), provisioner.ProtocolPuppet, "own.example.net", own.Serial)
			return err
		}(),
		"another's certificate": func() error {
			_, err := gate.AdmitPeer(f.Context(), provisioner.ProtocolPuppet, "puppet1.example.net", own.Serial)
			return err
		}(),
		"no record": func() error {
			_, err := gate.AdmitPeer(f.Context(), provisioner.ProtocolPuppet, "none.example.net", e.Serial)
			return err
		}(),
	} {
		if provisioner.CodeOf(err) != wire.CodeNotIssued {
			t.Errorf("%s: %v", what, err)
		}
	}
	f.agent("own.example.net", f.Token(nil)).refused(wire.CodeIdentityTaken)
	if got := f.Refused(f.Node("puppet1.example.net")); got != wire.CodeIdentityTaken {
		t.Errorf("muster's agent: %s", got)
	}
	if err := f.Nodes.Revoke(f.Context(), "puppet1.example.net", operator); err != nil {
		t.Fatal(err)
	}
	if _, err := gate.AdmitPeer(f.Context(), provisioner.ProtocolPuppet, "puppet1.example.net",
		e.Serial); provisioner.CodeOf(err) != wire.CodeIdentityRevoked {
		t.Errorf("a revoked agent: %v", err)
	}
	f.Check()
}

// TestWhatAnAgentShowsIsKeptNowhere: a secret of another system, a one-time token and a pre-shared key.
func TestWhatAnAgentShowsIsKeptNowhere(t *testing.T) {
	t.Parallel()
	f := newPuppetFleet(t, testbed.Options{Policy: `package muster.enroll

default allow := false

allow if input.node.reason == "one_time_token"

allow if input.node.reason == "replay"

approval if not allow

reasons contains sprintf("challenge %s, extensions %v", [input.csr.challenge, input.csr.extensions]) if approval

deny contains sprintf("no %s", [input.csr.challenge]) if startswith(input.identity, "bad")

configuration := {"a": "b"}
`})
	const foreign, key = "correct-horse-battery-staple", "pre-shared-and-secret"
	preshared := puppetExtension(t, "pp_preshared_key", key)
	waits := f.agent("web1.example.net", foreign, preshared, puppetExtension(t, "pp_role", "web"))
	waits.refused(wire.CodeApprovalPending)
	f.agent("bad1.example.net", foreign, preshared).refused(wire.CodeDenied)
	secret, _ := f.oneTime("web2.example.net")
	a := f.agent("web2.example.net", secret, preshared)
	a.enrolled()
	a.enrolled()
	f.agent("web2.example.net", secret, preshared).refused(wire.CodeIdentityTaken)
	f.agent("web2.example.net", foreign, preshared).refused(wire.CodeIdentityTaken)
	f.agent("web3.example.net", secret, preshared).refused(wire.CodeApprovalPending)

	var told bytes.Buffer
	f.Eventually("the decisions are recorded", func() bool {
		told.Reset()
		if err := f.Daemon().Inputs(f.Context(), time.Hour, func(uint64) {}, &told); err != nil {
			t.Fatal(err)
		}
		return strings.Count(told.String(), "web1.example.net") > 0 || strings.Count(told.String(), "web2.example.net") > 0
	})
	inspector := fleet.NewInspector(f.Daemon().Store(),
		fleet.NewIndex(f.Daemon().Store(), slog.New(slog.DiscardHandler), nil), f.Daemon().Services().Index())
	for _, name := range []string{"web1.example.net", "web2.example.net", "web3.example.net", "bad1.example.net"} {
		explained, err := inspector.Explain(f.Context(), wire.Identity(name), f.Clock.Now(), f.p.Forecast)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(explained)
		if err != nil {
			t.Fatal(err)
		}
		told.Write(text)
	}
	for _, m := range f.Stored() {
		told.WriteString(fmt.Sprint(m.Subject, m.Header) + string(m.Data))
	}
	for _, e := range f.Events() {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		told.Write(text)
	}
	told.WriteString(f.Log())
	for what, hidden := range map[string]string{"challenge": foreign, "pre-shared key": key, "one-time token": secret} {
		if strings.Contains(told.String(), hidden) {
			i := strings.Index(told.String(), hidden)
			t.Errorf("the %s was kept: %.200q", what, told.String()[max(0, i-100):])
		}
	}
	if !strings.Contains(told.String(), "pp_role") {
		t.Error("nothing was looked at")
	}
	f.Check()
}

// TestAgentsWithoutATokenShareAQuota, whatever their addresses.
func TestAgentsWithoutATokenShareAQuota(t *testing.T) {
	t.Parallel()
	f := newPuppetFleet(t, testbed.Options{Edit: testbed.Quotas(2, 0),
		Policy: "package muster.enroll\n\ndefault allow := true\n\nconfiguration := {\"a\": \"b\"}\n"})
	f.agent("web1.example.net", "").enrolled()
	again := f.agent("web2.example.net", "a word")
	again.enrolled()
	r := f.agent("web3.example.net", "").refused(wire.CodeQuotaExceeded)
	if !strings.Contains(r.Error(), "2 new nodes without a token") {
		t.Errorf("refused with %v", r)
	}
	again.enrolled() // no new name
	f.agent("web4.example.net", f.Token(nil)).enrolled()
	secret, _ := f.oneTime("web5.example.net")
	f.agent("web5.example.net", secret).enrolled()
	f.Check()
}

// TestAPreviewKnowsPuppetAgents: `muster policy` finds what an enrollment would refuse.
func TestAPreviewKnowsPuppetAgents(t *testing.T) {
	t.Parallel()
	preview := &provisioner.Preview{MaxTTL: time.Hour}
	in, err := policies.ParseInput([]byte(`{"identity":"web1.example.net","proof":"none",
		"csr":{"extensions":{"pp_role":"web"},"challenge":"x"},"source":{"protocol":"puppet"}}`))
	if err != nil || in.Proof != policies.ProofNone || in.CSR.Extensions["pp_role"] != "web" || in.CSR.Challenge != "x" {
		t.Fatalf("ParseInput = %+v, %v", in, err)
	}
	for _, tt := range []struct {
		certificate policies.Certificate
		want        wire.Code
	}{
		{policies.Certificate{TTL: 5 * aYear, Extensions: map[string]string{"pp_role": "web"}}, ""},
		{policies.Certificate{TTL: 6 * aYear}, wire.CodeCertificateFailed},
		{policies.Certificate{Extensions: map[string]string{"pp_roles": "web"}}, wire.CodeCertificateFailed},
		{policies.Certificate{Extensions: map[string]string{"pp_role": ""}}, wire.CodeCertificateFailed},
		{policies.Certificate{DNSNames: []string{"puppet"}}, wire.CodeCertificateFailed},
	} {
		_, err := preview.Follow(t.Context(), in, &policies.Decision{Allow: true, Certificate: tt.certificate})
		if provisioner.CodeOf(err) != tt.want {
			t.Errorf("%+v: %v, want %q", tt.certificate, err, tt.want)
		}
	}
}

// TestNeitherRunsNorMissingTokensAreRecorded: a run each half hour would push the enrollments out.
func TestNeitherRunsNorMissingTokensAreRecorded(t *testing.T) {
	t.Parallel()
	f := newPuppetFleet(t, testbed.Options{Policy: "package muster.enroll\n\ndefault allow := true\n"})
	a := f.agent("web1.example.net", "")
	a.enrolled()
	a.confirm()
	if _, err := a.renew(true, `{"role":"web"}`); err != nil {
		t.Fatal(err)
	}
	f.agent("web2.example.net", "").enrolled()
	recorded := map[string]int{}
	f.Eventually("the later enrollment is recorded", func() bool {
		clear(recorded)
		var b bytes.Buffer
		if err := f.Daemon().Inputs(f.Context(), time.Hour, func(uint64) {}, &b); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			var r policies.Recording
			if json.Unmarshal([]byte(line), &r) == nil && r.Input != nil {
				recorded[r.Input.Identity]++
			}
		}
		return recorded["web2.example.net"] > 0
	})
	if n := recorded["web1.example.net"]; n != 1 {
		t.Errorf("%d inputs of a node with one enrollment and one run", n)
	}
	if tokens := f.p.TokensInUse(); len(tokens) > 0 {
		t.Errorf("tokens in use: %+v, want none", tokens)
	}
}
