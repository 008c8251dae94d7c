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

// TestPuppetserverCA has an operator use the command of Puppet Server's authority: version 2.4 with the operator's
// certificate, a later one with a token.
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
	f.muster("operator", "add", "anna", "--role", "operator", "--certificate")
	f.write("anna.conf", `[main]
ca_server = localhost
ca_port = `+f.port+`
ssldir = `+f.path("anna")+`
localcacert = `+f.path("prov/puppet-ca/bundle.pem")+`
hostcrl = `+f.path(host.dir+"/var/ssl/crl.pem")+`
hostcert = `+f.path("anna.pem")+`
hostprivkey = `+f.path("anna.pem")+`
`)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(f.contents("prov/puppet-ca/bundle.pem")))
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	asks := func(c *client) {
		t.Helper()
		name := c.name
		status, b, err := c.once(t.Context(), h, http.MethodPut, "https://localhost:"+f.port+"/puppet-ca/v1/certificate_request/"+name,
			c.request)
		if err != nil || status != http.StatusOK {
			t.Fatalf("%s: status %d, %v: %s", name, status, err, b)
		}
	}
	for version, library := range libraries(t) {
		home, config := "nobody", f.path("anna.conf")
		if version != debian {
			home, config = f.path("home"), f.path(host.dir+"/conf/puppet.conf")
		}
		t.Run(version, func(t *testing.T) {
			own := *f
			own.T = t
			command := func(args ...string) (string, error) {
				return own.try(append([]string{"env", "HOME=" + home, "ruby", "-I", library, "-e",
					`require "puppetserver/ca/cli"; exit Puppetserver::Ca::Cli.run(ARGV)`, "--"},
					append(args, "--config", config)...)...)
			}
			expect := func(want string, args ...string) {
				t.Helper()
				if out, err := command(args...); err != nil || !strings.Contains(out, want) {
					t.Errorf("puppetserver ca %q prints %q, %v, want %q", args, out, err, want)
				}
			}
			name := func(s string) string { return s + strings.ReplaceAll(version, ".", "-") + ".example.net" }
			one, two, three := newClient(t, name("one")), newClient(t, name("two")), newClient(t, name("three"))
			for _, c := range []*client{one, two, three} {
				asks(c)
				f.waitRefused("approval_pending", c.name)
			}
			expect(one.name, "list")
			expect(one.name, "sign", "--certname", one.name)
			expect(two.name, "sign", "--all")
			expect(three.name, "list", "--all")
			asks(one) // a certificate is issued for the next request
			expect("", "revoke", "--certname", one.name)
			asks(two)
			expect("Cleaned files related to "+two.name, "clean", "--certname", two.name)
			expect("Successfully saved certificate for "+name("made"), "generate", "--certname", name("made"))
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

// debian is the version of the package ruby-puppetserver-ca-cli.
const debian = "2.4"

// libraries returns the directories of puppetserver-ca: Debian's, and PUPPETSERVER_CA with a newer one.
func libraries(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{debian: "/usr/lib/ruby"} // found without
	if dir := os.Getenv("PUPPETSERVER_CA"); dir != "" {
		all["2.7"] = filepath.Join(dir, "lib")
	}
	return all
}
