package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
)

// offered returns an honest reply for a node and what the node expects.
func offered(t testing.TB, id wire.Identity) (*wire.Enrolled, expectation) {
	t.Helper()
	now := time.Now()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	encode := func(der []byte, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	rootKey, nodeKey := key(), key()
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(0xab), NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(time.Hour), DNSNames: []string{string(id)},
		URIs:     []*url.URL{{Scheme: "spiffe", Host: "fleet.test", Path: "/node/" + string(id)}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	e := &wire.Enrolled{Serial: "ab",
		Certificate: encode(x509.CreateCertificate(rand.Reader, leaf, root, nodeKey.Public(), rootKey)),
		CA:          encode(x509.CreateCertificate(rand.Reader, root, root, rootKey.Public(), rootKey)),
		Files: wire.Files{Configuration: map[string]string{"identity": string(id)},
			ActionPolicies: map[string]string{"rpcutil": "policy default deny\n"},
			OPAPolicies:    map[string]string{"server": "package choria\n"}},
	}
	e.Digest = wire.Digest(e.Certificate, e.Files)
	return e, expectation{identity: id, key: nodeKey, now: func(time.Time) time.Time { return now }}
}

// FuzzCheckReply changes parts of an honest reply. An accepted reply has the honest certificate, names files inside
// the node's directory only, and has a readable server.conf.
func FuzzCheckReply(f *testing.F) {
	const id = "web1.example.net"
	e, want := offered(f, id)
	if _, err := checkReply(e, want); err != nil {
		f.Fatalf("the honest answer is refused: %v", err)
	}
	for _, edit := range []string{
		`{}`, `{"serial":"AB"}`, `{"serial":"00ab"}`, `{"certificate":""}`, `{"ca":""}`, `{"configuration":{}}`,
		`{"configuration":{"provision":"true"}}`,
		`{"configuration":{"identity":"db1.example.net"}}`, `{"configuration":{"a":"b\nc = d"}}`,
		`{"configuration":{"a b":"c"}}`,
		`{"action_policies":{"../../etc/cron.d/x":"y"}}`, `{"opa_policies":{".":"y","a/b":"z"}}`,
		`{"action_policies":{"x\u0000":"y"}}`,
	} {
		f.Add([]byte(edit), true)
	}
	f.Add([]byte(`{"digest":"00"}`), false)
	f.Fuzz(func(t *testing.T, edit []byte, rightDigest bool) {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var altered wire.Enrolled
		if err := json.Unmarshal(b, &altered); err != nil {
			t.Fatal(err)
		}
		if json.Unmarshal(edit, &altered) != nil {
			return
		}
		if rightDigest {
			altered.Digest = wire.Digest(altered.Certificate, altered.Files)
		}
		o, err := checkReply(&altered, want)
		if err != nil {
			if o != nil || !errors.Is(err, errReply) {
				t.Fatalf("checkReply = %v, %v, want %v alone", o, err, errReply)
			}
			return
		}
		if o.creds.Leaf().DNSNames[0] != id || !wire.SamePublicKey(o.creds.Leaf().PublicKey, want.key.Public()) {
			t.Fatalf("a certificate of %v", o.creds.Leaf().DNSNames)
		}
		seen := map[string]bool{}
		for _, file := range o.files {
			dir := filepath.Dir(file.Name)
			if !filepath.IsLocal(file.Name) || filepath.Clean(file.Name) != file.Name || seen[file.Name] ||
				dir != "." && dir != policyDir && dir != regoDir || strings.ContainsAny(file.Name, "\x00\n\\") {
				t.Fatalf("would write %q", file.Name)
			}
			seen[file.Name] = true
			if file.Name == confName {
				if c, err := parseConf(file.Data); err != nil || c.Identity != "" && c.Identity != id {
					t.Fatalf("%s: %+v, %v", confName, c, err)
				}
			}
		}
	})
}
