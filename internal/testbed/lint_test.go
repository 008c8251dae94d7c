package testbed_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go"
	zx509 "github.com/zmap/zcrypto/x509"
	"github.com/zmap/zlint/v3"
	"github.com/zmap/zlint/v3/lint"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/ca"
)

// servingPolicy admits every node, and gives nodes called www a server certificate with a second name.
const servingPolicy = `package muster.enroll

default allow := false

allow := true

certificate := {"server_auth": true, "dns_names": ["www.example.net"]} if startswith(input.identity, "www")
`

// TestEveryCertificateIsValidByRFC collects every certificate of a fleet before and after a change of its authority:
// of nodes, brokers, issuing authorities, roots, and cross certificates. zlint finds no violation of an RFC, and
// openssl verifies each strictly from every root that should.
func TestEveryCertificateIsValidByRFC(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: servingPolicy})
	broker := map[string][]*x509.Certificate{"before": presented(t, f)}
	long := strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + ".example.net" // longer than a common name
	agents := []*testbed.Agent{f.Agent("web1.example.net", pinning(t, f, f.Daemon().CAFingerprint()))}
	for _, name := range []string{"db1.example.net", long} {
		f.Enroll(f.Node(name))
	}
	f.WaitProvisioned(agents...)
	next := f.Roll()
	broker["after"] = presented(t, f)
	agents = append(agents, f.Agent("web2.example.net", pinning(t, f, next)))
	f.WaitProvisioned(agents...)
	f.Check()
	f.Enroll(f.Node("www1.example.net")) // more names than Check allows

	roots, between := map[string]*x509.Certificate{}, []*x509.Certificate{}
	all := map[string]*x509.Certificate{}
	for _, pattern := range []string{"ca*/root.pem", "ca*/issuing.pem", "ca*/cross.pem"} {
		for _, path := range files(t, f, pattern) {
			for i, c := range certificates(t, path) {
				all[fmt.Sprintf("%s %d", strings.TrimPrefix(path, f.Dir), i)] = c
				if wire.SelfSigned(c) {
					roots[c.Subject.CommonName] = c
				} else {
					between = append(between, c)
				}
			}
		}
	}
	nodes := 0
	err := f.Daemon().Store().Revisions(f.Context(), "", func(r *provisioner.Record, n trust.Revision) error {
		for _, i := range []*provisioner.Issued{r.Current, r.Next} {
			if i == nil {
				continue
			}
			c, err := x509.ParseCertificate(i.DER)
			if err != nil {
				return err
			}
			all["node "+i.Serial] = c
			nodes++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for when, chain := range broker {
		all["broker "+when] = chain[0]
	}
	if nodes < 5 || len(all) < 13 || len(roots) != 2 {
		t.Fatalf("only %d certificates, %d of nodes, %d roots: %q", len(all), nodes, len(roots),
			slices.Collect(maps.Keys(all)))
	}
	lints, err := lint.GlobalRegistry().Filter(lint.FilterOptions{IncludeSources: lint.SourceList{
		lint.RFC3279, lint.RFC5280, lint.RFC5480, lint.RFC5891, lint.RFC6962, lint.RFC8813,
	}})
	if err != nil {
		t.Fatal(err)
	}
	v := newVerifier(t, roots, between)
	for name, c := range all {
		lintCertificate(t, lints, name, c)
		v.verify(t, name, c)
	}
}

// presented returns the chain that the broker presents.
func presented(t *testing.T, f *testbed.Fleet) []*x509.Certificate {
	t.Helper()
	var chain []*x509.Certificate
	nc, err := nats.Connect(f.URL(), nats.Token(f.Token(nil)), nats.Name(wire.NewID()), nats.NoReconnect(),
		nats.Timeout(time.Minute), nats.Secure(&tls.Config{
			InsecureSkipVerify: true,
			VerifyConnection:   func(cs tls.ConnectionState) error { chain = cs.PeerCertificates; return nil },
		}))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	return chain
}

func lintCertificate(t *testing.T, lints lint.Registry, name string, c *x509.Certificate) {
	t.Helper()
	parsed, err := zx509.ParseCertificate(c.Raw)
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for id, r := range zlint.LintCertificateEx(parsed, lints).Results {
		switch {
		case r.Status >= lint.Notice:
			t.Errorf("%s: %s: %v %s", name, id, r.Status, r.Details)
		case r.Status == lint.Pass:
			passed++
		}
	}
	if passed < 30 {
		t.Errorf("%s: only %d lints applied", name, passed)
	}
}

// verifier has openssl verify certificates.
type verifier struct {
	dir    string
	roots  map[string]*x509.Certificate
	others string // file
}

func newVerifier(t *testing.T, roots map[string]*x509.Certificate, between []*x509.Certificate) *verifier {
	t.Helper()
	v := &verifier{dir: t.TempDir(), roots: roots}
	v.others = v.write(t, "others", between...)
	for name, c := range roots {
		v.write(t, name, c)
	}
	return v
}

func (v *verifier) write(t *testing.T, name string, certs ...*x509.Certificate) string {
	t.Helper()
	var b strings.Builder
	for _, c := range certs {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	}
	path := filepath.Join(v.dir, name+".pem")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// verify expects that c verifies from any of the roots.
func (v *verifier) verify(t *testing.T, name string, c *x509.Certificate) {
	t.Helper()
	path := v.write(t, "certificate-"+ca.Serial(c), c)
	for root := range v.roots {
		if out, err := exec.CommandContext(t.Context(), "openssl", "verify", "-x509_strict", "-CAfile",
			filepath.Join(v.dir, root+".pem"), "-untrusted", v.others, path).CombinedOutput(); err != nil {
			if wire.SelfSigned(c) && c.Subject.CommonName != root {
				continue // only itself verifies a root
			}
			t.Errorf("%s, from %s: %v\n%s", name, root, err, out)
		}
	}
}

// files returns the paths in a fleet's setup that match a pattern.
func files(t *testing.T, f *testbed.Fleet, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(f.Dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
