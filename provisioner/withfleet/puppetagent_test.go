package provisioner_test

import (
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
	"slices"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/operate"
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
	arc := slices.Index(ca.PuppetExtensions, name)
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
	return p.Enroll(ctx, &wire.EnrollRequest{
		ID: wire.NewID(), Identity: a.name, Token: wire.Secret(a.token), CSR: a.der, Agent: "puppet 8.11.0",
	}, provisioner.Source{
		Address:  puppetSource,
		Protocol: provisioner.ProtocolPuppet,
		Edge:     &provisioner.Edge{Key: a.csr, TTL: aYear},
	})
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
		source := a.session()
		source.Edge = &provisioner.Edge{Key: key, Session: true, Keep: keep, TTL: aYear}
		return a.p.Renew(a.f.Context(),
			&wire.RenewRequest{ID: wire.NewID(), Identity: a.name, Facts: json.RawMessage(facts)}, source)
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
