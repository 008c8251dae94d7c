package ca_test

import (
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

func openssl(t testing.TB, args ...string) (string, bool) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Fatalf("these tests need openssl (`make deps` installs it): %v", err)
	}
	out, err := exec.CommandContext(t.Context(), "openssl", args...).CombinedOutput()
	return string(out), err == nil
}

// TestOpenSSLVerifies has openssl strictly verify certificates of each role and key type.
func TestOpenSSLVerifies(t *testing.T) {
	t.Parallel()
	// openssl uses the real clock.
	g, err := ca.Generate("", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a, err := ca.New(ca.Config{Root: g.Root, Issuing: g.Issuing, Key: g.IssuingKey, TrustDomain: trustDomain})
	if err != nil {
		t.Fatal(err)
	}
	for keyType, key := range keys(t) {
		for name, r := range requests() {
			t.Run(name+" "+keyType, func(t *testing.T) {
				t.Parallel()
				r.PublicKey = key.Public()
				c, err := a.Issue(r)
				if err != nil {
					t.Fatal(err)
				}
				dir := t.TempDir()
				roots, chain := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "certificate.pem")
				for path, text := range map[string]string{roots: a.RootsPEM(), chain: c.Chain} {
					if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				verify := []string{"verify", "-x509_strict", "-CAfile", roots, "-untrusted", chain}
				if out, ok := openssl(t, append(verify, chain)...); !ok {
					t.Errorf("openssl verify:\n%s", out)
				}
				calls := r.Role != wire.RoleService || r.ClientAuth
				if out, ok := openssl(t, append(verify, "-purpose", "sslclient", chain)...); ok != calls {
					t.Errorf("openssl verify -purpose sslclient = %v, want %v:\n%s", ok, calls, out)
				}
				serves := r.ServerAuth || r.Role == wire.RoleBroker
				if out, ok := openssl(t, append(verify, "-purpose", "sslserver", chain)...); ok != serves {
					t.Errorf("openssl verify -purpose sslserver = %v, want %v:\n%s", ok, serves, out)
				}
				checkText(t, chain, r, c)
			})
		}
	}
}

func checkText(t *testing.T, path string, r ca.Request, c *ca.Certificate) {
	t.Helper()
	text, ok := openssl(t, "x509", "-in", path, "-noout", "-text")
	if !ok {
		t.Fatalf("openssl x509 -text:\n%s", text)
	}
	for _, want := range []string{
		"CA:FALSE", "Digital Signature",
		"URI:spiffe://" + trustDomain + "/" + string(r.Role) + "/" + r.Name,
		c.NotAfter.Format("Not After : Jan _2 15:04:05 2006 GMT"),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("openssl x509 -text does not say %q:\n%s", want, text)
		}
	}
	serial, _ := openssl(t, "x509", "-in", path, "-noout", "-serial")
	if want := "serial=" + strings.ToUpper(c.Serial) + "\n"; serial != want {
		t.Errorf("openssl x509 -serial = %q, want %q", serial, want)
	}
}

func TestOpenSSLRequests(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		want string // key type
	}{
		"P-256":    {[]string{"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"}, "P-256"},
		"P-384":    {[]string{"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384", "-sha384"}, "P-384"},
		"Ed25519":  {[]string{"-newkey", "ed25519"}, "Ed25519"},
		"RSA-2048": {[]string{"-newkey", "rsa:2048"}, "RSA-2048"},
		"RSA-PSS":  {[]string{"-newkey", "rsa:2048", "-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:32"}, "RSA-2048"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			key, file := filepath.Join(dir, "private.pem"), filepath.Join(dir, "csr.pem")
			args := append([]string{"req", "-new", "-nodes", "-keyout", key, "-out", file,
				"-subj", "/O=Example/CN=web1.example.net", "-addext", "subjectAltName=DNS:web1.example.net,IP:192.0.2.1"}, tt.args...)
			if out, ok := openssl(t, args...); !ok {
				t.Fatalf("openssl %s:\n%s", strings.Join(args, " "), out)
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			block, _ := pem.Decode(b)
			c, err := ca.ParseCSR(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			if c.KeyType != tt.want || c.CommonName != "web1.example.net" || len(c.DNSNames) != 1 ||
				len(c.IPAddresses) != 1 {
				t.Errorf("ParseCSR = %+v, want %s for web1.example.net", c, tt.want)
			}
		})
	}
}
