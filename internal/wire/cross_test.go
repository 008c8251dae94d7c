package wire_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"testing"
	"time"

	"muster/internal/wire"
)

// A signer is a key.
type signer struct {
	key *ecdsa.PrivateKey
}

var crossTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newSigner(t *testing.T) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{key: key}
}

// about returns a CA certificate for a name and the key of s, signed by parent.
func (s *signer) about(t *testing.T, name string, parent *signer, parentName string,
	edit func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: name}, MaxPathLen: -1,
		NotBefore: crossTime.Add(-time.Hour), NotAfter: crossTime.AddDate(5, 0, 0),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true,
		SubjectKeyId: s.key.X.Bytes(),
	}
	if edit != nil {
		edit(template)
	}
	issuer := &x509.Certificate{Subject: pkix.Name{CommonName: parentName}, SubjectKeyId: parent.key.X.Bytes()}
	if parent == s && name == parentName {
		issuer = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, s.key.Public(), parent.key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCheckCross tries all that an attacker without the old root's key can present, above all with the issuing key,
// which is on the network.
func TestCheckCross(t *testing.T) {
	t.Parallel()
	oldRoot, newRoot, issuing, mallory, node := newSigner(t), newSigner(t), newSigner(t), newSigner(t), newSigner(t)
	pathLen := func(n int) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = n, n == 0 }
	}
	leaf := func(c *x509.Certificate) { c.IsCA, c.KeyUsage, c.MaxPathLen = false, x509.KeyUsageDigitalSignature, 0 }
	ending := func(at time.Time) func(*x509.Certificate) { return func(c *x509.Certificate) { c.NotAfter = at } }
	beginning := func(at time.Time) func(*x509.Certificate) { return func(c *x509.Certificate) { c.NotBefore = at } }
	permitting := func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"example.net"} }

	by := oldRoot.about(t, "old", oldRoot, "old", nil)
	root := newRoot.about(t, "new", newRoot, "new", nil)
	cross := newRoot.about(t, "new", oldRoot, "old", nil)
	issuingCert := issuing.about(t, "issuing", oldRoot, "old", pathLen(0))
	nodeCert := node.about(t, "node", issuing, "issuing", leaf)
	evil := mallory.about(t, "new", mallory, "new", nil)

	type triple struct{ cross, by, root *x509.Certificate }
	tests := map[string]struct {
		given triple
		ok    bool
	}{
		"the old root's word": {triple{cross, by, root}, true},
		"with a path length that leaves room": {triple{newRoot.about(t, "new", oldRoot, "old", pathLen(1)),
			oldRoot.about(t, "old", oldRoot, "old", pathLen(2)), newRoot.about(t, "new", newRoot, "new", pathLen(1))},
			true},
		"with the same name constraints": {triple{newRoot.about(t, "new", oldRoot, "old", permitting), by, newRoot.about(t, "new", newRoot, "new", permitting)}, true},
		"the last day":                   {triple{newRoot.about(t, "new", oldRoot, "old", ending(crossTime)), by, root}, true},

		"a genuine one, about another root":              {triple{cross, by, evil}, false},
		"of another key, under the same names":           {triple{mallory.about(t, "new", oldRoot, "old", nil), by, root}, false},
		"signed by a stranger, in the old root's name":   {triple{mallory.about(t, "new", mallory, "old", nil), by, evil}, false},
		"signed by the issuing key, in the root's name":  {triple{mallory.about(t, "new", issuing, "old", nil), by, evil}, false},
		"signed by the issuing key, in its own name":     {triple{mallory.about(t, "new", issuing, "issuing", nil), by, evil}, false},
		"signed by the issuing key, by its certificate":  {triple{mallory.about(t, "new", issuing, "issuing", nil), issuingCert, evil}, false},
		"the issuing certificate, for a root of its key": {triple{issuingCert, by, issuing.about(t, "issuing", issuing, "issuing", nil)}, false},
		"likewise, a root that is as narrow":             {triple{issuingCert, by, issuing.about(t, "issuing", issuing, "issuing", pathLen(0))}, false},
		"a node's certificate, for a root of its key":    {triple{nodeCert, by, node.about(t, "node", node, "node", nil)}, false},
		"a node's, signed by the root":                   {triple{node.about(t, "node", oldRoot, "old", leaf), by, node.about(t, "node", node, "node", nil)}, false},
		"likewise, for itself":                           {triple{node.about(t, "node", oldRoot, "old", leaf), by, node.about(t, "node", node, "node", leaf)}, false},
		"the root's certificate of itself":               {triple{root, by, root}, false},
		"the old root about itself":                      {triple{by, by, by}, false},
		"a narrower word than the root's own":            {triple{newRoot.about(t, "new", oldRoot, "old", permitting), by, root}, false},
		"a wider word than the root's own":               {triple{cross, by, newRoot.about(t, "new", newRoot, "new", permitting)}, false},
		"a shorter path than the root's own":             {triple{newRoot.about(t, "new", oldRoot, "old", pathLen(1)), by, root}, false},
		"a root that allows nothing below it":            {triple{newRoot.about(t, "new", oldRoot, "old", pathLen(0)), by, newRoot.about(t, "new", newRoot, "new", pathLen(0))}, false},
		"by a root without room for it":                  {triple{cross, oldRoot.about(t, "old", oldRoot, "old", pathLen(1)), root}, false},
		"by one that is no root":                         {triple{cross, oldRoot.about(t, "old", mallory, "above", nil), root}, false},
		"about one that is no root":                      {triple{cross, by, newRoot.about(t, "new", mallory, "above", nil)}, false},
		"over":                                           {triple{newRoot.about(t, "new", oldRoot, "old", ending(crossTime.Add(-time.Second))), by, root}, false},
		"not yet":                                        {triple{newRoot.about(t, "new", oldRoot, "old", beginning(crossTime.Add(time.Second))), by, root}, false},
		"by a root that is over":                         {triple{cross, oldRoot.about(t, "old", oldRoot, "old", ending(crossTime.Add(-time.Second))), root}, false},
		"about a root that is over":                      {triple{cross, by, newRoot.about(t, "new", newRoot, "new", ending(crossTime.Add(-time.Second)))}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := wire.CheckCross(tt.given.cross, tt.given.by, tt.given.root, crossTime)
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, wire.ErrNotVouched) {
				t.Errorf("CheckCross = %v, want success: %t", err, tt.ok)
			}
		})
	}
	over := newRoot.about(t, "new", oldRoot, "old", ending(crossTime.Add(-time.Second)))
	if err := wire.CheckCross(over, by, root, time.Time{}); err != nil {
		t.Errorf("without a time, the signatures alone: %v", err)
	}
}
