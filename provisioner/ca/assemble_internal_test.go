package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
)

// authorityAt returns an authority that works at now, after editing its issuing certificate.
func authorityAt(t testing.TB, key crypto.Signer, now time.Time, edit func(issuing *x509.Certificate)) *Authority {
	t.Helper()
	root, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := func(name string, serial int64) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(200 * 24 * time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		}
	}
	sign := func(c, by *x509.Certificate, pub crypto.PublicKey) *x509.Certificate {
		der, err := x509.CreateCertificate(rand.Reader, c, by, pub, root)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	rootCert := sign(template("Root", 1), template("Root", 1), root.Public())
	below := template("Issuing CA of a fleet", 2)
	below.MaxPathLenZero = true
	if edit != nil {
		edit(below)
	}
	a, err := New(Config{Root: rootCert, Issuing: sign(below, rootCert, key.Public()), Key: key,
		TrustDomain: "fleet.example.net", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func testKeys(t testing.TB) map[string]crypto.Signer {
	t.Helper()
	keys := make(map[string]crypto.Signer)
	add := func(name string, k crypto.Signer, err error) {
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = k
	}
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	add("P-256", p256, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	add("P-384", p384, err)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	add("Ed25519", ed, err)
	text, err := os.ReadFile("testdata/rsa-2048.pem") // slow to make
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	r2048, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	signer, _ := r2048.(crypto.Signer)
	add("RSA", signer, err)
	return keys
}

// TestAssembledIsWhatX509Makes compares with crypto/x509 for every kind of request and key, on several days.
func TestAssembledIsWhatX509Makes(t *testing.T) {
	t.Parallel()
	requests := map[string]struct {
		Request
		usual bool
	}{
		"node":                   {Request{Role: wire.RoleNode, Name: "web1.example.net"}, true},
		"node of one letter":     {Request{Role: wire.RoleNode, Name: "a"}, true},
		"node of 64 bytes":       {Request{Role: wire.RoleNode, Name: strings.Repeat("a", 60) + ".net"}, true},
		"node of 65 bytes":       {Request{Role: wire.RoleNode, Name: strings.Repeat("a", 61) + ".net"}, true},
		"node of 127 bytes":      {Request{Role: wire.RoleNode, Name: strings.Repeat("a.", 62) + "net"}, true},
		"node of 253 bytes":      {Request{Role: wire.RoleNode, Name: strings.Repeat("a.", 125) + "net"}, true},
		"node for an hour":       {Request{Role: wire.RoleNode, Name: "web1.example.net", TTL: time.Hour}, true},
		"node with extensions":   {Request{Role: wire.RoleNode, Name: "web1.example.net", Extensions: map[string]string{"pp_role": "web", "pp_owner": strings.Repeat("ü", 127), "pp_uuid": "1", "pp_zone": strings.Repeat("z", 130)}}, true},
		"node, its name again":   {Request{Role: wire.RoleNode, Name: "web1.example.net", DNSNames: []string{"web1.example.net"}}, true},
		"node with another name": {Request{Role: wire.RoleNode, Name: "web1.example.net", DNSNames: []string{"www.example.net"}}, false},
		"serving node":           {Request{Role: wire.RoleNode, Name: "web1.example.net", ServerAuth: true}, false},
		"broker":                 {Request{Role: wire.RoleBroker, Name: "broker1", DNSNames: []string{"broker1.example.net"}}, false},
		"broker by address":      {Request{Role: wire.RoleBroker, Name: "broker1", IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)}}, false},
		"provisioner":            {Request{Role: wire.RoleProvisioner, Name: "prov1"}, false},
		"operator":               {Request{Role: wire.RoleOperator, Name: "alice"}, false},
	}
	days := map[string]bool{ // whether dates of certificates of that day fit UTCTime
		"2026-03-01T12:00:00Z": true, "2049-11-01T00:30:00+01:00": true, "2049-12-31T23:30:00Z": false, "2051-01-01T00:00:00Z": false,
	}
	keys := testKeys(t)
	for day, fits := range days {
		now, err := time.Parse(time.RFC3339, day)
		if err != nil {
			t.Fatal(err)
		}
		a := authorityAt(t, keys["P-256"], now, nil)
		for name, tt := range requests {
			for kind, key := range keys {
				r := tt.Request
				r.PublicKey = key.Public()
				if usual := compareWithX509(t, a, r); usual != (tt.usual && fits) {
					t.Errorf("%s on %s with %s: usual %v", name, day, kind, usual)
				}
			}
		}
	}
}

// compareWithX509 compares an issued certificate with crypto/x509's, and reports whether the fast path made it.
func compareWithX509(t *testing.T, a *Authority, r Request) (usual bool) {
	t.Helper()
	template, err := a.filled(&r)
	if err != nil {
		t.Fatal(err)
	}
	tbs := func(der []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.CheckSignatureFrom(a.cfg.Issuing); err != nil {
			t.Fatal(err)
		}
		return c.RawTBSCertificate
	}
	got := tbs(a.sign(&r, template))
	if want := tbs(x509.CreateCertificate(rand.Reader, template, a.cfg.Issuing, r.PublicKey,
		a.cfg.Key)); !bytes.Equal(got, want) {
		t.Errorf("%s %q:\ngot  %x\nwant %x", r.Role, r.Name, got, want)
	}
	return a.layout.fits(&r, template)
}
