package ca_test

import (
	"crypto"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

// roll rolls the testing authority over at noon.
func roll(t testing.TB) *ca.Rolled {
	t.Helper()
	g, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	return rollFrom(t, g, noon)
}

func rollFrom(t testing.TB, g *ca.Generated, now time.Time) *ca.Rolled {
	t.Helper()
	r, err := ca.Roll(g.Root, g.RootKey, now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// after returns the configuration of an authority with these previous ones, newest first.
func after(now time.Time, r *ca.Rolled, before ...ca.Previous) ca.Config {
	return ca.Config{
		Root: r.Root, Issuing: r.Issuing, Key: r.IssuingKey, TrustDomain: trustDomain, Previous: before,
		Now: func() time.Time { return now },
	}
}

func previous(g *ca.Generated, r *ca.Rolled) ca.Previous {
	return ca.Previous{Root: g.Root, Issuing: g.Issuing, Cross: r.Cross}
}

func withKey(g *ca.Generated, r *ca.Rolled, key crypto.Signer) ca.Previous {
	p := previous(g, r)
	p.Key = key
	return p
}

func newAuthority(t testing.TB, cfg ca.Config) *ca.Authority {
	t.Helper()
	a, err := ca.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func nodeRequest(t testing.TB, name string) ca.Request {
	t.Helper()
	return ca.Request{Role: wire.RoleNode, Name: name, PublicKey: newEC(t, elliptic.P256()).Public()}
}

// chainVerifies reports whether a verifier that trusts only root accepts the chain.
func chainVerifies(t testing.TB, root *x509.Certificate, chain string, at time.Time) error {
	t.Helper()
	certs, err := ca.ParseCertificates([]byte(chain))
	if err != nil {
		t.Fatal(err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(root)
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	_, err = certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}})
	return err
}

// TestRoll rolls over twice. Any of the three roots verifies new certificates, also with openssl, older
// certificates stay valid, and a fourth root without cross certificate verifies nothing.
func TestRoll(t *testing.T) {
	t.Parallel()
	now := time.Now() // openssl has a clock of its own
	first, err := ca.Generate("Fleet", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	second := rollFrom(t, first, now)
	third := rollFrom(t, second.Generated, now)
	a := newAuthority(t, after(now, third, previous(second.Generated, third), previous(first, second)))

	for i, want := range []string{"Fleet root CA", "Fleet root CA 2", "Fleet root CA 3"} {
		if got := []*x509.Certificate{first.Root, second.Root, third.Root}[i].Subject.CommonName; got != want {
			t.Errorf("root is called %q, want %q", got, want)
		}
	}
	if got := third.Issuing.Subject.CommonName; got != "Fleet issuing CA 3" {
		t.Errorf("issuing CA is called %q", got)
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, r := range requests() {
		r.PublicKey = newEC(t, elliptic.P256()).Public()
		c, _ := issue(t, a, r)
		if got := a.Chain(c.DER); got != c.Chain {
			t.Errorf("%s: Chain of what was issued is another", name)
		}
		for root, g := range map[string]*ca.Generated{"first": first, "second": second.Generated,
			"third": third.Generated} {
			if err := chainVerifies(t, g.Root, c.Chain, now); err != nil {
				t.Errorf("%s: verifier with the %s root: %v", name, root, err)
			}
			chain := file(name+".pem", c.Chain)
			if out, ok := openssl(t, "verify", "-x509_strict", "-CAfile", file(root+".pem", g.RootPEM), "-untrusted",
				chain, chain); !ok {
				t.Errorf("%s: openssl that knows the %s root:\n%s", name, root, out)
			}
		}
		stranger, err := ca.Generate("Fleet", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if chainVerifies(t, stranger.Root, c.Chain, now) == nil {
			t.Errorf("%s: a stranger's root verifies it", name)
		}
	}
	for i, c := range slices.Concat(second.Cross, third.Cross) {
		by := []*ca.Generated{first, second.Generated, second.Generated, third.Generated}[i]
		if out, ok := openssl(t, "verify", "-x509_strict", "-CAfile", file("by.pem", by.RootPEM),
			file("cross.pem", pemOf(c))); !ok {
			t.Errorf("cross certificate %d: openssl:\n%s", i, out)
		}
	}
	for name, g := range map[string]*ca.Generated{"first": first, "second": second.Generated} {
		old := newAuthority(t, ca.Config{Root: g.Root, Issuing: g.Issuing, Key: g.IssuingKey, TrustDomain: trustDomain})
		c, leaf := issue(t, old, nodeRequest(t, "web1.example.net"))
		if role, id, err := a.Verify(leaf, nil, time.Time{}); err != nil || role != wire.RoleNode ||
			id != "web1.example.net" {
			t.Errorf("a node of the %s authority: Verify = %s, %s, %v", name, role, id, err)
		}
		if got := a.Chain(c.DER); got != c.Chain {
			t.Errorf("a node of the %s authority is given another chain than it was issued with:\n%s", name, got)
		}
	}
}

func TestPreviousAuthorityIsTrusted(t *testing.T) {
	t.Parallel()
	old, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	rolled := roll(t)
	a := newAuthority(t, after(noon, rolled, previous(old, rolled)))
	before := authority(t, nil)
	issued, leaf := issue(t, before, nodeRequest(t, "web1.example.net"))
	if got, want := a.IssuerOf(issued.DER), hex.EncodeToString(old.Issuing.SubjectKeyId); got != want {
		t.Errorf("IssuerOf = %q, want %q", got, want)
	}
	if got := a.IssuerOf([]byte("no certificate")); got != "" {
		t.Errorf("IssuerOf nothing = %q", got)
	}
	if got := a.PreviousFingerprints(); !slices.Equal(got, []string{old.Fingerprint}) {
		t.Errorf("Former = %q, want %q", got, old.Fingerprint)
	}
	if _, _, err := a.Verify(leaf, []*x509.Certificate{old.Issuing}, time.Time{}); err != nil {
		t.Errorf("Verify of a node of it = %v", err)
	}
	if !chainVerifiesWith(a.Roots(), issued.Chain) {
		t.Error("the pool does not verify a node of it")
	}
	want := []*x509.Certificate{rolled.Root, old.Root}
	if roots := parse(t, a.RootsPEM()); !slices.EqualFunc(roots, want, (*x509.Certificate).Equal) {
		t.Errorf("RootsPEM has %d certificates, want %d, the present one first", len(roots), len(want))
	}
	want = append(want, rolled.Cross...)
	if trust := parse(t, a.TrustPEM()); !slices.EqualFunc(trust, want, (*x509.Certificate).Equal) {
		t.Errorf("TrustPEM has %d certificates, want %d", len(trust), len(want))
	}
	// A node that knows only one of the roots can verify us.
	now, _ := issue(t, a, nodeRequest(t, "web2.example.net"))
	for _, root := range want[:2] {
		if err := chainVerifies(t, root, now.Chain, noon); err != nil {
			t.Errorf("a node that knows %s only: %v", root.Subject, err)
		}
	}
}

func TestPreviousRefuses(t *testing.T) {
	t.Parallel()
	old, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	rolled, other := roll(t), roll(t)
	tests := map[string]struct {
		previous []ca.Previous
		want     string // "" means accepted
	}{
		"rolled":                        {[]ca.Previous{previous(old, rolled)}, ""},
		"back again":                    {nil, ""}, // see below
		"new with old alone":            {[]ca.Previous{{Root: old.Root, Issuing: old.Issuing, Cross: rolled.Cross[:1]}}, ""},
		"old with new alone":            {[]ca.Previous{{Root: old.Root, Issuing: old.Issuing, Cross: rolled.Cross[1:]}}, "no cross certificate"},
		"no cross certificate":          {[]ca.Previous{{Root: old.Root, Issuing: old.Issuing}}, "no cross certificate"},
		"another roll-over's":           {[]ca.Previous{previous(old, other)}, "no cross certificate"},
		"the root as cross certificate": {[]ca.Previous{{Root: old.Root, Issuing: old.Issuing, Cross: []*x509.Certificate{rolled.Root, old.Root}}}, "no cross certificate"},
		"no issuing certificate":        {[]ca.Previous{{Root: old.Root, Cross: rolled.Cross}}, "no issuing"},
		"an issuing one of another":     {[]ca.Previous{{Root: old.Root, Issuing: rolled.Issuing, Cross: rolled.Cross}}, "issuing certificate is not signed by"},
		"the present one":               {[]ca.Previous{{Root: rolled.Root, Issuing: rolled.Issuing}}, "present one's key"},
		"a root that is none":           {[]ca.Previous{{Root: old.Issuing, Issuing: old.Issuing, Cross: rolled.Cross}}, "is the root itself"},
		"three of them":                 {[]ca.Previous{previous(old, rolled), previous(old, rolled), previous(old, rolled)}, "limit 2"},
		"its key":                       {[]ca.Previous{withKey(old, rolled, old.IssuingKey)}, ""},
		"another's key":                 {[]ca.Previous{withKey(old, rolled, rolled.IssuingKey)}, "key does not belong"},
		"its root's key":                {[]ca.Previous{withKey(old, rolled, old.RootKey)}, "key does not belong"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := after(noon, rolled, tt.previous...)
			if name == "back again" {
				// The old authority issues again, and the new one is previous.
				cfg = config(t)
				cfg.Previous = []ca.Previous{{Root: rolled.Root, Issuing: rolled.Issuing, Cross: rolled.Cross}}
			}
			a, err := ca.New(cfg)
			if (err == nil) != (tt.want == "") || (a == nil) != (err != nil) || err != nil &&
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("New = %v, %v, want an error about %q", a, err, tt.want)
			}
		})
	}
}

func TestRollOfAnExpiredRoot(t *testing.T) {
	t.Parallel()
	old, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	late := old.Root.NotAfter.AddDate(1, 0, 0)
	rolled := rollFrom(t, old, late)
	a := newAuthority(t, after(late, rolled, previous(old, rolled)))
	if err := a.Usable(); err != nil {
		t.Errorf("Usable = %v", err)
	}
	if err := wire.CheckCross(rolled.Cross[0], old.Root, rolled.Root, late); !errors.Is(err, wire.ErrNotVouched) {
		t.Errorf("a node takes the word of an expired root: %v", err)
	}
}

// Name constraints carry over; a path length without room is refused.
func TestRollConstraints(t *testing.T) {
	t.Parallel()
	key := newEC(t, elliptic.P256())
	template := caTemplate("Constrained")
	template.PermittedDNSDomains, template.PermittedDNSDomainsCritical = []string{"example.net"}, true
	root := sign(t, template, template, key.Public(), key)
	r, err := ca.Roll(root, key, noon)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]*x509.Certificate{"root": r.Root, "new with old": r.Cross[0]} {
		if !slices.Equal(c.PermittedDNSDomains, []string{"example.net"}) || !c.PermittedDNSDomainsCritical {
			t.Errorf("%s permits %q", what, c.PermittedDNSDomains)
		}
	}
	template.MaxPathLen = 1
	narrow := sign(t, template, template, key.Public(), key)
	if r, err := ca.Roll(narrow, key, noon); r != nil || err == nil ||
		!strings.Contains(err.Error(), "path length") {
		t.Errorf("Roll of a root of path length 1 = %v, %v", r, err)
	}
	if r, err := ca.Roll(root, newEC(t, elliptic.P256()), time.Now()); r != nil || err == nil ||
		!strings.Contains(err.Error(), "the key is not the root certificate's") {
		t.Errorf("Roll with another key = %v, %v", r, err)
	}
}

// opaque is a key as in an HSM: it only signs.
type opaque struct{ inside crypto.Signer }

func (o opaque) Public() crypto.PublicKey { return o.inside.Public() }
func (o opaque) Sign(r io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return o.inside.Sign(r, digest, opts)
}

func TestAnyCryptoSignerWorks(t *testing.T) {
	t.Parallel()
	g, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	a := authority(t, func(c *ca.Config) { c.Key = opaque{c.Key} })
	for name, r := range requests() {
		r.PublicKey = newEC(t, elliptic.P256()).Public()
		c, _ := issue(t, a, r)
		if err := chainVerifies(t, g.Root, c.Chain, noon); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ca.Roll(g.Root, opaque{g.RootKey}, noon); err != nil {
		t.Errorf("Roll: %v", err)
	}
}

func chainVerifiesWith(roots *x509.CertPool, chain string) bool {
	certs, err := ca.ParseCertificates([]byte(chain))
	if err != nil {
		return false
	}
	between := x509.NewCertPool()
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	_, err = certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: noon,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

func parse(t testing.TB, text string) []*x509.Certificate {
	t.Helper()
	certs, err := ca.ParseCertificates([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

func pemOf(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}
