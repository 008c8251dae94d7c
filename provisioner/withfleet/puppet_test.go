package provisioner_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
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
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

const (
	aYear        = 365 * 24 * time.Hour
	puppetSource = "192.0.2.7"
)

// A puppetAgent asks a provisioner as the gateway for Puppet agents does.
type puppetAgent struct {
	t     *testing.T
	f     *testbed.Fleet
	p     *provisioner.Provisioner
	name  string
	token string
	der   []byte
	csr   *ca.CSR
}

// A puppetFleet is a provisioner of its own on a fleet's store, so that orders are in force at once.
type puppetFleet struct {
	*testbed.Fleet
	*operate.Orders
	t *testing.T
	p *provisioner.Provisioner
}

func newPuppetFleet(t *testing.T, o testbed.Options, wrap ...func(provisioner.Store) provisioner.Store) *puppetFleet {
	t.Helper()
	o.Puppet = true
	f := testbed.New(t, o)
	p := f.Provisioner(append(wrap, nil)[0])
	return &puppetFleet{Fleet: f, Orders: testbed.Orders(p), t: t, p: p}
}

// agent returns an agent with a key of its own. text is its challengePassword.
func (f *puppetFleet) agent(name, text string, extensions ...pkix.Extension) *puppetAgent {
	f.t.Helper()
	a := &puppetAgent{t: f.t, f: f.Fleet, p: f.p, name: name, token: text}
	a.der = puppetCSR(f.t, name, text, extensions...)
	var err error
	if a.csr, err = ca.ParseCSR(a.der); err != nil || a.csr.Challenge != text {
		f.t.Fatalf("ParseCSR = %+v, %v", a.csr, err)
	}
	return a
}

func puppetExtension(t *testing.T, name, value string) pkix.Extension {
	t.Helper()
	text, err := asn1.MarshalWithParams(value, "utf8")
	if err != nil {
		t.Fatal(err)
	}
	arc := ca.PuppetExtensions[name]
	return pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 34380, 1, 1, arc}, Value: text}
}

// puppetCSR returns a request as an agent makes it: crypto/x509 writes no challengePassword.
func puppetCSR(t *testing.T, name, challenge string, extensions ...pkix.Extension) []byte {
	t.Helper()
	encode := func(v any, params string) []byte {
		b, err := asn1.MarshalWithParams(v, params)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	type attribute struct {
		ID     asn1.ObjectIdentifier
		Values []asn1.RawValue `asn1:"set"`
	}
	attributes := []attribute{}
	if len(extensions) > 0 {
		attributes = append(attributes, attribute{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14},
			[]asn1.RawValue{{FullBytes: encode(extensions, "")}}})
	}
	if challenge != "" {
		attributes = append(attributes, attribute{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 7},
			[]asn1.RawValue{{FullBytes: encode(challenge, "utf8")}}})
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	info := encode(struct {
		Version       int
		Subject       pkix.RDNSequence
		SPKI          asn1.RawValue
		RawAttributes []attribute `asn1:"tag:0,set"`
	}{0, pkix.Name{CommonName: name}.ToRDNSequence(), asn1.RawValue{FullBytes: spki}, attributes}, "")
	digest := sha256.Sum256(info)
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return encode(struct {
		Info      asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{asn1.RawValue{FullBytes: info},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}},
		asn1.BitString{Bytes: signature, BitLength: len(signature) * 8}}, "")
}

// steadily repeats a request that a slow machine refuses.
func steadily(f *testbed.Fleet, ask func() (*wire.Enrolled, error)) (e *wire.Enrolled, err error) {
	for ctx := f.Context(); ; {
		if e, err = ask(); provisioner.CodeOf(err) != wire.CodeRevocationsUnknown {
			return e, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (a *puppetAgent) ask() (*wire.Enrolled, error) {
	return steadily(a.f, func() (*wire.Enrolled, error) { return a.askOnce(a.f.Context(), a.p) })
}

func (a *puppetAgent) askOnce(ctx context.Context, p *provisioner.Provisioner) (*wire.Enrolled, error) {
	return p.EnrollOver(ctx, &provisioner.Edge{Key: a.csr, TTL: aYear}, &wire.EnrollRequest{
		ID: wire.NewID(), Identity: a.name, Token: wire.Secret(a.token), CSR: a.der, Agent: "puppet 8.11.0",
	}, provisioner.Source{Address: puppetSource, Protocol: provisioner.ProtocolPuppet})
}

func (a *puppetAgent) enrolled() *wire.Enrolled {
	a.t.Helper()
	e, err := a.ask()
	if err != nil {
		a.t.Fatalf("%s: %v", a.name, err)
	}
	return e
}

// refused returns the refusal, with its code as operators see it.
func (a *puppetAgent) refused(want wire.Code) *provisioner.Refusal {
	a.t.Helper()
	_, err := a.ask()
	r := &provisioner.Refusal{}
	if !errors.As(err, &r) || r.Code != want {
		a.t.Fatalf("%s: %v, want %s", a.name, err, want)
	}
	return r
}

// confirm plays the first request with the newest certificate.
func (a *puppetAgent) confirm() {
	a.t.Helper()
	r := a.f.Record(a.name)
	if r == nil || r.Next == nil {
		a.t.Fatalf("%s: record = %+v, want an offer", a.name, r)
	}
	err := a.p.Applied(a.f.Context(), &wire.Applied{ID: wire.NewID(), Identity: a.name, Serial: r.Next.Serial,
		Digest: r.Next.Digest}, a.session())
	if err != nil {
		a.t.Fatalf("%s: %v", a.name, err)
	}
}

func (a *puppetAgent) session() provisioner.Source {
	return provisioner.Source{Address: puppetSource, Protocol: provisioner.ProtocolPuppet, Node: wire.Identity(a.name)}
}

// renew plays a renewal over the agent's session, or with keep a run.
func (a *puppetAgent) renew(keep bool, facts string) (*wire.Enrolled, error) {
	key, err := ca.KeyRequest(a.csr.PublicKey)
	if err != nil {
		return nil, err
	}
	return steadily(a.f, func() (*wire.Enrolled, error) {
		return a.p.RenewOver(a.f.Context(), &provisioner.Edge{Key: key, Session: true, Keep: keep, TTL: aYear},
			&wire.RenewRequest{ID: wire.NewID(), Identity: a.name, Facts: json.RawMessage(facts)}, a.session())
	})
}

func leaf(t *testing.T, e *wire.Enrolled) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(e.Certificate))
	if block == nil {
		t.Fatalf("certificate = %q", e.Certificate)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// extensionsOf returns Puppet's extensions of a certificate, by their last arc.
func extensionsOf(c *x509.Certificate) map[int]string {
	all := map[int]string{}
	for _, e := range c.Extensions {
		if len(e.Id) == 10 && e.Id[6] == 34380 {
			all[e.Id[9]] = string(e.Value[2:])
		}
	}
	return all
}

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
			if c := leaf(t, e); c.NotAfter.Sub(time.Now()).Round(24*time.Hour) != aYear {
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

func (f *puppetFleet) oneTime(name string) (string, *orders.Grant) {
	f.t.Helper()
	secret, g, err := f.Nodes.OneTime(f.Context(), wire.Identity(name), 0, operator)
	if err != nil || len(secret) != 43 {
		f.t.Fatalf("secret of %d characters, %v", len(secret), err)
	}
	return secret, g
}

// TestAOneTimeSecretGivesANameToOneKey, whatever the name's record but a revoked one.
func TestAOneTimeSecretGivesANameToOneKey(t *testing.T) {
	t.Parallel()
	shared := newPuppetFleet(t, testbed.Options{DefaultPolicy: true})
	owner := func(t *testing.T, f *puppetFleet, name string) *puppetAgent {
		secret, _ := f.oneTime(name)
		a := f.agent(name, secret)
		a.enrolled()
		a.confirm()
		return a
	}
	order := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, tt := range []struct {
		what    string
		prepare func(t *testing.T, f *puppetFleet, name string)
		want    wire.Code
	}{
		{what: "no record"},
		{what: "another key", prepare: func(t *testing.T, f *puppetFleet, name string) { owner(t, f, name) }},
		{what: "retired", prepare: func(t *testing.T, f *puppetFleet, name string) {
			owner(t, f, name)
			order(t, f.Nodes.Retire(f.Context(), wire.Identity(name), operator))
		}},
		{what: "kept", prepare: func(t *testing.T, f *puppetFleet, name string) {
			owner(t, f, name)
			order(t, f.Nodes.Clean(f.Context(), wire.Identity(name), operator))
		}},
		{what: "not confirmed", prepare: func(t *testing.T, f *puppetFleet, name string) {
			secret, _ := f.oneTime(name)
			f.agent(name, secret).enrolled()
		}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			f := *shared
			f.t = t
			name := fmt.Sprintf("web%d.example.net", i)
			if tt.prepare != nil {
				tt.prepare(t, &f, name)
			}
			before := f.Record(name)
			secret, g := f.oneTime(name)
			if r := f.agent("other-"+name, secret).refused(wire.CodeApprovalPending); r.Proven {
				t.Error("the secret of another name proves something")
			}
			if provisioner.StateOf(before) == provisioner.StateProvisioned {
				f.agent(name, secret[1:]+"A").refused(wire.CodeIdentityTaken)
				f.agent(name, "").refused(wire.CodeIdentityTaken)
			}
			a := f.agent(name, secret)
			e := a.enrolled()
			r := f.Record(name)
			if r.Grant != g.ID || r.Decision.Reason != provisioner.ReasonOneTimeToken || r.Token != "" || r.Awaiting ||
				!slices.Equal(r.Lineage, []string{a.csr.KeyHash}) || r.Next.Serial != e.Serial {
				t.Errorf("record = %+v, want the new key's alone by the secret", r)
			}
			if again := a.enrolled(); again.Serial != e.Serial {
				t.Errorf("the same key gets %s, want %s again", again.Serial, e.Serial)
			}
			f.agent(name, secret).refused(wire.CodeIdentityTaken)
			a.confirm()
			if again := a.enrolled(); again.Serial != e.Serial {
				t.Errorf("the same key gets %s, want %s again", again.Serial, e.Serial)
			}
			if before != nil {
				lost := f.p.Revocations().Lost(wire.Identity(name), before.Lineage[0]) != nil
				if owned := before.State != provisioner.StateRetired; lost != owned {
					t.Errorf("the former key lost the name to the new one: %v, want %v", lost, owned)
				}
			}
		})
	}
	t.Run("revoked", func(t *testing.T) {
		t.Parallel()
		f := *shared
		f.t = t
		a := owner(t, &f, "bad.example.net")
		secret, _ := f.oneTime(a.name)
		order(t, f.Nodes.Revoke(f.Context(), wire.Identity(a.name), operator))
		f.agent(a.name, secret).refused(wire.CodeIdentityRevoked)
	})
	t.Run("after its end", func(t *testing.T) {
		t.Parallel()
		f := newPuppetFleet(t, testbed.Options{DefaultPolicy: true})
		secret, _ := f.oneTime("web1.example.net")
		f.Clock.Advance(operate.DefaultOneTimeTTL)
		if r := f.agent("web1.example.net", secret).refused(wire.CodeApprovalPending); r.Proven {
			t.Error("an expired secret proves something")
		}
		// It is for Puppet agents: another node's token is judged as a token.
		fresh, _ := f.oneTime("web1.example.net")
		n := f.Node("web1.example.net")
		n.Token = fresh
		if _, err := patiently(f.Fleet, f.p, n, provisioner.Source{}); provisioner.CodeOf(err) != wire.CodeTokenInvalid {
			t.Errorf("muster's own agent: %v", err)
		}
		n.Token = f.Token(nil)
		if _, err := patiently(f.Fleet, f.p, n, provisioner.Source{}); provisioner.CodeOf(err) != wire.CodeApprovalPending {
			t.Errorf("a token beside the secret: %v", err)
		}
	})
	t.Cleanup(shared.Check)
}

// TestAOneTimeSecretIsSpentOnce by twenty machines at once, through two provisioners.
func TestAOneTimeSecretIsSpentOnce(t *testing.T) {
	t.Parallel()
	f := newPuppetFleet(t, testbed.Options{})
	second := f.Provisioner(nil)
	secret, _ := f.oneTime("web1.example.net")
	f.Eventually("both provisioners know the grant", func() bool {
		g, _ := second.Config().Store.Logs().Grants.Get("web1_example_net")
		return g.Value != nil
	})
	var wait sync.WaitGroup
	var mu sync.Mutex
	got := map[wire.Code]int{}
	serials := map[string]bool{}
	for i := range 20 {
		a := f.agent("web1.example.net", secret)
		if i%2 == 1 {
			a.p = second
		}
		wait.Go(func() {
			e, err := a.ask()
			mu.Lock()
			defer mu.Unlock()
			if got[provisioner.CodeOf(err)]++; err == nil {
				serials[e.Serial] = true
			}
		})
	}
	wait.Wait()
	if got[""] != 1 || len(serials) != 1 || got[wire.CodeIdentityTaken]+got[wire.CodeBusy] != 19 {
		t.Errorf("answers = %v, want one certificate", got)
	}
	if n := f.Revisions("web1.example.net"); n != 1 {
		t.Errorf("%d revisions, want 1", n)
	}
	f.Check()
}

// TestASecretSurvivesADeathAtEveryStep: the agent asks the next process, and gets one certificate.
func TestASecretSurvivesADeathAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := newPuppetFleet(t, testbed.Options{DefaultPolicy: true})
	for step := range 8 {
		for _, after := range []bool{false, true} {
			name := fmt.Sprintf("web%d-%v.example.net", step, after)
			first, _ := f.oneTime(name)
			owner := f.agent(name, first)
			owner.enrolled()
			owner.confirm()
			secret, g := f.oneTime(name)
			a := f.agent(name, secret)
			_, err := dyingIn(t, f.Fleet, step, after, func(ctx context.Context, p *provisioner.Provisioner) error {
				_, err := a.askOnce(ctx, p)
				return err
			})
			e := a.enrolled()
			if r := f.Record(name); r.Grant != g.ID || r.Next == nil || r.Next.Serial != e.Serial ||
				r.Next.KeyHash != a.csr.KeyHash {
				t.Errorf("%s (%v): record = %+v", name, err, r)
			}
			f.agent(name, secret).refused(wire.CodeIdentityTaken)
			owner.refused(wire.CodeIdentityTaken)
			if f.p.Revocations().Lost(wire.Identity(name), owner.csr.KeyHash) == nil {
				t.Errorf("%s (%v): the former key has not lost the name", name, err)
			}
		}
	}
	f.Check()
}

// TestAKeptNameIsNotFree for a token, the allow-list or the key before.
func TestAKeptNameIsNotFree(t *testing.T) {
	t.Parallel()
	f := newPuppetFleet(t, testbed.Options{})
	const name = "web1.example.net"
	secret, _ := f.oneTime(name)
	before := f.agent(name, secret)
	before.enrolled()
	before.confirm()
	if err := f.Nodes.Clean(f.Context(), name, operator); err != nil {
		t.Fatal(err)
	}
	if r := f.Record(name); r.State != provisioner.StateRetired || !r.Awaiting {
		t.Fatalf("record = %+v, want it retired and kept", r)
	}
	if _, err := f.AllowList.Add(f.Context(), operate.AllowOrder{Pattern: "web*.example.net", WithoutToken: true},
		operator); err != nil {
		t.Fatal(err)
	}
	before.refused(wire.CodeIdentityTaken)
	f.agent(name, "").refused(wire.CodeIdentityTaken)
	f.agent(name, f.Token(nil)).refused(wire.CodeIdentityTaken)
	f.agent(name, f.Token(testbed.Limited(1, name))).refused(wire.CodeIdentityTaken)
	n := f.Node(name)
	if _, err := patiently(f.Fleet, f.p, n, provisioner.Source{}); provisioner.CodeOf(err) != wire.CodeIdentityTaken {
		t.Errorf("muster's own agent: %v", err)
	}
	// An approval of one key.
	a := f.agent(name, "")
	a.refused(wire.CodeIdentityTaken)
	if _, err := f.Keys.Approve(f.Context(), operate.Named(name, a.csr.KeyHash), 0, operator); err != nil {
		t.Fatal(err)
	}
	f.agent(name, "").refused(wire.CodeIdentityTaken)
	a.enrolled()
	if r := f.Record(name); r.Awaiting || r.Approval == nil || r.Decision.Reason != provisioner.ReasonNew {
		t.Errorf("record = %+v, want an approved new node", r)
	}
	a.confirm()
	// A grant to one key.
	if err := f.Nodes.Clean(f.Context(), name, operator); err != nil {
		t.Fatal(err)
	}
	a.refused(wire.CodeIdentityTaken) // its approval is spent
	b := f.agent(name, "")
	if _, err := f.Nodes.Grant(f.Context(), name, operate.GrantOrder{KeyHash: b.csr.KeyHash}, operator); err != nil {
		t.Fatal(err)
	}
	a.refused(wire.CodeIdentityTaken)
	b.enrolled()
	if r := f.Record(name); r.Decision.Reason != provisioner.ReasonGrant || r.Awaiting {
		t.Errorf("record = %+v, want it by the grant", r)
	}
	b.confirm()
	// An operator frees it.
	for _, order := range []func() error{
		func() error { return f.Nodes.Clean(f.Context(), name, operator) },
		func() error { return f.Nodes.Retire(f.Context(), name, operator) },
	} {
		if err := order(); err != nil {
			t.Fatal(err)
		}
	}
	f.agent(name, "").enrolled()
	f.Check()
}

// TestASecretThatWasReplacedMeanwhileAdmitsNoNode replaces it between the decision and the record.
func TestASecretThatWasReplacedMeanwhileAdmitsNoNode(t *testing.T) {
	t.Parallel()
	store := &whenRead{name: "www.example.net"}
	f := newPuppetFleet(t, testbed.Options{Policy: `package muster.enroll

default allow := false

allow if input.node.reason == "one_time_token"

approval if not allow

certificate := {"dns_names": ["www.example.net"]}

configuration := {"a": "b"}
`}, func(s provisioner.Store) provisioner.Store { store.Store = s; return store })
	secret, _ := f.oneTime("web1.example.net")
	a := f.agent("web1.example.net", secret)
	var next string
	store.meanwhile = func() { next, _ = f.oneTime("web1.example.net") }
	a.refused(wire.CodeApprovalPending)
	if f.Record(a.name) != nil || next == "" {
		t.Fatalf("record = %+v after the secret was replaced by one of %d characters", f.Record(a.name), len(next))
	}
	a.token = next
	a.enrolled()
}

// whenRead is a store with one call after the record of a name was read, which may be a name of a certificate.
type whenRead struct {
	provisioner.Store
	name      wire.Identity
	meanwhile func()
}

func (s *whenRead) Record(ctx context.Context, id wire.Identity) (*provisioner.Record, trust.Revision, error) {
	r, at, err := s.Store.Record(ctx, id)
	if f := s.meanwhile; f != nil && id == s.name {
		s.meanwhile = nil
		f()
	}
	return r, at, err
}

// TestARetirementThatIsNotAppliedYetHitsNoNextOwner: the process that wrote it has died, and the running ones are slow.
func TestARetirementThatIsNotAppliedYetHitsNoNextOwner(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	f := newPuppetFleet(t, testbed.Options{DefaultPolicy: true}, func(s provisioner.Store) provisioner.Store {
		return &slowToRetire{Store: s, release: release}
	})
	const name = "web1.example.net"
	secret, _ := f.oneTime(name)
	before := f.agent(name, secret)
	before.enrolled()
	before.confirm()
	next, _ := f.oneTime(name)
	entry := provisioner.EntryAbout(trust.RetiredNode, f.Record(name), f.Clock.Now(), operator)
	entry.Awaiting = true
	_, at := f.p.Revocations().About(name)
	f.Faults.Before(func(context.Context, *provisioner.Record) { <-release })
	if err := f.p.Revocations().Put(f.Context(), entry, at); err != nil {
		t.Fatal(err)
	}
	a := f.agent(name, next)
	e, err := steadily(f.Fleet, func() (*wire.Enrolled, error) {
		return a.askOnce(context.WithValue(f.Context(), foreground{}, ofANode), f.p)
	})
	close(release)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.p.Enforce(f.Context(), name); err != nil {
		t.Fatal(err)
	}
	if r := f.Record(name); r.State != provisioner.StateEnrolled || r.Next.Serial != e.Serial || r.Revoked != entry.ID {
		t.Errorf("record = %+v, want the next owner's", r)
	}
	f.Check()
}

// slowToRetire is a store in which only requests retire a node at once.
type slowToRetire struct {
	provisioner.Store
	release <-chan struct{}
}

func (s *slowToRetire) Put(ctx context.Context, r *provisioner.Record, after trust.Revision) (trust.Revision, error) {
	if r.State == provisioner.StateRetired && ctx.Value(foreground{}) == nil {
		<-s.release
	}
	return s.Store.Put(ctx, r, after)
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
			e, err := f.p.RenewOver(f.Context(), &provisioner.Edge{Key: key, Session: true, Keep: keep},
				&wire.RenewRequest{ID: wire.NewID(), Identity: thief.name}, a.session())
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
	inspector := fleet.NewInspector(f.Daemon().Store(), fleet.NewIndex(f.Daemon().Store(), slog.New(slog.DiscardHandler), nil))
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
