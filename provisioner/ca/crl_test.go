package ca_test

import (
	"bytes"
	"crypto/elliptic"
	"crypto/x509"
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

func crlRequest(revoked ...ca.Revoked) ca.CRLRequest {
	at := noon.UTC().Truncate(time.Second)
	return ca.CRLRequest{Number: 7, ThisUpdate: at, NextUpdate: at.Add(24 * time.Hour), Revoked: revoked}
}

const (
	serialA = "a1b2c3d4e5f60718293a4b5c6d7e8f90"
	serialB = "1f"
)

func TestSignCRL(t *testing.T) {
	t.Parallel()
	a := authority(t, nil)
	r := crlRequest(
		ca.Revoked{Serial: serialA, At: noon.Add(-time.Hour)},
		ca.Revoked{Serial: serialB, At: noon.Add(time.Hour), Reason: ca.ReasonCessation},
	)
	der, err := a.SignCRL(a.IssuerKeyID(), r)
	if err != nil {
		t.Fatal(err)
	}
	l, err := x509.ParseRevocationList(der)
	if err != nil {
		t.Fatal(err)
	}
	issuing := config(t).Issuing
	if err := l.CheckSignatureFrom(issuing); err != nil {
		t.Error(err)
	}
	if l.Number.Uint64() != 7 || !l.ThisUpdate.Equal(r.ThisUpdate) || !l.NextUpdate.Equal(r.NextUpdate) ||
		!bytes.Equal(l.AuthorityKeyId, issuing.SubjectKeyId) {
		t.Errorf("CRL %v from %v to %v by %x", l.Number, l.ThisUpdate, l.NextUpdate, l.AuthorityKeyId)
	}
	if len(l.Extensions) != 2 {
		t.Errorf("%d extensions, want number and authority key identifier", len(l.Extensions))
	}
	e := l.RevokedCertificateEntries
	if len(e) != 2 || e[0].SerialNumber.Text(16) != serialB || e[1].SerialNumber.Text(16) != serialA {
		t.Fatalf("entries %v, want them by number", e)
	}
	if e[0].ReasonCode != ca.ReasonCessation || len(e[0].Extensions) != 1 || e[1].ReasonCode != 0 ||
		len(e[1].Extensions) != 0 {
		t.Errorf("reasons %d and %d, extensions %v and %v", e[0].ReasonCode, e[1].ReasonCode, e[0].Extensions,
			e[1].Extensions)
	}
	// No revocation is later than the list, whatever the clocks say.
	if !e[0].RevocationTime.Equal(r.ThisUpdate) ||
		!e[1].RevocationTime.Equal(noon.Add(-time.Hour).Truncate(time.Second)) {
		t.Errorf("revoked at %v and %v", e[0].RevocationTime, e[1].RevocationTime)
	}
	if a.IssuerKeyID() != fmt.Sprintf("%x", issuing.SubjectKeyId) {
		t.Errorf("issuer %q, want %x", a.IssuerKeyID(), issuing.SubjectKeyId)
	}
}

func TestSignCRLRefuses(t *testing.T) {
	t.Parallel()
	one := ca.Revoked{Serial: serialA, At: noon}
	for name, tt := range map[string]struct {
		edit func(*ca.CRLRequest)
		want error
	}{
		"good":                    {func(*ca.CRLRequest) {}, nil},
		"empty":                   {func(r *ca.CRLRequest) { r.Revoked = nil }, nil},
		"no number of a serial":   {func(r *ca.CRLRequest) { r.Revoked[0].Serial = "" }, ca.ErrRequest},
		"a serial that is no hex": {func(r *ca.CRLRequest) { r.Revoked[0].Serial = "0x1f" }, ca.ErrRequest},
		"a serial in capitals":    {func(r *ca.CRLRequest) { r.Revoked[0].Serial = "AB" }, ca.ErrRequest},
		"a negative serial":       {func(r *ca.CRLRequest) { r.Revoked[0].Serial = "-1f" }, ca.ErrRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := crlRequest(one)
			tt.edit(&r)
			a := authority(t, nil)
			der, err := a.SignCRL(a.IssuerKeyID(), r)
			if !errors.Is(err, tt.want) || err != nil && tt.want == nil || (der == nil) != (err != nil) {
				t.Errorf("SignCRL = %d bytes, %v, want %v", len(der), err, tt.want)
			}
		})
	}
}

func TestCRLsOfPreviousIssuers(t *testing.T) {
	t.Parallel()
	first, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	second := roll(t)
	third := rollFrom(t, second.Generated, noon.AddDate(1, 0, 0))
	ids := map[string]*x509.Certificate{}
	var id []string // of the first, the second and the third
	for _, c := range []*x509.Certificate{first.Issuing, second.Issuing, third.Issuing} {
		id = append(id, fmt.Sprintf("%x", c.SubjectKeyId))
		ids[id[len(id)-1]] = c
	}
	end := first.Issuing.NotAfter
	for name, tt := range map[string]struct {
		now      time.Time
		previous []ca.Previous
		want     []string
		signs    []string // besides those wanted
	}{
		"both":        {noon, []ca.Previous{withKey(second.Generated, third, second.IssuingKey), withKey(first, second, first.IssuingKey)}, []string{id[2], id[1], id[0]}, nil},
		"no key":      {noon, []ca.Previous{previous(second.Generated, third), previous(first, second)}, []string{id[2]}, nil},
		"one key":     {noon, []ca.Previous{previous(second.Generated, third), withKey(first, second, first.IssuingKey)}, []string{id[2], id[0]}, nil},
		"twice":       {noon, []ca.Previous{withKey(second.Generated, third, second.IssuingKey), withKey(second.Generated, third, second.IssuingKey)}, []string{id[2], id[1]}, nil},
		"at the end":  {end, []ca.Previous{withKey(second.Generated, third, second.IssuingKey), withKey(first, second, first.IssuingKey)}, []string{id[2], id[1], id[0]}, nil},
		"expired":     {end.Add(time.Second), []ca.Previous{previous(second.Generated, third), withKey(first, second, first.IssuingKey)}, []string{id[2]}, []string{id[0]}},
		"all expired": {noon.AddDate(30, 0, 0), []ca.Previous{withKey(second.Generated, third, second.IssuingKey)}, []string{id[2]}, []string{id[1]}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAuthority(t, after(tt.now, third, tt.previous...))
			if got := a.CRLIssuers(); !slices.Equal(got, tt.want) {
				t.Errorf("CRLIssuers = %q, want %q", got, tt.want)
			}
			for _, issuer := range slices.Concat(id, []string{"", "ff"}) {
				der, err := a.SignCRL(issuer, crlRequest(ca.Revoked{Serial: serialA, At: noon}))
				if signs := slices.Contains(slices.Concat(tt.want, tt.signs), issuer); !signs {
					if der != nil || !errors.Is(err, ca.ErrRequest) {
						t.Errorf("SignCRL of %q = %d bytes, %v, want %v", issuer, len(der), err, ca.ErrRequest)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				l, err := x509.ParseRevocationList(der)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.CheckSignatureFrom(ids[issuer]); err != nil ||
					!bytes.Equal(l.AuthorityKeyId, ids[issuer].SubjectKeyId) ||
					!bytes.Equal(l.RawIssuer, ids[issuer].RawSubject) {
					t.Errorf("CRL of %q is by %x, %s: %v", issuer, l.AuthorityKeyId, l.Issuer, err)
				}
			}
		})
	}
}

func TestOpenSSLAcceptsCRL(t *testing.T) {
	t.Parallel()
	g, err := ca.Generate("", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a, err := ca.New(ca.Config{Root: g.Root, Issuing: g.Issuing, Key: g.IssuingKey, TrustDomain: trustDomain})
	if err != nil {
		t.Fatal(err)
	}
	issueOne := func() *ca.Certificate {
		c, err := a.Issue(ca.Request{Role: wire.RoleNode, Name: "web1.example.net",
			PublicKey: newEC(t, elliptic.P256()).Public()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	good, revoked, retired := issueOne(), issueOne(), issueOne()
	now := time.Now().UTC().Truncate(time.Second)
	der, err := a.SignCRL(a.IssuerKeyID(), ca.CRLRequest{Number: 1, ThisUpdate: now, NextUpdate: now.Add(time.Hour),
		Revoked: []ca.Revoked{
			{Serial: revoked.Serial, At: now}, {Serial: retired.Serial, At: now, Reason: ca.ReasonCessation},
		}})
	if err != nil {
		t.Fatal(err)
	}
	empty, err := a.SignCRL(a.IssuerKeyID(), ca.CRLRequest{Number: 2, ThisUpdate: now, NextUpdate: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	roots, issuing := file("root.pem", []byte(a.RootsPEM())), file("issuing.pem", []byte(g.IssuingPEM))
	for name, b := range map[string][]byte{"crl.pem": ca.EncodeCRL(der), "empty.pem": ca.EncodeCRL(empty)} {
		out, ok := openssl(t, "crl", "-in", file(name, b), "-verify", "-CAfile", issuing, "-noout", "-text")
		if !ok || !strings.Contains(out, "verify OK") || !strings.Contains(out, "Version 2") {
			t.Errorf("openssl crl -verify %s:\n%s", name, out)
		}
		if cessation := strings.Contains(out, "Cessation Of Operation"); cessation != (name == "crl.pem") {
			t.Errorf("%s names a reason: %v\n%s", name, cessation, out)
		}
	}
	for _, tt := range []struct {
		c    *ca.Certificate
		crl  string
		want bool
	}{{good, "crl.pem", true}, {revoked, "crl.pem", false}, {retired, "crl.pem", false}, {revoked, "empty.pem", true}} {
		out, ok := openssl(t, "verify", "-crl_check", "-x509_strict", "-CAfile", roots, "-untrusted", issuing,
			"-CRLfile", filepath.Join(dir, tt.crl), file("certificate.pem", []byte(tt.c.Chain)))
		if ok != tt.want || !ok && !strings.Contains(out, "certificate revoked") {
			t.Errorf("openssl verify %s against %s = %v, want %v:\n%s", tt.c.Serial, tt.crl, ok, tt.want, out)
		}
	}
}

func TestZlintAcceptsCRL(t *testing.T) {
	t.Parallel()
	registry := lint.GlobalRegistry()
	for name, r := range map[string]ca.CRLRequest{
		"empty": crlRequest(),
		"with both": crlRequest(ca.Revoked{Serial: serialA, At: noon},
			ca.Revoked{Serial: serialB, At: noon, Reason: ca.ReasonCessation}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := authority(t, nil)
			der, err := a.SignCRL(a.IssuerKeyID(), r)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := zx509.ParseRevocationList(der)
			if err != nil {
				t.Fatal(err)
			}
			var passed []string
			for id, result := range zlint.LintRevocationListEx(parsed, registry).Results {
				switch {
				case result.Status >= lint.Notice:
					t.Errorf("%s: %v %s", id, result.Status, result.Details)
				case result.Status == lint.Pass:
					passed = append(passed, id)
				}
			}
			slices.Sort(passed)
			t.Logf("passed: %v", passed)
			if len(passed) < 7 {
				t.Errorf("only %d lints applied: %v", len(passed), passed)
			}
		})
	}
}
