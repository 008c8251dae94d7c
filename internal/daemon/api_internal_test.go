package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestARenewedCertificateFileIsUsableAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c, _ := newCertificateBy(t, time.Hour, func() time.Time { return now })
	path, key := filepath.Join(t.TempDir(), "certificate.pem"), filepath.Join(t.TempDir(), "key.pem")
	write := func() {
		t.Helper()
		issued, err := c.issue()
		if err != nil {
			t.Fatal(err)
		}
		writePair(t, issued, path, key)
	}
	write()
	cfg := DefaultConfig()
	cfg.API.Certificate, cfg.API.Key = path, key
	a, err := newAPI(cfg, nil, Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.usable(now); err != nil {
		t.Fatal(err)
	}
	now = now.Add(30 * time.Minute)
	write()
	if err := a.usable(now.Add(45 * time.Minute)); err != nil {
		t.Errorf("renewed, and not usable after the end of the first: %v", err)
	}
	if err := a.usable(now.Add(2 * time.Hour)); err == nil {
		t.Error("usable after its end")
	}
	if err := a.usable(now.Add(-2 * time.Hour)); err == nil {
		t.Error("usable before it begins")
	}
}

// writePair writes a certificate and its key.
func writePair(t *testing.T, c tls.Certificate, path, key string) {
	t.Helper()
	var text []byte
	for _, der := range c.Certificate {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	k, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: k}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
