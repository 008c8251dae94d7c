package puppet_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPuppetserverCA has an operator use the command of Puppet Server's authority, with a token of muster's.
func TestPuppetserverCA(t *testing.T) {
	t.Parallel()
	f := newFleet(t, rules)
	host := f.machine(older, "auto-ops.example.net", "")
	host.must(0, "ssl", "bootstrap")
	f.run("openssl", "genpkey", "-algorithm", "ed25519", "-out", "ops-key.pem")
	f.run("openssl", "pkey", "-in", "ops-key.pem", "-pubout", "-out", "ops.pem")
	var added struct {
		Installation string `json:"installation"`
	}
	f.read(&added, "operator", "add", "ops", "--role", "operator", "--public-key", "ops.pem")
	f.write("home/.puppetlabs/token", f.muster("operator", "token", "ops", "--key", "ops-key.pem", "--installation",
		added.Installation))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(f.contents("prov/puppet-ca/bundle.pem")))
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	waits := func(name string) {
		t.Helper()
		c := newClient(t, name)
		status, b, err := c.once(t.Context(), h, http.MethodPut, "https://localhost:"+f.port+"/puppet-ca/v1/certificate_request/"+name,
			c.request)
		if err != nil || status != http.StatusOK {
			t.Fatalf("%s: status %d, %v: %s", name, status, err, b)
		}
		f.waitRefused("approval_pending", name)
	}
	for version, library := range libraries(t) {
		t.Run(version, func(t *testing.T) {
			own := *f
			own.T = t
			command := func(args ...string) (string, error) {
				return own.try(append([]string{"env", "HOME=" + f.path("home"), "ruby", "-I", library, "-e",
					`require "puppetserver/ca/cli"; exit Puppetserver::Ca::Cli.run(ARGV)`, "--"},
					append(args, "--config", f.path(host.dir+"/conf/puppet.conf"))...)...)
			}
			expect := func(want string, args ...string) {
				t.Helper()
				if out, err := command(args...); err != nil || !strings.Contains(out, want) {
					t.Errorf("puppetserver ca %q prints %q, %v, want %q", args, out, err, want)
				}
			}
			name := func(s string) string { return s + strings.ReplaceAll(version, ".", "-") + ".example.net" }
			for _, n := range []string{"one", "two", "three"} {
				waits(name(n))
			}
			expect(name("one"), "list")
			expect("Successfully signed certificate request for "+name("one"), "sign", "--certname", name("one"))
			expect(name("two"), "sign", "--all")
			expect(name("three"), "list", "--all")
			expect("Certificate for "+name("one")+" has been revoked", "revoke", "--certname", name("one"))
			expect("Cleaned files related to "+name("two"), "clean", "--certname", name("two"))
			expect("Successfully saved certificate for "+name("auto-made"), "generate", "--certname", name("auto-made"))
			if out, err := command("clean", "--certname", name("never")); err == nil {
				t.Errorf("an unknown name was cleaned: %s", out)
			}
		})
	}
	t.Run("a node is no operator", func(t *testing.T) {
		out, err := f.try("env", "HOME="+f.path("nobody"), "ruby", "-e",
			`require "puppetserver/ca/cli"; exit Puppetserver::Ca::Cli.run(ARGV)`, "--", "list", "--config",
			f.path(host.dir+"/conf/puppet.conf"))
		if err == nil {
			t.Errorf("it lists %s", out)
		}
	})
}

// libraries returns the directories of puppetserver-ca: Debian's, and PUPPETSERVER_CA with a newer one.
func libraries(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"2.4": "/usr/share/rubygems-integration"}
	if dir := os.Getenv("PUPPETSERVER_CA"); dir != "" {
		all["2.7"] = filepath.Join(dir, "lib")
	}
	return all
}
