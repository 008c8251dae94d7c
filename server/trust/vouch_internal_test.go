package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"slices"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

const rollDomain = "fleet.example.net"

// rolledFleet is an authority that was replaced twice, and a foreign one with the same names.
type rolledFleet struct {
	first, evil   *ca.Generated
	second, third *ca.Rolled
}

func newRolledFleet(t *testing.T) *rolledFleet {
	t.Helper()
	f := &rolledFleet{}
	for _, g := range []**ca.Generated{&f.first, &f.evil} {
		var err error
		if *g, err = ca.Generate("fleet", time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	f.second = f.roll(t, f.first)
	f.third = f.roll(t, f.second.Generated)
	return f
}

func (f *rolledFleet) roll(t *testing.T, from *ca.Generated) *ca.Rolled {
	t.Helper()
	r, err := ca.Roll(from.Root, from.RootKey, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// forge returns a certificate for root's key and name, issued in by's name with any key.
func forge(t *testing.T, root, by *x509.Certificate, key any) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(9), RawSubject: root.RawSubject, NotBefore: root.NotBefore, NotAfter: root.NotAfter,
		ExtraExtensions: root.Extensions,
	}, &x509.Certificate{Subject: by.Subject, RawSubject: by.RawSubject, SubjectKeyId: by.SubjectKeyId},
		root.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each root in a reply has to be pinned or have a cross certificate by the pinned one.
func TestCheckPin(t *testing.T) {
	t.Parallel()
	f := newRolledFleet(t)
	one, two, three, evil := f.first, f.second, f.third, f.evil
	type certs = []*x509.Certificate
	cross := slices.Concat(two.Cross, three.Cross)
	self := func(g *ca.Generated) *x509.Certificate { // a root with the issuing key
		template := &x509.Certificate{
			SerialNumber: big.NewInt(9),
			Subject:      pkix.Name{CommonName: g.Issuing.Subject.CommonName},
			SubjectKeyId: g.Issuing.SubjectKeyId,
			NotBefore:    g.Issuing.NotBefore, NotAfter: g.Issuing.NotAfter, IsCA: true, BasicConstraintsValid: true,
			KeyUsage: g.Issuing.KeyUsage, MaxPathLenZero: true,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, g.Issuing.PublicKey, g.IssuingKey)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	tests := map[string]struct {
		pin    *x509.Certificate
		roots  certs
		others certs
		ok     bool
	}{
		"the pinned root alone":                 {one.Root, certs{one.Root}, nil, true},
		"pins the old root, both are trusted":   {one.Root, certs{two.Root, one.Root}, two.Cross, true},
		"pins the new root, both are trusted":   {two.Root, certs{two.Root, one.Root}, two.Cross, true},
		"pins the old root, which only vouches": {one.Root, certs{two.Root}, certs{two.Cross[0], one.Root}, true},
		"pins the first of three":               {one.Root, certs{three.Root, two.Root, one.Root}, cross, true},
		"pins the last of three":                {three.Root, certs{three.Root, two.Root, one.Root}, cross, true},
		"pins the first, one in between": {one.Root, certs{three.Root},
			certs{three.Cross[0], two.Root, two.Cross[0], one.Root}, true},
		"among certificates of no use": {one.Root, certs{two.Root, one.Root},
			slices.Concat(certs{evil.Root, evil.Issuing, one.Issuing}, two.Cross), true},

		"no word of the pinned root":   {one.Root, certs{two.Root, one.Root}, nil, false},
		"the new root's word alone":    {one.Root, certs{two.Root, one.Root}, two.Cross[1:], false},
		"the pinned root is not there": {one.Root, certs{two.Root}, two.Cross, false},
		"a word is missing in between": {one.Root, certs{three.Root, one.Root},
			certs{three.Cross[0], two.Root}, false},
		"another root alone":                 {one.Root, certs{evil.Root}, two.Cross, false},
		"another root beside the pinned one": {one.Root, certs{one.Root, evil.Root}, nil, false},
		"another root beside those that are rolled": {one.Root, certs{two.Root, one.Root, evil.Root}, two.Cross,
			false},
		"another root, with a word of its own": {one.Root, certs{one.Root, evil.Root},
			certs{forge(t, evil.Root, one.Root, evil.RootKey)}, false},
		"another root, with a word of the issuing key": {one.Root, certs{one.Root, evil.Root},
			certs{one.Issuing, forge(t, evil.Root, one.Issuing, one.IssuingKey)}, false},
		"likewise, in the root's name": {one.Root, certs{one.Root, evil.Root},
			certs{one.Issuing, forge(t, evil.Root, one.Root, one.IssuingKey)}, false},
		"the issuing key as a root": {one.Root, certs{one.Root, self(one)}, certs{one.Issuing}, false},
		"the issuing key as a root, and its word": {one.Root, certs{one.Root, evil.Root},
			certs{one.Issuing, self(one), forge(t, evil.Root, one.Issuing, one.IssuingKey)}, false},
		"the evil root's word for the pinned one": {one.Root, certs{one.Root, evil.Root},
			certs{forge(t, one.Root, evil.Root, evil.RootKey)}, false},
		"a word for the new root, another root": {one.Root, certs{evil.Root, one.Root}, two.Cross, false},
		"the pinned root's issuing certificate": {one.Issuing, certs{evil.Root, one.Root}, certs{one.Issuing}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkPin(tt.pin, tt.roots, tt.others, time.Now())
			if (err == nil) != tt.ok {
				t.Errorf("checkPin = %v, want success: %t", err, tt.ok)
			}
		})
	}
	for name, at := range map[string]time.Time{"before": two.Root.NotBefore.Add(-time.Second),
		"after": one.Root.NotAfter.Add(time.Second)} {
		if checkPin(one.Root, certs{two.Root, one.Root}, two.Cross, at) == nil {
			t.Errorf("a word is taken %s its time", name)
		}
	}
}

// checkPin checks roots by a pin. The node's own certificate does not matter.
func checkPin(pin *x509.Certificate, roots, others []*x509.Certificate, at time.Time) error {
	node := &x509.Certificate{}
	return Authority{Pin: fingerprint(pin)}.Check(&Credentials{Chain: []*x509.Certificate{node}, Roots: roots}, others,
		func(time.Time) time.Time { return at })
}

// Nodes that know only the fingerprint of one root check brokers of the newest authority, and of a foreign one with
// the same names.
func TestPinnedBrokers(t *testing.T) {
	t.Parallel()
	f := newRolledFleet(t)
	now := func(time.Time) time.Time { return time.Now() }
	broker := func(cfg ca.Config) []*x509.Certificate {
		cfg.TrustDomain = rollDomain
		a, err := ca.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c, err := a.Issue(ca.Request{
			Role:        wire.RoleBroker,
			Name:        "broker1",
			PublicKey:   key.Public(),
			DNSNames:    []string{"broker.example.net"},
			IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)},
		})
		if err != nil {
			t.Fatal(err)
		}
		chain, err := ca.ParseCertificates([]byte(c.Chain + a.RootsPEM()))
		if err != nil {
			t.Fatal(err)
		}
		return chain
	}
	genuine := broker(ca.Config{Root: f.third.Root, Issuing: f.third.Issuing, Key: f.third.IssuingKey,
		Previous: []ca.Previous{
			{Root: f.second.Root, Issuing: f.second.Issuing, Cross: f.third.Cross},
			{Root: f.first.Root, Issuing: f.first.Issuing, Cross: f.second.Cross},
		}})
	for name, root := range map[string]*x509.Certificate{"first": f.first.Root, "second": f.second.Root,
		"third": f.third.Root} {
		if err := verifyPinned(genuine, fingerprint(root), "broker.example.net", now); err != nil {
			t.Errorf("by the %s root: %v", name, err)
		}
	}
	if verifyPinned(genuine, fingerprint(f.evil.Root), "broker.example.net", now) == nil {
		t.Error("a root that does not come along is accepted")
	}
	evil := append(broker(ca.Config{Root: f.evil.Root, Issuing: f.evil.Issuing, Key: f.evil.IssuingKey}),
		slices.Concat(f.second.Cross, f.third.Cross,
			[]*x509.Certificate{f.first.Root, f.third.Root, forge(t, f.evil.Root, f.first.Root, f.evil.RootKey)})...)
	if verifyPinned(evil, fingerprint(f.first.Root), "broker.example.net", now) == nil {
		t.Error("a broker of another authority is accepted")
	}
}

// TestOnlyRootsAreKept: cross certificates are not stored as roots.
func TestOnlyRootsAreKept(t *testing.T) {
	t.Parallel()
	f := newRolledFleet(t)
	certs := []*x509.Certificate{f.second.Root, f.first.Root, f.second.Cross[0], f.second.Cross[1]}
	roots, cross, err := SplitAuthority(EncodeCertificates(certs))
	if err != nil || !slices.EqualFunc(roots, certs[:2], (*x509.Certificate).Equal) ||
		!slices.EqualFunc(cross, certs[2:], (*x509.Certificate).Equal) {
		t.Errorf("SplitAuthority = %d roots, %d others, %v", len(roots), len(cross), err)
	}
	if _, _, err := SplitAuthority(EncodeCertificates(certs[2:])); err == nil {
		t.Error("an authority without a root is accepted")
	}
}
