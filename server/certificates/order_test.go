package certificates_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/certificates"
)

// Key and certificate of another program are not replaced before an operator says so. Adopted, they stay until their
// renewal.
func TestAdopt(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	leaf := n.selfSigned("etc/tls/web.key", "etc/tls/web.crt", "srv/web.pem")
	key, crt := n.read("etc/tls/web.key"), n.read("etc/tls/web.crt")
	n.specify("web", web)
	m := n.start()
	s := n.await("web", "stuck", stuck)
	if !strings.Contains(s.Reason, "has a key that muster did not make") || !strings.Contains(s.Advice, "adopt web") ||
		len(n.requests(wire.CertificateIssue)) > 0 {
		t.Errorf("status = %+v", s)
	}
	if err := n.order(m, certificates.Order{Verb: certificates.Adopt, Name: "web"}); err != nil {
		t.Fatal(err)
	}
	s = n.await("web", "adopted", in(certificates.Current))
	if s.Serial != leaf {
		t.Errorf("serial = %s, want %s", s.Serial, leaf)
	}
	m.stop()
	n.start()
	n.pass(2 * time.Minute)
	n.await("web", "adopted still", in(certificates.Current))
	if n.read("etc/tls/web.key") != key || n.read("etc/tls/web.crt") != crt || len(n.requests(wire.CertificateIssue)) > 0 {
		t.Error("what was adopted was replaced")
	}
	n.pass(life)
	n.await("web", "renewed", func(s certificates.Status) bool { return s.State == certificates.Current && s.Serial != leaf })
	n.checkFiles()
	if n.read("etc/tls/web.key") == key {
		t.Error("the key was kept")
	}
}

// An operator can have another program's key replaced at once.
func TestReplaceKeyOfAnotherProgram(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.selfSigned("etc/tls/web.key", "etc/tls/web.crt", "srv/web.pem")
	n.specify("web", web)
	m := n.start()
	n.await("web", "stuck", stuck)
	if err := n.order(m, certificates.Order{Verb: certificates.Renew, Name: "web"}); err != nil {
		t.Fatal(err)
	}
	n.await("web", "current", in(certificates.Current))
	n.checkFiles()
}

// What cannot be adopted, or ordered, says why.
func TestOrdersThatCannotBe(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.selfSigned("etc/tls/web.key", "etc/tls/web.crt", "srv/web.pem")
	n.write("etc/tls/web.crt", "")
	n.write("srv/web.pem", "")
	n.specify("web", web)
	n.specify("bad", "{}")
	m := n.start()
	n.push(map[string]wire.Specification{"pushed": parse(t, strings.ReplaceAll(simple("DIR/etc/tls/p.pem", ""), "DIR", n.dir))})
	n.await("web", "stuck", stuck)
	n.await("pushed", "current", in(certificates.Current))
	for _, c := range []struct {
		order certificates.Order
		want  string
	}{
		{certificates.Order{Verb: certificates.Adopt, Name: "web"}, "no key with its certificate"},
		{certificates.Order{Verb: certificates.Renew, Name: "bad"}, "not a valid specification"},
		{certificates.Order{Verb: certificates.Renew, Name: "other"}, `no service certificate "other"`},
		{certificates.Order{Verb: "stop", Name: "web"}, "want one of renew, rekey, adopt, remove and submit"},
		{certificates.Order{Verb: certificates.Remove, Name: "pushed"}, "the provisioner wants pushed"},
	} {
		if err := n.order(m, c.order); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.order.Verb, c.order.Name, err, c.want)
		} else if c.order.Name == "pushed" && advice.Of(err) == "" {
			t.Errorf("%v: no advice", err)
		}
	}
}

// Without its specification a certificate is forgotten, and its files stay.
func TestRemovedSpecificationKeepsFiles(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.specify("web", web)
	m := n.start()
	serial := n.await("web", "current", in(certificates.Current)).Serial
	if err := n.order(m, certificates.Order{Verb: certificates.Remove, Name: "web"}); err != nil {
		t.Fatal(err)
	}
	n.await("web", "forgotten", func(s certificates.Status) bool { return s.Name == "" })
	if n.checkFiles() != serial || len(n.requests(wire.CertificateRevoke)) > 0 || n.exists("etc/certificates.d/web.yaml") {
		t.Error("not all files were kept, or the certificate was revoked, or its specification is there")
	}
}

// With `removed: revoke` the files go and the certificate is revoked, as soon as there is a connection; but not what
// another program wrote.
func TestRemovedSpecificationRevokes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.specify("web", web+"removed: revoke\n")
	m := n.start()
	n.await("web", "current", in(certificates.Current))
	m.Connect(nil)
	n.write("srv/ca.pem", n.read("srv/web.pem")) // a person did
	if err := os.Remove(n.path("etc/certificates.d/web.yaml")); err != nil {
		t.Fatal(err)
	}
	n.await("web", "waiting to be revoked", func(s certificates.Status) bool { return s.State == certificates.Removing && s.Reason != "" })
	m.stop()
	n.start()
	n.await("web", "forgotten", func(s certificates.Status) bool { return s.Name == "" })
	if n.exists("etc/tls/web.key") || n.exists("srv/web.pem") || !n.exists("srv/ca.pem") || len(n.requests(wire.CertificateRevoke)) != 1 {
		t.Errorf("wrong files are left, or revoked: %v", n.requests(wire.CertificateRevoke))
	}
}

// A missing or unreadable directory, and a specification with a mistake, remove nothing.
func TestLostSpecificationsRemoveNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.specify("web", web+"removed: revoke\n")
	m := n.start()
	n.await("web", "current", in(certificates.Current))
	if err := os.Rename(n.path("etc/certificates.d"), n.path("gone")); err != nil {
		t.Fatal(err)
	}
	n.pass(2 * time.Minute)
	m.stop()
	n.start()
	n.await("web", "current", in(certificates.Current))
	if err := os.Rename(n.path("gone"), n.path("etc/certificates.d")); err != nil {
		t.Fatal(err)
	}
	n.specify("web", "{")
	n.await("web", "stuck", stuck)
	n.checkFiles()
	if len(n.requests(wire.CertificateRevoke)) > 0 {
		t.Error("the certificate was revoked")
	}
}

// Pushed specifications are kept until another set is pushed, and an empty set removes them. A file of the node with the same
// name goes first.
func TestPushed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	spec := parse(t, strings.ReplaceAll(simple("DIR/etc/tls/p.pem", `, mode: "0640"`)+"removed: revoke\n", "DIR", n.dir))
	m := n.start()
	n.push(map[string]wire.Specification{"p": spec})
	if s := n.await("p", "current", in(certificates.Current)); s.Source != "pushed" {
		t.Errorf("source = %s", s.Source)
	}
	m.stop()
	first := n.status("p").Serial
	if err := os.Remove(n.cfg.Pushed); err != nil {
		t.Fatal(err)
	}
	n.start() // no set says what is pushed
	n.pass(life * 76 / 100)
	n.await("p", "renewed", func(s certificates.Status) bool { return s.State == certificates.Current && s.Serial != first })
	n.specify("p", simple("DIR/srv/p.pem", ""))
	n.await("p", "of a file", func(s certificates.Status) bool { return s.Source == "file" && n.exists("srv/p.pem") })
	if err := os.Remove(n.path("etc/certificates.d/p.yaml")); err != nil {
		t.Fatal(err)
	}
	n.push(map[string]wire.Specification{"p": spec})
	n.await("p", "pushed again", func(s certificates.Status) bool { return s.Source == "pushed" && s.State == certificates.Current })
	n.push(map[string]wire.Specification{})
	n.await("p", "forgotten", func(s certificates.Status) bool { return s.Name == "" })
	if n.exists("etc/tls/p.pem") || len(n.requests(wire.CertificateRevoke)) != 1 {
		t.Errorf("the file is left, or revoked: %v", n.requests(wire.CertificateRevoke))
	}
}

// Metrics are for node_exporter.
func TestMetrics(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("etc/certificates.yaml", "metrics: DIR/muster.prom\n")
	n.specify("web", web)
	n.specify("bad", "{}")
	n.start()
	s := n.await("web", "current", in(certificates.Current))
	n.await("bad", "stuck", stuck)
	want := func(line string) func() bool {
		return func() bool { return n.exists("muster.prom") && strings.Contains(n.read("muster.prom"), line) }
	}
	for _, line := range []string{
		"# TYPE muster_certificate_not_after_seconds gauge\n",
		`muster_certificate_not_after_seconds{name="web"} ` + unix(s.NotAfter) + "\n",
		`muster_certificate_renew_at_seconds{name="web"} ` + unix(s.RenewAt) + "\n",
		`muster_certificate_not_after_seconds{name="bad"} 0` + "\n",
		`muster_certificate_stuck{name="web"} 0` + "\n",
		`muster_certificate_stuck{name="bad"} 1` + "\n",
	} {
		await(t, want(line), func() string { return "no line " + line + " in\n" + n.read("muster.prom") })
	}
}

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// selfSigned writes a key and a certificate of another program for a day, and returns the serial.
func (n *node) selfSigned(keyFile, certificateFile, both string) string {
	n.tb.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		n.tb.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7), NotAfter: time.Now().Add(24 * time.Hour), NotBefore: time.Now()}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		n.tb.Fatal(err)
	}
	k := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	c := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	for name, text := range map[string]string{keyFile: k, certificateFile: c, both: c + k} {
		if err := os.WriteFile(n.path(name), []byte(text), 0o600); err != nil { // base64 may have "DIR" in it
			n.tb.Fatal(err)
		}
	}
	return "7"
}
