package daemon_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
