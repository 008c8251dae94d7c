package httpapi_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"testing"

	"muster/internal/setup"
	"muster/internal/testbed"
)

// roll rolls the certificate authority over, as `muster ca roll` and its lines in provisioner.yaml do.
func roll(t *testing.T, f *testbed.Fleet) {
	t.Helper()
	r := setup.Maker{Config: filepath.Join(f.Dir, "provisioner.yaml"), Now: f.Clock.Now}
	rolled, err := r.Roll()
	if err != nil {
		t.Fatal(err)
	}
	lines, err := rolled.Lines()
	if err != nil {
		t.Fatal(err)
	}
	section := regexp.MustCompile(`(?m)^ca:\n(?:[ #].*\n)*`)
	f.Write("provisioner.yaml", section.ReplaceAllLiteralString(f.Read("provisioner.yaml"), lines))
	f.Stop()
	f.Start()
}

// TestFilesAreDownloaded fetches roots and CRLs as programs do that read no JSON,
// after a roll-over, and verifies one by the other.
func TestFilesAreDownloaded(t *testing.T) {
	t.Parallel()
	f := served(t)
	old := f.Daemon().CRLs()[0].Issuer
	roll(t, f)
	get := func(path, form string) []byte {
		t.Helper()
		resp := raw(t, f, path, http.Header{})
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != form {
			t.Fatalf("%s: %d, %q, %v", path, resp.StatusCode, resp.Header.Get("Content-Type"), err)
		}
		return b
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(get("/v1/ca.pem", "application/x-pem-file")) {
		t.Error("no certificate in /v1/ca.pem")
	}
	present := get("/v1/crl.der", "application/pkix-crl")
	before := get("/v1/crl.der?issuer="+old, "application/pkix-crl")
	if bytes.Equal(present, before) {
		t.Error("both issuers have one CRL")
	}
	var all [][]byte
	for block, rest := pem.Decode(get("/v1/crl.pem", "application/x-pem-file")); block != nil; block, rest = pem.Decode(
		rest) {
		all = append(all, block.Bytes)
	}
	if len(all) != 2 || !bytes.Equal(all[0], present) || !bytes.Equal(all[1], before) {
		t.Errorf("%d CRLs in PEM, want the present issuer's and the one before's", len(all))
	}
	for _, der := range all {
		if _, err := x509.ParseRevocationList(der); err != nil {
			t.Error(err)
		}
	}
	if p := refused(t, f, http.MethodGet, "/v1/crl.der?issuer=00", nil); p.Status != http.StatusNotFound {
		t.Errorf("of nobody: %+v", *p)
	}
	if p := refused(t, f, http.MethodGet, "/v1/crl.der?isuer=00", nil); p.Status != http.StatusBadRequest {
		t.Errorf("a parameter that is none: %+v", *p)
	}
}
