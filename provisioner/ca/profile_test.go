package ca_test

import (
	"bytes"
	"crypto/elliptic"
	"crypto/x509"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/provisioner/ca"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var extensionNames = map[string]string{
	"2.5.29.14": "subjectKeyIdentifier", "2.5.29.15": "keyUsage", "2.5.29.17": "subjectAltName",
	"2.5.29.19": "basicConstraints", "2.5.29.35": "authorityKeyIdentifier", "2.5.29.37": "extKeyUsage",
}

// describe prints a certificate without its random parts.
func describe(c *x509.Certificate) []byte {
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("version: %d", c.Version)
	line("signature: %v", c.SignatureAlgorithm)
	line("issuer: %v", c.Issuer)
	line("subject: %v", c.Subject)
	line("not before: %s", c.NotBefore.UTC().Format(time.RFC3339))
	line("not after: %s", c.NotAfter.UTC().Format(time.RFC3339))
	line("CA: %v, path length %d", c.IsCA, c.MaxPathLen)
	line("key usage: %09b", c.KeyUsage) // bit 0, digitalSignature, is the last
	for _, u := range c.ExtKeyUsage {
		line("extended key usage: %s", map[x509.ExtKeyUsage]string{
			x509.ExtKeyUsageClientAuth: "clientAuth", x509.ExtKeyUsageServerAuth: "serverAuth",
		}[u])
	}
	for _, n := range c.DNSNames {
		line("DNS: %s", n)
	}
	for _, ip := range c.IPAddresses {
		line("IP: %s", ip)
	}
	for _, u := range c.URIs {
		line("URI: %s", u)
	}
	for _, e := range c.Extensions {
		id := e.Id.String()
		critical := ""
		if e.Critical {
			critical = ", critical"
		}
		line("extension: %s%s", extensionNames[id], critical)
		if extensionNames[id] == "" {
			line("unknown extension: %s", id)
		}
	}
	line("other names: %d; CRL: %d; OCSP: %d; policies: %d; unhandled: %d", len(c.EmailAddresses),
		len(c.CRLDistributionPoints), len(c.OCSPServer), len(c.Policies), len(c.UnhandledCriticalExtensions))
	return b.Bytes()
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	certs := map[string]*x509.Certificate{"root": cfg.Root, "issuing": cfg.Issuing}
	a := authority(t, nil)
	key := newEC(t, elliptic.P256())
	for name, r := range requests() {
		r.PublicKey = key.Public()
		_, certs[name] = issue(t, a, r)
	}
	for name, c := range certs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join("testdata", "profile", name+".txt")
			got := describe(c)
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("certificate (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSerials(t *testing.T) {
	t.Parallel()
	a := authority(t, nil)
	r := requests()["node"]
	r.PublicKey = newEC(t, elliptic.P256()).Public()
	seen := make(map[string]bool)
	for range 400 {
		c, parsed := issue(t, a, r)
		if seen[c.Serial] {
			t.Fatalf("serial %s appears twice", c.Serial)
		}
		seen[c.Serial] = true
		if len(c.Serial) != 32 || strings.Trim(c.Serial, "0123456789abcdef") != "" || c.Serial[0] == '0' {
			t.Fatalf("serial %q, want 32 lower-case hex digits, the first not 0", c.Serial)
		}
		if got := ca.Serial(parsed); got != c.Serial {
			t.Fatalf("Serial = %s, want %s", got, c.Serial)
		}
		if parsed.SerialNumber.Sign() <= 0 {
			t.Fatalf("serial %v, want a positive one (RFC 5280 section 4.1.2.2)", parsed.SerialNumber)
		}
	}
}

func TestChainIsLeafThenIssuing(t *testing.T) {
	t.Parallel()
	a := authority(t, nil)
	r := requests()["node"]
	r.PublicKey = newEC(t, elliptic.P256()).Public()
	c, parsed := issue(t, a, r)
	certs, err := ca.ParseCertificates([]byte(c.Chain))
	if err != nil {
		t.Fatal(err)
	}
	if len(certs) != 2 || !certs[0].Equal(parsed) || !certs[1].Equal(config(t).Issuing) {
		t.Errorf("Chain has %d certificates, want the leaf and the issuing one", len(certs))
	}
	if got := a.Chain(c.DER); got != c.Chain {
		t.Error("Chain of the leaf's DER differs from the one issued")
	}
	roots, err := ca.ParseCertificates([]byte(a.RootsPEM()))
	if err != nil || len(roots) != 1 || !roots[0].Equal(config(t).Root) {
		t.Errorf("RootsPEM has %d certificates, %v, want the root", len(roots), err)
	}
}
