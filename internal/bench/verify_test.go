package bench

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/provisioner/choria"
	"muster/provisioner/httpapi"
)

// The bench must not count wrong certificates as good.
func TestWrongCertificatesAreFailures(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	s, err := simnode.New("n1.run.bench.muster", "")
	if err != nil {
		t.Fatal(err)
	}
	other, err := simnode.New("n1.run.bench.muster", "")
	if err != nil {
		t.Fatal(err)
	}
	good := issue(t, ours, s.Key.Public(), s.Identity)
	for name, tt := range map[string]struct {
		certificate string
		root        *ca.Authority
		want        string
	}{
		"good":               {good, ours, ""},
		"no PEM":             {"certificate", ours, "more than certificates in PEM"},
		"another node's key": {issue(t, ours, other.Key.Public(), s.Identity), ours, "another key"},
		"another name": {issue(t, ours, s.Key.Public(), "n2.run.bench.muster"), ours,
			`for ["n2.run.bench.muster"]`},
		"another authority":   {issue(t, theirs, s.Key.Public(), s.Identity), ours, "unknown authority"},
		"another root":        {good, theirs, "unknown authority"},
		"without the issuing": {good[:strings.Index(good, pemEnd)+len(pemEnd)], ours, "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &wire.Enrolled{
				Certificate: tt.certificate,
				Files:       wire.Files{Configuration: map[string]string{"größe": "a\tb \"quoted\" \u2028<&>"}},
			}
			e.Digest = wire.Digest(e.Certificate, e.Files)
			err := (&fleet{root: rootOf(t, tt.root)}).checkAgent(&node{Node: s, offer: e})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	n := &node{Node: s, offer: &wire.Enrolled{Certificate: good, Digest: "another"}}
	if err := (&fleet{root: rootOf(t, ours)}).checkAgent(n); err == nil || !strings.Contains(err.Error(), "digest") {
		t.Errorf("a wrong digest: %v", err)
	}
}

// Nor must it count what a Choria server could not use.
func TestUnusableChoriaConfigurationsAreFailures(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	keys := make([]*rsa.PrivateKey, 2)
	for i := range keys {
		var err error
		if keys[i], err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			t.Fatal(err)
		}
	}
	f := &fleet{cfg: &Config{Choria: choria.V1}, run: "run", root: rootOf(t, ours), keys: keys}
	n, err := f.newChoriaNode(0)
	if err != nil {
		t.Fatal(err)
	}
	good := issue(t, ours, keys[0].Public(), n.Identity)
	for name, tt := range map[string]struct {
		certificate, ca, provision string
		want                       string
	}{
		"good":                  {good, ours.RootsPEM(), "false", ""},
		"another server's key":  {issue(t, ours, keys[1].Public(), n.Identity), ours.RootsPEM(), "false", "another key"},
		"another name":          {issue(t, ours, keys[0].Public(), "n2.run.bench.muster"), ours.RootsPEM(), "false", "n0.run"},
		"another authority":     {issue(t, theirs, keys[0].Public(), n.Identity), ours.RootsPEM(), "false", "unknown authority"},
		"another root":          {good, theirs.RootsPEM(), "false", "lacks the root"},
		"no certificate":        {"", ours.RootsPEM(), "false", "no certificate"},
		"provisioning stays on": {good, ours.RootsPEM(), "true", "configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := `{"identity":"` + n.Identity + `","plugin.choria.server.provision":"` + tt.provision + `"}`
			body, err := json.Marshal(map[string]any{"action": "configure", "data": map[string]string{
				"config": config, "certificate": tt.certificate, "ca": tt.ca, "ssldir": choriaSSLDir,
			}})
			if err != nil {
				t.Fatal(err)
			}
			n := &node{Node: n.Node}
			if _, event, err := f.answer(n, body); err != nil || event != "provisioned" {
				t.Fatalf("event %q, %v, want provisioned", event, err)
			}
			err = f.checkConfigured(n)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// Nor must it count a certificate that a Puppet agent could not use.
func TestUnusablePuppetCertificatesAreFailures(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	agent, err := simnode.New("n1.run.bench.muster", "")
	if err != nil {
		t.Fatal(err)
	}
	other, err := simnode.New("n1.run.bench.muster", "")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(rootOf(t, ours))
	f := &fleet{puppet: &puppetAuthority{
		credential: &httpapi.Credential{Roots: roots},
		issuing:    x509.NewCertPool(),
	}}
	for name, tt := range map[string]struct{ certificate, want string }{
		"good":                {issue(t, ours, agent.Key.Public(), agent.Identity), ""},
		"another agent's key": {issue(t, ours, other.Key.Public(), agent.Identity), "another key"},
		"another name":        {issue(t, ours, agent.Key.Public(), "n2.run.bench.muster"), "n1.run"},
		"another authority":   {issue(t, theirs, agent.Key.Public(), agent.Identity), "unknown authority"},
		"no certificate":      {"Could not find certificate", "more than certificates in PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := f.certificate(&node{Node: agent, offer: &wire.Enrolled{Certificate: tt.certificate}})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// Nor must it count a certificate that a service could not use.
func TestUnusableServiceCertificatesAreFailures(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	n, err := newService(&node{Node: &simnode.Node{Identity: "n1.run.bench.muster"}}, "s1")
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{root: rootOf(t, ours)}
	for name, tt := range map[string]struct {
		by        *ca.Authority
		key       crypto.PublicKey
		dns, want string
	}{
		"good":              {ours, n.Key.Public(), "s1.n1.run.bench.muster", ""},
		"another key":       {ours, rootOf(t, theirs).PublicKey, "s1.n1.run.bench.muster", "another key"},
		"another name":      {ours, n.Key.Public(), "s2.n1.run.bench.muster", "not s1.n1.run"},
		"another authority": {theirs, n.Key.Public(), "s1.n1.run.bench.muster", "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := *n
			c, err := tt.by.Issue(ca.Request{Role: wire.RoleNode, Name: tt.dns, PublicKey: tt.key, ServerAuth: true})
			if err != nil {
				t.Fatal(err)
			}
			own.offer = &wire.Enrolled{Certificate: c.Chain}
			err = f.checkService(&own)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

const pemEnd = "-----END CERTIFICATE-----\n"

func rootOf(t *testing.T, a *ca.Authority) *x509.Certificate {
	t.Helper()
	roots, err := ca.ParseCertificates([]byte(a.RootsPEM()))
	if err != nil {
		t.Fatal(err)
	}
	return roots[0]
}

func newAuthority(t *testing.T) *ca.Authority {
	t.Helper()
	g, err := ca.Generate("bench.muster", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a, err := ca.New(ca.Config{Root: g.Root, Issuing: g.Issuing, Key: g.IssuingKey, TrustDomain: "bench.muster"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *ca.Authority, key crypto.PublicKey, name string) string {
	t.Helper()
	c, err := a.Issue(ca.Request{Role: wire.RoleNode, Name: name, PublicKey: key})
	if err != nil {
		t.Fatal(err)
	}
	return c.Chain
}
