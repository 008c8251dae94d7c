package ca_test

import (
	"crypto"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"muster/provisioner/ca"
)

func caTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: noon.Add(-time.Hour), NotAfter: noon.AddDate(1, 0, 0),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
}

// sign returns a certificate signed by parent; a root has itself as parent.
func sign(t testing.TB, template, parent *x509.Certificate, pub crypto.PublicKey, key crypto.Signer) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	other, err := ca.Generate("", noon)
	if err != nil {
		t.Fatal(err)
	}
	rootKey, issuingKey := newEC(t, elliptic.P256()), newEC(t, elliptic.P256())
	pair := func(edit func(root, issuing *x509.Certificate)) func(*ca.Config) {
		root, issuing := caTemplate("root"), caTemplate("issuing")
		edit(root, issuing)
		return func(c *ca.Config) {
			c.Root = sign(t, root, root, rootKey.Public(), rootKey)
			c.Issuing = sign(t, issuing, c.Root, issuingKey.Public(), rootKey)
			c.Key = issuingKey
		}
	}
	tests := map[string]struct {
		edit func(*ca.Config)
		want []string // in the error; none means accepted
	}{
		"as generated":   {func(*ca.Config) {}, nil},
		"made elsewhere": {pair(func(_, _ *x509.Certificate) {}), nil},
		"RSA, path length open": {func(c *ca.Config) {
			key := testRSA(t, 2048)
			root, issuing := caTemplate("root"), caTemplate("issuing")
			root.MaxPathLen, issuing.MaxPathLen = -1, -1
			c.Root = sign(t, root, root, key.Public(), key)
			c.Issuing, c.Key = sign(t, issuing, c.Root, issuingKey.Public(), key), issuingKey
		}, nil},
		"nothing": {func(c *ca.Config) { *c = ca.Config{} },
			[]string{"no root certificate"}},
		"everything at once": {func(c *ca.Config) {
			c.Key, c.TrustDomain, c.Issuing = other.IssuingKey, "Example.NET", c.Root
		}, []string{"the root itself", "key does not belong", `trust domain "Example.NET"`}},
		"root of another authority": {func(c *ca.Config) { c.Root = other.Root }, []string{"issuing certificate is not signed by"}},
		"key of the root":           {func(c *ca.Config) { c.Key = other.RootKey }, []string{"key does not belong"}},
		"root and issuing swapped":  {func(c *ca.Config) { c.Root, c.Issuing = c.Issuing, c.Root }, []string{"root certificate is not signed by"}},
		"never both valid": {pair(func(r, i *x509.Certificate) {
			i.NotBefore, i.NotAfter = r.NotAfter.Add(time.Hour), r.NotAfter.Add(2*time.Hour)
		}), []string{"issuing certificate: "}},
		"issuing is no CA":           {pair(func(_, i *x509.Certificate) { i.IsCA = false; i.SubjectKeyId = []byte{1} }), []string{"issuing certificate is not a CA's"}},
		"issuing may not sign":       {pair(func(_, i *x509.Certificate) { i.KeyUsage = x509.KeyUsageDigitalSignature }), []string{"issuing certificate is not a CA's"}},
		"issuing may not sign CRLs":  {pair(func(_, i *x509.Certificate) { i.KeyUsage = x509.KeyUsageCertSign }), []string{"may not sign CRLs"}},
		"root allows no CA below it": {pair(func(r, _ *x509.Certificate) { r.MaxPathLenZero = true }), []string{"path length 0"}},
		"issuing is only for mail": {pair(func(_, i *x509.Certificate) {
			i.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageEmailProtection}
		}), []string{"issuing certificate: "}},
		"no subject": {pair(func(r, _ *x509.Certificate) { r.Subject = pkix.Name{} }), []string{"root certificate has no subject"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			tt.edit(&cfg)
			a, err := ca.New(cfg)
			if (err == nil) != (tt.want == nil) || (a == nil) != (err != nil) {
				t.Fatalf("New = %v, %v, want an error about %q", a, err, tt.want)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

// TestUsable checks authorities before, within and after their validity.
func TestUsable(t *testing.T) {
	t.Parallel()
	end := config(t).Issuing.NotAfter
	for name, tt := range map[string]struct {
		now        time.Time
		err, never error
	}{
		"noon":              {noon, nil, ca.ErrAuthority},
		"the last minute":   {end.Add(-time.Minute), nil, ca.ErrAuthority},
		"seconds left":      {end.Add(-time.Second), ca.ErrExpired, nil},
		"expired":           {end.Add(time.Second), ca.ErrExpired, nil},
		"twenty years on":   {noon.AddDate(20, 0, 0), ca.ErrExpired, nil},
		"a year too early":  {noon.AddDate(-1, 0, 0), ca.ErrAuthority, ca.ErrExpired},
		"expired, as asked": {end.Add(time.Second), ca.ErrAuthority, ca.ErrRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := authority(t, func(c *ca.Config) { c.Now = func() time.Time { return tt.now } })
			if err := a.Usable(); !errors.Is(err, tt.err) || tt.never != nil && errors.Is(err, tt.never) {
				t.Errorf("Usable = %v, want %v and not %v", err, tt.err, tt.never)
			}
		})
	}
}

func TestGenerate(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		name string
		ok   bool
	}{
		"named":      {"Fleet of Example", true},
		"48 bytes":   {strings.Repeat("x", 48), true},
		"49 bytes":   {strings.Repeat("x", 49), false},
		"line break": {"a\nb", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, err := ca.Generate(tt.name, time.Now())
			if (err == nil) != tt.ok || (g == nil) != (err != nil) {
				t.Fatalf("Generate = %v, %v, want success: %v", g, err, tt.ok)
			}
			if err != nil {
				return
			}
			certs, err := ca.ParseCertificates([]byte(g.RootPEM + g.IssuingPEM))
			if err != nil || !certs[0].Equal(g.Root) || !certs[1].Equal(g.Issuing) {
				t.Errorf("the PEM holds %d certificates, %v, want root and issuing", len(certs), err)
			}
			if _, err := ca.New(ca.Config{Root: g.Root, Issuing: g.Issuing, Key: g.IssuingKey,
				TrustDomain: trustDomain}); err != nil {
				t.Errorf("New of what Generate made: %v", err)
			}
			if _, err := ca.New(ca.Config{Root: g.Root, Issuing: g.Issuing, Key: g.RootKey,
				TrustDomain: trustDomain}); err == nil || !strings.Contains(err.Error(),
				"key does not belong to the issuing certificate") {
				t.Errorf("New with the root's key in place of the issuing CA's = %v", err)
			}
		})
	}
}

func TestParseCertificates(t *testing.T) {
	t.Parallel()
	g, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		pem  string
		want int // 0 means refused
	}{
		"one":                       {g.RootPEM, 1},
		"two with text around them": {"Certificate:\n  Data:\n" + g.RootPEM + "and\n" + g.IssuingPEM + "end\n", 2},
		"without a last newline":    {strings.TrimSpace(g.RootPEM), 1},
		"with CRLF":                 {strings.ReplaceAll(g.RootPEM, "\n", "\r\n"), 1},
		"16":                        {strings.Repeat(g.RootPEM, 16), 16},
		"17":                        {strings.Repeat(g.RootPEM, 17), 0},
		"empty":                     {"", 0},
		"text":                      {"hello", 0},
		"the second is cut short":   {g.RootPEM + g.IssuingPEM[:200], 0},
		"the first is damaged":      {strings.Replace(g.RootPEM, "M", "!", 1) + g.IssuingPEM, 0},
		"a key among them":          {g.RootPEM + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", 0},
		"no certificate inside":     {"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			certs, err := ca.ParseCertificates([]byte(tt.pem))
			if len(certs) != tt.want || errors.Is(err, ca.ErrPEM) != (tt.want == 0) {
				t.Errorf("ParseCertificates = %d, %v, want %d", len(certs), err, tt.want)
			}
		})
	}
}

func TestKeyHash(t *testing.T) {
	t.Parallel()
	for name, key := range keys(t) {
		spki, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(spki)
		if got, err := ca.KeyHash(key.Public()); err != nil || got != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: KeyHash = %s, %v, want %x", name, got, err, sum)
		}
	}
	if got, err := ca.KeyHash("no key"); got != "" || !errors.Is(err, ca.ErrKey) {
		t.Errorf("KeyHash of a text = %q, %v, want %v", got, err, ca.ErrKey)
	}
}
