package ca_test

import (
	"crypto/elliptic"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	zx509 "github.com/zmap/zcrypto/x509"
	"github.com/zmap/zlint/v3"
	"github.com/zmap/zlint/v3/lint"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

// branchOf returns the branch's files, and an authority with the branch.
func branchOf(t testing.TB, g *ca.Generated, now time.Time) (*ca.Branch, *ca.Authority) {
	t.Helper()
	clock := func() time.Time { return now }
	b, err := ca.NewBranch(g.Root, g.RootKey, clock())
	if err != nil {
		t.Fatal(err)
	}
	branch, err := ca.New(ca.Config{Root: g.Root, Issuing: b.Issuing, Key: b.Key, TrustDomain: trustDomain,
		Backdate: ca.BranchBackdate, MaxTTL: 5 * 366 * 24 * time.Hour, DefaultTTL: 365 * 24 * time.Hour, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	a, err := ca.New(ca.Config{Root: g.Root, Issuing: g.Issuing, Key: g.IssuingKey, TrustDomain: trustDomain,
		Branch: branch, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	return b, a
}

func puppetNode(t testing.TB) ca.Request {
	t.Helper()
	return ca.Request{Role: wire.RoleNode, Name: "web1.example.net", PublicKey: newEC(t, elliptic.P256()).Public(),
		Extensions: map[string]string{"pp_role": "wébserver", "pp_environment": "production"}}
}

func TestBranchIssuesWhatTheAuthorityVerifies(t *testing.T) {
	t.Parallel()
	g, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	b, a := branchOf(t, g, noon.AddDate(0, 0, 30))
	c, leaf := issue(t, a.Branch(), puppetNode(t))
	if role, name, err := a.Verify(leaf, nil, time.Time{}); role != wire.RoleNode || name != "web1.example.net" ||
		err != nil {
		t.Errorf("Verify = %s, %q, %v", role, name, err)
	}
	if got := a.IssuerOf(c.DER); got != a.Branch().IssuerKeyID() || got == a.IssuerKeyID() {
		t.Errorf("IssuerOf = %q", got)
	}
	if a.Chain(c.DER) != c.Chain {
		t.Error("Chain is not what was issued")
	}
	now := noon.AddDate(0, 0, 30).UTC().Truncate(time.Second)
	if !c.NotBefore.Equal(now.Add(-24*time.Hour)) || !c.NotAfter.Equal(now.AddDate(1, 0, 0)) {
		t.Errorf("valid from %v to %v, and it is %v", c.NotBefore, c.NotAfter, now)
	}
	if !b.Issuing.NotAfter.Equal(g.Root.NotAfter) || b.Issuing.Subject.CommonName != "muster Puppet CA" {
		t.Errorf("%q ends at %v", b.Issuing.Subject.CommonName, b.Issuing.NotAfter)
	}
	bundle, err := ca.ParseCertificates([]byte(b.BundlePEM))
	if err != nil || len(bundle) != 2 || !bundle[0].Equal(b.Issuing) || !bundle[1].Equal(g.Root) {
		t.Errorf("bundle of %d: %v", len(bundle), err)
	}
	// The other authority's certificates stay its own.
	r := puppetNode(t)
	r.Extensions = nil
	own, ownLeaf := issue(t, a, r)
	if a.IssuerOf(own.DER) != a.IssuerKeyID() || a.Chain(own.DER) != own.Chain {
		t.Error("a certificate of the present authority is taken for the branch's")
	}
	if _, _, err := a.Branch().Verify(ownLeaf, nil, time.Time{}); !errors.Is(err, ca.ErrUntrusted) {
		t.Errorf("the branch verifies another issuer's: %v", err)
	}
}

// TestBranchOfAFormerRootIsVerified rolls the authority over: agents keep their bundle.
func TestBranchOfAFormerRootIsVerified(t *testing.T) {
	t.Parallel()
	g, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	_, a := branchOf(t, g, noon)
	rolled := roll(t)
	now, err := ca.New(ca.Config{Root: rolled.Root, Issuing: rolled.Issuing, Key: rolled.IssuingKey,
		TrustDomain: trustDomain, Branch: a.Branch(), Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	c, leaf := issue(t, a.Branch(), puppetNode(t))
	if _, name, err := now.Verify(leaf, nil, time.Time{}); name != "web1.example.net" || err != nil {
		t.Errorf("Verify = %q, %v", name, err)
	}
	if now.Chain(c.DER) != c.Chain {
		t.Error("its chain has changed")
	}
}

func TestCertificatesOfANewBranchAreNotOlderThanIt(t *testing.T) {
	t.Parallel()
	g, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	b, a := branchOf(t, g, noon)
	c, _ := issue(t, a.Branch(), puppetNode(t))
	if !c.NotBefore.Equal(g.Root.NotBefore) || !b.Issuing.NotBefore.Equal(g.Root.NotBefore) {
		t.Errorf("valid from %v, the CA from %v, the root from %v", c.NotBefore, b.Issuing.NotBefore, g.Root.NotBefore)
	}
}

func TestBranchNeedsTheRootsKey(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	if _, err := ca.NewBranch(cfg.Root, cfg.Key, cfg.Now()); err == nil {
		t.Error("made with the issuing key")
	}
	g, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	late := func() time.Time { return g.Root.NotAfter.Add(time.Second) }
	if _, err := ca.NewBranch(g.Root, g.RootKey, late()); !errors.Is(err, ca.ErrExpired) {
		t.Errorf("made under an expired root: %v", err)
	}
	_, a := branchOf(t, g, noon)
	cfg.Branch = a
	if _, err := ca.New(cfg); err == nil {
		t.Error("an authority is its own branch")
	}
}

func TestRequestedExtensionsAreBounded(t *testing.T) {
	t.Parallel()
	many := func(n int) map[string]string {
		some := map[string]string{}
		for _, name := range ca.PuppetExtensions[1:] {
			if len(some) < n && name != "pp_preshared_key" {
				some[name] = "x"
			}
		}
		return some
	}
	one := func(name, value string) map[string]string { return map[string]string{name: value} }
	for name, tt := range map[string]struct {
		extensions map[string]string
		role       wire.Role
		good       bool
	}{
		"one of 255 bytes":   {one("pp_role", strings.Repeat("é", 127)+"x"), wire.RoleNode, true},
		"sixteen":            {many(16), wire.RoleNode, true},
		"seventeen":          {many(17), wire.RoleNode, false},
		"256 bytes":          {one("pp_role", strings.Repeat("x", 256)), wire.RoleNode, false},
		"none":               {one("pp_role", ""), wire.RoleNode, false},
		"a control":          {one("pp_role", "a\nb"), wire.RoleNode, false},
		"no UTF-8":           {one("pp_role", "\xff"), wire.RoleNode, false},
		"an unknown one":     {one("pp_cli_auth", "true"), wire.RoleNode, false},
		"an identifier":      {one("1.3.6.1.4.1.34380.1.3.39", "true"), wire.RoleNode, false},
		"a secret":           {one("pp_preshared_key", "x"), wire.RoleNode, false},
		"of an operator":     {one("pp_role", "x"), wire.RoleOperator, false},
		"of the provisioner": {one("pp_role", "x"), wire.RoleProvisioner, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := puppetNode(t)
			r.Role, r.Name, r.Extensions = tt.role, "web1.example.net", tt.extensions
			c, err := authority(t, nil).Issue(r)
			if !tt.good {
				if !errors.Is(err, ca.ErrRequest) {
					t.Fatalf("Issue = %v, want %v", err, ca.ErrRequest)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := x509.ParseCertificate(c.DER)
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]string{}
			for _, e := range leaf.Extensions {
				var value string
				id, ok := strings.CutPrefix(e.Id.String(), "1.3.6.1.4.1.34380.1.1.")
				if !ok || e.Critical || e.Value[0] != asn1.TagUTF8String {
					continue
				}
				if rest, err := asn1.Unmarshal(e.Value, &value); err != nil || len(rest) > 0 {
					t.Errorf("value %x: %v", e.Value, err)
				}
				found[id] = value
			}
			if len(found) != len(tt.extensions) {
				t.Errorf("%d extensions, want %d", len(found), len(tt.extensions))
			}
			for name, value := range tt.extensions {
				if got := found[fmt.Sprint(slices.Index(ca.PuppetExtensions, name))]; got != value {
					t.Errorf("%s = %q, want %q", name, got, value)
				}
			}
		})
	}
}

// TestOpenSSLChecksTheWholeChainOfAgents verifies as agents do: with lists of the issuing CA and of the root.
func TestOpenSSLChecksTheWholeChainOfAgents(t *testing.T) {
	t.Parallel()
	g, err := ca.Generate("", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b, a := branchOf(t, g, time.Now())
	good, _ := issue(t, a.Branch(), puppetNode(t))
	revoked, _ := issue(t, a.Branch(), puppetNode(t))
	server := ca.Request{Role: wire.RoleProvisioner, Name: "prov1", DNSNames: []string{"puppet.example.net"},
		ServerAuth: true, PublicKey: newEC(t, elliptic.P256()).Public()}
	serving, _ := issue(t, a.Branch(), server)
	now := time.Now().UTC().Truncate(time.Second)
	der, err := a.Branch().SignCRL(a.Branch().IssuerKeyID(), ca.CRLRequest{Number: 1, ThisUpdate: now.Add(-time.Hour),
		NextUpdate: now.AddDate(5, 0, 0), Revoked: []ca.Revoked{{Serial: revoked.Serial, At: now}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bundle := file("bundle.pem", b.BundlePEM)
	crls := file("crls.pem", string(ca.EncodeCRL(der))+b.RootCRLPEM)
	soon := fmt.Sprint(now.Unix())
	years := fmt.Sprint(now.AddDate(4, 11, 0).Unix()) // an agent that was off: the lists last
	for name, tt := range map[string]struct {
		c       *ca.Certificate
		purpose string
		at      string
		want    string // "" passes
	}{
		"an agent":             {good, "sslclient", soon, ""},
		"an agent as server":   {good, "sslserver", soon, "unsuitable certificate purpose"},
		"a revoked agent":      {revoked, "sslclient", soon, "certificate revoked"},
		"the gateway":          {serving, "sslserver", soon, ""},
		"after almost 5 years": {good, "sslclient", years, "certificate has expired"},
	} {
		t.Run(name, func(t *testing.T) {
			out, ok := openssl(t, "verify", "-x509_strict", "-crl_check_all", "-attime", tt.at, "-purpose", tt.purpose,
				"-CAfile", bundle, "-CRLfile", crls, file("leaf.pem", tt.c.Chain))
			if ok != (tt.want == "") || !strings.Contains(out, tt.want) || strings.Contains(out, "CRL") {
				t.Errorf("openssl verify: %v, want %q:\n%s", ok, tt.want, out)
			}
		})
	}
	text, _ := openssl(t, "x509", "-in", file("leaf.pem", good.Chain), "-noout", "-text")
	if !strings.Contains(text, "1.3.6.1.4.1.34380.1.1.13") || !strings.Contains(text, "w..bserver") {
		t.Errorf("openssl shows no pp_role:\n%s", text)
	}
}

func TestZlintAcceptsTheBranch(t *testing.T) {
	t.Parallel()
	g, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	b, a := branchOf(t, g, noon)
	_, leaf := issue(t, a.Branch(), puppetNode(t))
	r := puppetNode(t)
	r.PublicKey, r.TTL = testRSA(t, 4096).Public(), 5*365*24*time.Hour
	_, old := issue(t, a.Branch(), r)
	for name, c := range map[string]*x509.Certificate{"Puppet CA": b.Issuing, "agent": leaf, "agent 7": old} {
		parsed, err := zx509.ParseCertificate(c.Raw)
		if err != nil {
			t.Fatal(err)
		}
		for id, result := range zlint.LintCertificateEx(parsed, lints(t)).Results {
			if result.Status >= lint.Notice {
				t.Errorf("%s: %s: %v %s", name, id, result.Status, result.Details)
			}
		}
	}
	block, _ := pem.Decode([]byte(b.RootCRLPEM))
	list, err := zx509.ParseRevocationList(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for id, result := range zlint.LintRevocationListEx(list, lint.GlobalRegistry()).Results {
		// A rule of browsers: agents need lists of years.
		if result.Status >= lint.Notice && id != "e_crl_next_update_invalid" {
			t.Errorf("CRL of the root: %s: %v %s", id, result.Status, result.Details)
		}
	}
	if !list.NextUpdate.Equal(g.Root.NotAfter) {
		t.Errorf("the root's CRL ends at %v, the root at %v", list.NextUpdate, g.Root.NotAfter)
	}
}
