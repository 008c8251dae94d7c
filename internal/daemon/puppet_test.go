package daemon_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/setup"
	"muster/internal/testbed"
)

// agents returns a client that trusts what agents trust.
func agents(t *testing.T, f *testbed.Fleet) *http.Client {
	t.Helper()
	bundle, err := os.ReadFile(filepath.Join(f.Dir, "puppet-ca/bundle.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("no bundle")
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestAgentsAreServedUntilTheProvisionerStops(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Puppet: true})
	before := f.PuppetURL()
	for range 2 {
		r, err := agents(t, f).Get(f.PuppetURL() + "/status/v1/simple")
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		leaf := r.TLS.PeerCertificates[0]
		if err := leaf.VerifyHostname("puppet.fleet.test"); err != nil {
			t.Error(err)
		}
		if issuer := leaf.Issuer.CommonName; !strings.HasSuffix(issuer, "Puppet CA") {
			t.Errorf("issued by %q", issuer)
		}
		f.Stop()
		f.Start()
	}
	if f.PuppetURL() != before {
		t.Errorf("URL %s, before %s", f.PuppetURL(), before)
	}
	f.Check()
}

// TestAgentsStayKnownWithoutAListener: another provisioner serves them.
func TestAgentsStayKnownWithoutAListener(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Puppet: true, Edit: func(c *daemon.Config) { c.Puppet.Listen = "" }})
	if url := f.PuppetURL(); url != "" {
		t.Errorf("serves at %s", url)
	}
	if n := len(f.Daemon().CRLs()); n != 2 {
		t.Errorf("%d CRLs, want the agents' too", n)
	}
	f.Check()
}

func TestEndOfTheAgentsAuthorityIsToldAYearBefore(t *testing.T) {
	t.Parallel()
	dir := install(t, nil)
	path := filepath.Join(dir, "provisioner.yaml")
	if _, err := (&setup.Maker{Config: path}).Puppet(); err != nil {
		t.Fatal(err)
	}
	for years, told := range map[int]bool{8: false, 9: true} {
		now := time.Now().AddDate(years, 0, 1)
		d, err := daemon.LoadWith(path, daemon.Options{Now: func() time.Time { return now }}, func(c *daemon.Config) {
			c.Puppet.Bundle = filepath.Join(dir, "puppet-ca/bundle.pem")
			c.Puppet.Key = filepath.Join(dir, "puppet-ca/key.pem")
			c.Puppet.RootCRL = filepath.Join(dir, "puppet-ca/root-crl.pem")
		})
		if err != nil {
			t.Fatal(err)
		}
		const want = `the issuing certificate "example.net Puppet CA" of the puppet authority ends at `
		if got := fmt.Sprint(d.EndsSoon()); strings.Contains(got, want) != told {
			t.Errorf("after %d years: %s", years, got)
		}
	}
}
