package bench

import (
	"crypto"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/provisioner/ca"
)

// TestCheck has the bench look at certificates that are not what a node must
// get: what it calls a good one must be.
func TestCheck(t *testing.T) {
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
		certificate, ca, pin, want string
	}{
		"good":               {good, ours.RootsPEM(), ours.Fingerprint(), ""},
		"good, without pin":  {good, ours.RootsPEM(), "", ""},
		"no PEM":             {"certificate", ours.RootsPEM(), ours.Fingerprint(), "no PEM"},
		"another's key":      {issue(t, ours, other.Key.Public(), s.Identity), ours.RootsPEM(), ours.Fingerprint(), "another key"},
		"another name":       {issue(t, ours, s.Key.Public(), "n2.run.bench.muster"), ours.RootsPEM(), ours.Fingerprint(), `for ["n2.run.bench.muster"]`},
		"another authority":  {issue(t, theirs, s.Key.Public(), s.Identity), theirs.RootsPEM(), ours.Fingerprint(), "unknown authority"},
		"another root":       {good, theirs.RootsPEM(), "", "unknown authority"},
		"another's chain":    {leafOf(good) + chainOf(issue(t, theirs, s.Key.Public(), s.Identity)), theirs.RootsPEM(), "", "verif"},
		"a leaf and no more": {leafOf(good), ours.RootsPEM(), ours.Fingerprint(), "no issuing certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known := &issuers{pin: tt.pin, known: map[string]*x509.Certificate{}}
			n := &node{identity: s.Identity, key: s.Key, certificate: tt.certificate, ca: tt.ca}
			for range 2 { // the second time by what is known of the issuer
				err := known.check(n)
				if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
			}
		})
	}
}

const pemEnd = "-----END CERTIFICATE-----\n"

func leafOf(chain string) string  { return chain[:strings.Index(chain, pemEnd)+len(pemEnd)] }
func chainOf(chain string) string { return strings.TrimPrefix(chain, leafOf(chain)) }

func newAuthority(t *testing.T) *ca.Authority {
	t.Helper()
	g, err := ca.Generate(ca.GenerateConfig{TrustDomain: "bench.muster", Name: "bench.muster", Now: time.Now})
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
