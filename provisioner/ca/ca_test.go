package ca_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

const trustDomain = "fleet.example.net"

// noon has a fraction of a second and another zone, as the real clock does.
var noon = time.Date(2026, 3, 1, 13, 0, 0, 123456789, time.FixedZone("CET", 3600))

// The testing authorities are made once.
var generated = sync.OnceValues(func() (*ca.Generated, error) {
	return ca.Generate("", noon)
})

func config(t testing.TB) ca.Config {
	t.Helper()
	g, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	return ca.Config{
		Root: g.Root, Issuing: g.Issuing, Key: g.IssuingKey, TrustDomain: trustDomain,
		Now: func() time.Time { return noon },
	}
}

func authority(t testing.TB, edit func(*ca.Config)) *ca.Authority {
	t.Helper()
	cfg := config(t)
	if edit != nil {
		edit(&cfg)
	}
	a, err := ca.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// rsaKeys are in testdata, since generating them is slow.
var rsaKeys = map[int]func() (*rsa.PrivateKey, error){
	1024: sync.OnceValues(func() (*rsa.PrivateKey, error) { return readRSA("testdata/rsa-1024.pem") }),
	2048: sync.OnceValues(func() (*rsa.PrivateKey, error) { return readRSA("testdata/rsa-2048.pem") }),
	4096: sync.OnceValues(func() (*rsa.PrivateKey, error) { return readRSA("testdata/rsa-4096.pem") }),
}

func readRSA(path string) (*rsa.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	return key.(*rsa.PrivateKey), nil
}

func testRSA(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	k, err := rsaKeys[bits]()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newEC(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// keys returns a key of each [ca.KeyType].
func keys(t testing.TB) map[string]crypto.Signer {
	t.Helper()
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]crypto.Signer{
		"P-256": newEC(t, elliptic.P256()), "P-384": newEC(t, elliptic.P384()), "Ed25519": ed,
		"RSA-2048": testRSA(t, 2048), "RSA-4096": testRSA(t, 4096),
	}
}

// requests returns a request of each kind, without a key.
func requests() map[string]ca.Request {
	return map[string]ca.Request{
		"node": {Role: wire.RoleNode, Name: "web1.example.net"},
		"serving-node": {Role: wire.RoleNode, Name: "web2.example.net", ServerAuth: true,
			IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)},
			DNSNames:    []string{"www.example.net", "web2.example.net"}},
		"long-node": {Role: wire.RoleNode, Name: longName},
		"broker": {Role: wire.RoleBroker, Name: "broker1", DNSNames: []string{"prov1.example.net", "localhost"},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}},
		"provisioner": {Role: wire.RoleProvisioner, Name: "prov1.example.net"},
		"operator":    {Role: wire.RoleOperator, Name: "alice"},
		"service": {Role: wire.RoleService, Name: "web1.example.net/haproxy", ServerAuth: true,
			DNSNames: []string{"www.example.net"}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)},
			URIs: []string{"https://www.example.net/", "spiffe://other.test/node/web1.example.net"}},
		"client-service": {Role: wire.RoleService, Name: longName + "/" + strings.Repeat("x", 64), ServerAuth: true,
			ClientAuth: true, DNSNames: []string{longName}},
	}
}

// longName is an identity of 253 bytes, too long for a common name.
const longName = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa." +
	"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb." +
	"ccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc." +
	"ddddddddddddddddddddddddddddddddddddddddddddddddd.example.net"

func issue(t testing.TB, a *ca.Authority, r ca.Request) (*ca.Certificate, *x509.Certificate) {
	t.Helper()
	c, err := a.Issue(r)
	if err != nil {
		t.Fatalf("Issue: %v", err)
	}
	parsed, err := x509.ParseCertificate(c.DER)
	if err != nil {
		t.Fatalf("Issue made a certificate that cannot be read: %v", err)
	}
	return c, parsed
}
