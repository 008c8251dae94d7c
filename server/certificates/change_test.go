package certificates_test

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testdisk"
	"muster/internal/wire"
	"muster/server/certificates"
)

// Each key type is made, and keys of haproxy's order and names of facts are as specified.
func TestKeysAndNames(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.facts = `{"networks": {"internal": {"fqdn": "web1.internal.example.net"}}, "rack": 7}`
	for _, kind := range []string{"P-256", "P-384", "RSA-2048"} {
		n.specify(kind, `dns_names: ["{{.facts.networks.internal.fqdn}}", "rack{{.facts.rack}}.{{.identity}}"]
ip_addresses: [10.0.0.1, "2001:db8::1"]
uris: ["https://web.example.net/a"]
usages: [server, client]
profile: database
network: internal
key: {type: `+kind+`}
files:
  combined: {path: DIR/srv/`+kind+`.pem, order: [ca, key, certificate]}
`)
	}
	n.start()
	for _, kind := range []string{"P-256", "P-384", "RSA-2048"} {
		n.await(kind, "current", in(certificates.Current))
		if text := n.read("srv/" + kind + ".pem"); strings.Index(text, "PRIVATE KEY") < strings.Index(text, "CERTIFICATE") ||
			strings.Count(text, "BEGIN CERTIFICATE") != 2 {
			t.Errorf("%s: not authority, key and certificate:\n%s", kind, text)
		}
	}
	for _, r := range n.requests(wire.CertificateIssue) {
		csr, err := x509.ParseCertificateRequest(r.CSR)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(csr.DNSNames, csr.IPAddresses, csr.URIs, csr.Subject),
			"[web1.internal.example.net rack7.web1.example.net] [10.0.0.1 2001:db8::1] [https://web.example.net/a] "; got != want {
			t.Errorf("names = %s, want %s", got, want)
		}
		if r.Profile != "database" || r.Network != "internal" || !slices.Equal(r.Usages, []string{"server", "client"}) {
			t.Errorf("request = %+v", r)
		}
	}
}

// A kept key stays at renewals, and changes when an operator says so.
func TestKeptKey(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.specify("web", web+"key: {keep: true}\nrenew: 50%\n")
	m := n.start()
	s := n.await("web", "current", in(certificates.Current))
	if want := n.clock().Add(life / 2); s.RenewAt.Sub(want).Abs() > time.Minute {
		t.Errorf("renewal at %v, want %v", s.RenewAt, want)
	}
	key := n.read("etc/tls/web.key")
	n.pass(life * 3 / 4)
	renewed := func(from string) string {
		s := n.await("web", "renewed", func(s certificates.Status) bool { return s.Serial != from && s.State == certificates.Current })
		n.checkFiles()
		return s.Serial
	}
	second := renewed(s.Serial)
	if n.read("etc/tls/web.key") != key {
		t.Error("the key was not kept")
	}
	if err := n.order(m, certificates.Order{Verb: certificates.Rekey, Name: "web"}); err != nil {
		t.Fatal(err)
	}
	renewed(second)
	if n.read("etc/tls/web.key") == key {
		t.Error("the key was kept")
	}
	n.checkTidy()
}

// Another span, another name, another mode and another path of the specification take effect; a lost or changed file is
// mended, with its action.
func TestChanges(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.action("reload", "echo >>DIR/reloads")
	n.specify("web", web+"action: reload\n")
	n.start()
	s := n.await("web", "current", in(certificates.Current))
	n.specify("web", web+"action: reload\nrenew: 1h\n")
	n.await("web", "to be renewed later", func(s certificates.Status) bool { return s.RenewAt.Equal(s.NotAfter.Add(-time.Hour)) })
	n.specify("web", strings.Replace(web, "mode: 0640", "mode: 0600", 1)+"action: reload\n")
	await(t, func() bool {
		info, err := os.Stat(n.path("srv/ca.pem"))
		return err == nil && info.Mode() == 0o600
	}, func() string { return "the mode is not set" })
	n.specify("web", strings.Replace(web, "svc.", "db.", 1)+"action: reload\n")
	second := n.await("web", "for another name", func(s certificates.Status) bool {
		return slices.Equal(s.Names, []string{"db." + identity}) && s.State == certificates.Current
	})
	if second.Serial == s.Serial {
		t.Error("no new certificate")
	}
	reloads := strings.Count(n.read("reloads"), "\n")
	if err := os.Remove(n.path("etc/tls/web.key")); err != nil {
		t.Fatal(err)
	}
	n.write("srv/web.pem", "")
	n.pass(2 * time.Minute)
	await(t, func() bool { return n.exists("etc/tls/web.key") && strings.Count(n.read("reloads"), "\n") == reloads+1 },
		func() string { return "not mended" })
	if s := n.await("web", "current", in(certificates.Current)); s.Serial != second.Serial || n.read("srv/web.pem") == "" {
		t.Errorf("after mending: %+v", s)
	}
}

// A node that got another name asks for its certificates anew.
func TestAnotherIdentity(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.specify("web", web)
	m := n.start()
	n.await("web", "current", in(certificates.Current))
	n.connect(m, "web2.example.net")
	n.await("web", "for the new name", func(s certificates.Status) bool {
		return slices.Equal(s.Names, []string{"svc.web2.example.net"}) && s.State == certificates.Current
	})
}

// A clock that goes back renews nothing, and one that is behind does not matter.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.specify("web", web)
	m := n.start()
	first := n.await("web", "current", in(certificates.Current)).Serial
	m.stop()
	n.pass(-10 * 365 * 24 * time.Hour)
	m = n.start()
	n.says(refusal(wire.CodeBusy, 0))
	n.write("etc/tls/web.crt", "")
	await(t, func() bool { return n.order(m, certificates.Order{Verb: certificates.Renew, Name: "web"}) == nil },
		func() string { return "no order is taken" })
	n.await("web", "asking", func(s certificates.Status) bool { return s.Error != "" })
	if s := n.status("web"); s.Serial != first || s.Stuck {
		t.Errorf("status = %+v", s)
	}
	n.pass(10 * 365 * 24 * time.Hour)
	n.says(nil)
	n.await("web", "current again", func(s certificates.Status) bool { return s.State == certificates.Current && s.Serial != first })
	n.checkFiles()
}

// A disk that is full or read-only leaves the former files in force, says so, and is used again once it has space.
func TestDisk(t *testing.T) {
	t.Parallel()
	disk := testdisk.New(t, 16<<20)
	n := newNode(t)
	target := filepath.Join(disk.Dir, "tls")
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	n.specify("web", strings.Replace(web, "DIR/srv/web.pem", target+"/web.pem", 1))
	m := n.start()
	first := n.await("web", "current", in(certificates.Current)).Serial
	files := func() string {
		b, err := os.ReadFile(target + "/web.pem")
		if err != nil {
			t.Error(err)
		}
		return string(b) + n.read("etc/tls/web.key") + n.read("etc/tls/web.crt")
	}
	before := files()
	disk.Fill(0)
	n.pass(life * 76 / 100)
	s := n.await("web", "stuck", func(s certificates.Status) bool { return s.Stuck && s.State == certificates.Issued })
	if !strings.Contains(s.Reason, "no space left on device") || s.Serial != first {
		t.Errorf("status = %+v", s)
	}
	if files() != before {
		t.Error("files were changed")
	}
	disk.Free()
	n.await("web", "renewed", func(s certificates.Status) bool { return s.State == certificates.Current && s.Serial != first })
	if files() == before {
		t.Error("files were not changed")
	}
	m.stop()
	n.checkTidy()
}

// An unreadable state file costs a new certificate, and no operator.
func TestUnreadableState(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.complete(t)
	n.write("etc/ssl/certificates/web.json", "{")
	if _, err := certificates.New(n.cfg).Statuses(); err == nil || !strings.Contains(err.Error(), "web.json: unexpected end of JSON input") {
		t.Errorf("error = %v", err)
	}
	n.start()
	n.await("web", "current", in(certificates.Current))
	n.checkFiles()
}
