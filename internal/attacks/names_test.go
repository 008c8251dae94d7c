package attacks_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/jwt"
)

// namingPolicy gives a certificate every name and address that its facts ask for, as a careless policy does.
const namingPolicy = `package muster.enroll

default allow := false

default approval := false

allow if not input.facts.wait

approval if input.facts.wait

certificate := {
	"dns_names": object.get(input.facts, "names", []),
	"ip_addresses": object.get(input.facts, "addresses", []),
	"server_auth": true,
}
`

// naming makes an installation with the policy above, and with names and addresses of every kind.
func naming(t *testing.T) *target {
	t.Helper()
	tg := install(t)
	for _, name := range []string{"open.rego", "open_test.rego"} {
		if err := os.Remove(tg.path("policy/" + name)); err != nil {
			t.Fatal(err)
		}
	}
	tg.write("policy/naming.rego", namingPolicy)
	tg.edit("provisioner.yaml", "names: [localhost]\n  addresses: [127.0.0.1]\n",
		"names: [localhost, api.attacks.test]\n  addresses: [127.0.0.1, 198.51.100.2]\n")
	tg.edit("provisioner.yaml", "    - 127.0.0.1\n", "    - 127.0.0.1\n    - 198.51.100.1\n")
	tg.write("provisioner.yaml", tg.read("provisioner.yaml")+"\nreserved: ['*.secret.attacks.test']\n")
	return tg
}

// leadsTo adds brokers to a token.
func leadsTo(c *jwt.Claims) {
	c.Brokers += ",nats://nats.attacks.test:4222,nats://198.51.100.3:4222,nats://[2001:db8::3]:4222"
}

type asked struct {
	Names     []string `json:"names,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	Wait      bool     `json:"wait,omitempty"`
}

func (a asked) facts(t testing.TB) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestReservedNamesAreRefusedWhereverOneComesIn has a row per class of reserved names and addresses, and tries each at
// every place where a name comes in.
func TestReservedNamesAreRefusedWhereverOneComesIn(t *testing.T) {
	t.Parallel()
	tg := naming(t)
	tg.start()
	tg.provision("db1.attacks.test")
	enrolling := tg.dial(tg.token(leadsTo))
	enroll := func(identity string, facts asked) (*member, string) {
		n := tg.node(identity, tg.token(leadsTo))
		n.Facts = facts.facts(t)
		reply := tg.ask(enrolling, n.Request())
		if reply.Refusal != nil {
			return nil, string(reply.Refusal.Code)
		}
		return &member{tg, n, reply.Enrolled}, ""
	}
	renewing, code := enroll("renewing.attacks.test", asked{})
	if renewing == nil {
		t.Fatal(code)
	}
	renew := renewing.renew
	order := func(args ...string) string {
		out, err := tg.muster(args...)
		if err == nil || strings.Count(out, "\n") != 1 {
			return out
		}
		return "refused"
	}
	count := 0
	fresh := func() string { count++; return fmt.Sprintf("web%d.attacks.test", count) }
	secret := filepath.Join(tg.dir, "secret")
	if err := os.WriteFile(secret, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	places := []place{
		{"identity", func(s string) string { _, code := enroll(s, asked{}); return code }, "identity_reserved"},
		{"policy's dns_names", func(s string) string {
			_, code := enroll(fresh(), asked{Names: []string{"www.attacks.test", s}})
			return code
		}, "certificate_failed"},
		{"policy's dns_names at a renewal", func(s string) string { return renew(asked{Names: []string{s}}) },
			"certificate_failed"},
		{"allow add", func(s string) string { return order("allow", "add", s) }, "refused"},
		{"a token's identities", func(s string) string {
			return order("jwt", "sign", filepath.Join(t.TempDir(), "t.jwt"), "prov/signer-key.pem", "--secret-file", secret,
				"--urls", "nats.attacks.test:4222", "--identity", s)
		}, "refused"},
	}
	const (
		everywhere  = 5
		provisioner = 4 // signing knows no installation
		requests    = 3 // orders know no token
	)
	list := ""
	for name, upTo := range map[string]int{
		"localhost": everywhere, "localhost.localdomain": everywhere, "x.localhost": everywhere,
		"ip6-localhost": everywhere, "puppet": everywhere, "ca": everywhere, "autosign": everywhere,
		"validate": everywhere, "root.mcollective": everywhere, "a.b.choria": everywhere,
		"broker.attacks.test": provisioner, "api.attacks.test": provisioner, "x.secret.attacks.test": provisioner,
		"nats.attacks.test": requests,
	} {
		for _, p := range places[:upTo] {
			p.check(t, name)
		}
		if upTo > requests {
			list += "  - pattern: " + name + "\n"
		}
	}
	file := filepath.Join(tg.dir, "list.yaml")
	if err := os.WriteFile(file, []byte("allow:\n"+list), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := tg.muster("allow", "import", file, "--source", "racks")
	if n := strings.Count(out, "entry "); err == nil || n != strings.Count(list, "\n") {
		t.Errorf("an import is refused for %d entries, want %d: %v\n%s", n, strings.Count(list, "\n"), err, out)
	}
	for _, name := range []string{"db1.attacks.test", "*.attacks.test", "*", "DB1.attacks.test", "Localhost.",
		"192.0.2.1", "www.attacks.test\x00.example", "www_1.attacks.test", ""} {
		for _, p := range places[1:3] {
			p.check(t, name)
		}
	}
	for _, address := range []string{"127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "224.0.0.1",
		"255.255.255.255", "ff02::1", "fe80::1", "169.254.169.254", "198.51.100.1", "198.51.100.2", "198.51.100.3",
		"::ffff:198.51.100.1", "2001:db8:0::3", "192.0.2.0/24", "192.0.2.256", "3221225985", "web1.attacks.test", "",
	} {
		_, code := enroll(fresh(), asked{Addresses: []string{"192.0.2.7", address}})
		if again := renew(asked{Addresses: []string{address}}); code != "certificate_failed" || again != code {
			t.Errorf("address %q: %q, and at a renewal %q", address, code, again)
		}
	}
	good := asked{Names: []string{"www.attacks.test"}, Addresses: []string{"192.0.2.7", "2001:db8::7"}}
	www, code := enroll("web.attacks.test", good)
	if www == nil {
		t.Fatalf("good names are refused as %s", code)
	}
	block, _ := pem.Decode([]byte(www.enrolled.Certificate))
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !slices.Equal(leaf.DNSNames, []string{"web.attacks.test", "www.attacks.test"}) ||
		len(leaf.IPAddresses) != 2 || leaf.VerifyHostname("192.0.2.7") != nil || leaf.VerifyHostname("2001:db8::7") != nil {
		t.Errorf("good names: a certificate for %v and %v, %v", leaf.DNSNames, leaf.IPAddresses, err)
	}
	if code := www.renew(good); code != "" {
		t.Errorf("a renewal with good names is refused as %s", code)
	}
}

// A place is one where names come in.
type place struct {
	name string
	try  func(name string) string
	want string
}

func (p place) check(t *testing.T, name string) {
	t.Helper()
	if got := p.try(name); got != p.want {
		t.Errorf("%q as %s: %q, want %q", name, p.name, got, p.want)
	}
}

// A member is a node with a certificate.
type member struct {
	tg       *target
	node     *simnode.Node
	enrolled *wire.Enrolled
}

// renew asks for another certificate with these facts, and returns the code of the refusal.
func (m *member) renew(facts asked) string {
	t := m.tg.t
	t.Helper()
	next, err := m.node.Successor()
	if err != nil {
		t.Fatal(err)
	}
	m.node.Facts = facts.facts(t)
	r, err := m.node.Renewal(next)
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := m.node.DialFleet("nats://"+m.tg.broker, m.enrolled)
	if err != nil {
		t.Fatal(err)
	}
	defer fleet.Close()
	reply, err := simnode.Renew(within(t), fleet, r)
	if err != nil {
		t.Fatal(err)
	}
	if reply.Refusal != nil {
		return string(reply.Refusal.Code)
	}
	return ""
}

// TestNamesThatBecameReservedGetNoOrder: a rule that is younger than a record or a wait ends no renewal, but no order
// gives the name to a key.
func TestNamesThatBecameReservedGetNoOrder(t *testing.T) {
	t.Parallel()
	tg := naming(t)
	tg.start()
	tg.provision("db1.attacks.test")
	thief := tg.node("db1.attacks.test", tg.token(nil))
	waits := tg.node("web1.attacks.test", tg.token(nil))
	waits.Facts = asked{Wait: true}.facts(t)
	for _, n := range []*simnode.Node{thief, waits} {
		if reply := tg.ask(tg.dial(n.Token), n.Request()); reply.Refusal == nil {
			t.Fatalf("%s does not wait", n.Identity)
		}
	}
	tg.stop()
	tg.edit("provisioner.yaml", "*.secret.attacks.test", "*.attacks.test")
	tg.start()
	for _, args := range [][]string{
		{"node", "approve", "web1.attacks.test"},
		{"node", "grant", "db1.attacks.test", "--why", "x", "--fingerprint", fingerprintOf(t, thief.Key.Public())},
	} {
		out, err := tg.muster(args...)
		if err == nil || !strings.Contains(out, "is reserved by the pattern *.attacks.test") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

func fingerprintOf(t *testing.T, key crypto.PublicKey) string {
	t.Helper()
	id, err := jwt.Fingerprint(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(id)
}

// sign makes a certificate of an authority for its issuing key, signed by its root.
func (tg *target) resign(edit func(*x509.Certificate), key crypto.Signer) {
	tg.t.Helper()
	der := func(name string) []byte {
		block, _ := pem.Decode([]byte(tg.read(name)))
		return block.Bytes
	}
	root, err := x509.ParseCertificate(der("ca/root.pem"))
	if err != nil {
		tg.t.Fatal(err)
	}
	rootKey, err := jwt.ParsePrivateKey([]byte(tg.read("ca/root-key.pem")), nil)
	if err != nil {
		tg.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "constrained"}, NotBefore: root.NotBefore,
		NotAfter: time.Now().AddDate(2, 0, 0), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true, SubjectKeyId: []byte{1, 2, 3},
	}
	edit(template)
	made, err := x509.CreateCertificate(rand.Reader, template, root, key.Public(), rootKey)
	if err != nil {
		tg.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tg.t.Fatal(err)
	}
	encode := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	tg.write("ca/issuing.pem", encode("CERTIFICATE", made))
	tg.write("ca/issuing-key.pem", encode("PRIVATE KEY", private))
}

// TestAuthoritiesAreTriedAtTheStart has an issuing certificate per row; the provisioner starts with those alone whose
// certificates nodes accept.
func TestAuthoritiesAreTriedAtTheStart(t *testing.T) {
	t.Parallel()
	tg := install(t)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		edit func(*x509.Certificate)
		key  crypto.Signer
		good bool
	}{
		"no limits": {func(*x509.Certificate) {}, ec, true},
		"only another domain": {func(c *x509.Certificate) {
			c.PermittedDNSDomainsCritical, c.PermittedDNSDomains = true, []string{"other.test"}
		}, ec, false},
		"only another domain, not critical": {func(c *x509.Certificate) {
			c.PermittedDNSDomains = []string{"other.test"}
		}, ec, false},
		"only the broker's name": {func(c *x509.Certificate) {
			c.PermittedDNSDomains = []string{"localhost"}
		}, ec, false},
		"all but the nodes' domain": {func(c *x509.Certificate) {
			c.ExcludedDNSDomains = []string{"attacks.test"}
		}, ec, false},
		"no addresses": {func(c *x509.Certificate) {
			c.ExcludedIPRanges = []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}}
		}, ec, false},
		"only URIs of another domain": {func(c *x509.Certificate) {
			c.PermittedURIDomains = []string{"other.test"}
		}, ec, false},
		"for clients alone": {func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}, ec, false},
		"for servers alone": {func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}, ec, false},
		"for CRLs alone":  {func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }, ec, false},
		"not for CRLs":    {func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCertSign }, ec, false},
		"no CA":           {func(c *x509.Certificate) { c.IsCA, c.MaxPathLenZero = false, false }, ec, false},
		"a small RSA key": {func(*x509.Certificate) {}, small, false},
		"a critical extension": {func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Critical: true, Value: []byte{5, 0}}}
		}, ec, false},
	} {
		tg.resign(tt.edit, tt.key)
		out, err := tg.muster("provisioner", "run", "--validate")
		if (err == nil) != tt.good || !tt.good && (!strings.Contains(out, "ca") || strings.Contains(out, "panic")) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	// The provisioner's name says nothing about the nodes'.
	const name = "\nname: broker.attacks.test\n"
	for other, domains := range map[string][]string{
		"\nname: broker\n":            {"attacks.test", "localhost"},
		"\nname: broker.infra.test\n": {"attacks.test", "localhost"},
	} {
		tg.resign(func(c *x509.Certificate) { c.PermittedDNSDomains = domains }, ec)
		tg.edit("provisioner.yaml", name, other)
		tg.must("provisioner", "run", "--validate")
		tg.edit("provisioner.yaml", other, name)
	}
	tg.resign(func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"other.test"} }, ec)
	tg.run()
	if status := tg.p.exit(); status != 78 {
		t.Errorf("under an authority for another domain the provisioner ends with %d, want 78", status)
	}

	// Limits that leave room: each certificate is checked before it leaves.
	tg.resign(func(c *x509.Certificate) {
		c.PermittedDNSDomainsCritical, c.PermittedDNSDomains = true, []string{"attacks.test", "localhost"}
	}, ec)
	tg.start()
	tg.provision("web1.attacks.test")
	n := tg.node("web1.other.test", tg.token(nil))
	if reply := tg.ask(tg.dial(n.Token), n.Request()); reply.Refusal == nil ||
		reply.Refusal.Code != wire.CodeCertificateFailed {
		t.Errorf("a node outside of the constraints: %+v, %+v", reply.Enrolled, reply.Refusal)
	}
	if names := tg.identities(); !slices.Equal(names, []string{"web1.attacks.test"}) {
		t.Errorf("on record: %v", names)
	}

}

// certify returns a self-signed certificate of a key in PEM that ends after the span.
func certify(t *testing.T, key crypto.Signer, life time.Duration) string {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(8), Subject: pkix.Name{CommonName: "second"},
		NotBefore: time.Now().AddDate(-1, 0, 0), NotAfter: time.Now().Add(life), DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestWhatEndsSoonIsSaid has a row per thing in use that ends, and looks for each in the warnings of --validate, in
// status and in the alarm.
func TestWhatEndsSoonIsSaid(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	tg := install(t)
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// Within max_lifetime, 90 days; and more than 30 days ahead.
	tg.resign(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(60 * day) }, key)
	tg.write("second.pem", certify(t, key, 10*day))
	third, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tg.write("third.pem", certify(t, third, -day))
	tg.write("api.pem", certify(t, key, 10*day))
	tg.edit("provisioner.yaml", "names: [localhost]\n  addresses: [127.0.0.1]\n",
		"certificate: api.pem\n  key: ca/issuing-key.pem\n")
	tg.edit("provisioner.yaml", "    - file: signer.pem\n",
		"    - file: signer.pem\n    - file: second.pem\n    - file: third.pem\n      name: third\n")
	files := []string{`the issuing certificate "constrained" of the present authority ends at`,
		`the certificate of signer "second" ends at`, `the certificate of signer "third" ended at`,
		"the certificate of the API, "}
	out := tg.must("provisioner", "run", "--validate")
	for _, line := range files {
		if !strings.Contains(out, line) {
			t.Errorf("--validate does not warn: %s\n%s", line, out)
		}
	}
	if n := strings.Count(out, "warning: "); n != len(files) {
		t.Errorf("--validate warns %d times, want %d:\n%s", n, len(files), out)
	}
	tg.start()
	for name, args := range map[string][]string{"anna": {"--validity", "20d"}, "ben": nil, "carl": {"--validity", "1d"},
		"dora": {"--validity", "3d"}} {
		tg.must(append([]string{"operator", "add", name, "--role", "viewer", "--certificate"}, args...)...)
	}
	for name, life := range map[string]time.Duration{"web1": 10 * day, "web2": 100 * day, "web3": 12 * time.Hour} {
		n := tg.node(name+".attacks.test", tg.token(func(c *jwt.Claims) {
			c.JTI, c.IssuedAt, c.ExpiresAt = name, time.Now(), time.Now().Add(life)
		}))
		if reply := tg.ask(tg.dial(n.Token), n.Request()); reply.Enrolled == nil {
			t.Fatalf("%s: %+v", name, reply.Refusal)
		}
	}
	used := tg.node("db1.attacks.test", tg.token(func(c *jwt.Claims) {
		c.JTI, c.IssuedAt, c.ExpiresAt = "once", time.Now(), time.Now().Add(10*day)
		if err := c.SetLimits(jwt.Limits{Uses: 1}); err != nil {
			t.Fatal(err)
		}
	}))
	tg.ask(tg.dial(used.Token), used.Request())

	standing := func() (lines []string) {
		var s struct{ Standing []string }
		tg.list(&s, "status")
		for _, line := range s.Standing {
			if strings.HasPrefix(line, "alarm ends_soon ") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	want := append(slices.Clone(files), "the certificate of operator anna ends at",
		"the certificate of operator dora ends at", "the token ")
	said := func(want []string) func() bool {
		return func() bool {
			lines := strings.Join(standing(), "\n")
			return strings.Count(lines, " ends at ")+strings.Count(lines, " ended at ") == len(want) &&
				!slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(lines, w) })
		}
	}
	eventually(t, "status has all that ends", said(want))
	if text := tg.must("events", "--type", "alarm.raised", "-o", "jsonl"); !strings.Contains(text, "operator anna") {
		t.Errorf("no alarm about anna: %s", text)
	}
	tg.must("operator", "remove", "anna", "--why", "left")
	want = slices.DeleteFunc(want, func(w string) bool { return strings.Contains(w, "anna") })
	eventually(t, "the operator's line is gone", said(want))
	tg.stop()
	tg.start()
	eventually(t, "a restart forgets nothing", said(want))
}
