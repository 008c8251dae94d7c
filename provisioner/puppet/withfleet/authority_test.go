package puppet_test

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/operate"
)

// allowAll is a policy that approves every agent, and gives it the pp_role that it asks for.
const allowAll = `package muster.enroll

default allow := true

certificate := {"extensions": {"pp_role": input.csr.extensions.pp_role}}
`

// roots returns the certificates of GET certificate/ca.
func roots(t testing.TB, bundle string) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(bundle)) {
		t.Fatalf("bundle %q", bundle)
	}
	return pool
}

// lists returns the CRLs of GET certificate_revocation_list/ca, by the issuer's name.
func lists(t testing.TB, text string) map[string]*x509.RevocationList {
	t.Helper()
	all := make(map[string]*x509.RevocationList)
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		l, err := x509.ParseRevocationList(block.Bytes)
		must(t, err)
		all[string(l.RawIssuer)] = l
	}
	return all
}

func (a *agent) listed() bool {
	a.t.Helper()
	l := lists(a.t, a.get("certificate_revocation_list/ca").body)[string(a.leaf.RawIssuer)]
	return l != nil && slices.ContainsFunc(l.RevokedCertificateEntries, func(e x509.RevocationListEntry) bool {
		return e.SerialNumber.Cmp(a.leaf.SerialNumber) == 0
	})
}

// TestAgentsBootstrap plays `puppet ssl bootstrap`, with all kinds of keys.
func TestAgentsBootstrap(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	for name, key := range map[string]crypto.Signer{
		"rsa.example.net": newRSAKey(t, 2048),
		"ec.example.net":  nil,
	} {
		a := newAgent(t, f, name)
		if key != nil {
			a.key = key
		}
		bundle := a.get("certificate/ca")
		if bundle.status != 200 || !strings.HasPrefix(bundle.header.Get("Content-Type"), "text/plain") ||
			bundle.header.Get("X-Puppet-Version") == "" {
			t.Fatalf("%s: the bundle: %+v", name, bundle)
		}
		role, err := asn1.MarshalWithParams("web", "utf8")
		must(t, err)
		a.connect()
		request := a.csr(pkix.Extension{Id: extensionOID(13), Value: role})
		if got := a.do(http.MethodPut, ca+"certificate_request/"+name, request); got.status != 200 || got.body != "" ||
			got.header.Get("Content-Length") != "0" {
			t.Fatalf("%s: PUT: %+v", name, got)
		}
		got := a.get("certificate/" + name)
		if got.status != 200 {
			t.Fatalf("%s: %+v: %s", name, got, f.Cause(name))
		}
		a.take(got.body)
		if _, err := a.leaf.Verify(x509.VerifyOptions{
			Roots:       roots(t, bundle.body),
			CurrentTime: f.Clock.Now(),
			KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(a.leaf.DNSNames, []string{name}) {
			t.Errorf("%s: DNS names %q", name, a.leaf.DNSNames)
		}
		if !slices.ContainsFunc(a.leaf.Extensions, func(e pkix.Extension) bool {
			return e.Id.Equal(extensionOID(13)) && bytes.Equal(e.Value, role)
		}) {
			t.Errorf("%s: no pp_role in %v", name, a.leaf.Extensions)
		}
		if early := f.Clock.Now().Sub(a.leaf.NotBefore); early < 50*time.Minute { // the root is an hour old
			t.Errorf("%s: valid since %v", name, early)
		}
		if r := f.Record(name); r.State != provisioner.StateEnrolled || r.Protocol != provisioner.ProtocolPuppet {
			t.Errorf("%s: record %+v", name, r)
		}
		// The first request with the certificate confirms it.
		if got := a.get("certificate/" + name); got.status != 200 {
			t.Errorf("%s: own certificate: %+v", name, got)
		}
		if r := f.Record(name); r.State != provisioner.StateProvisioned || r.Next != nil {
			t.Errorf("%s: not confirmed: %+v", name, r)
		}
	}
	f.Check()
}

// TestLifeOfCertificatesFollowsTheAgentsVersion: agents before 8 never renew.
func TestLifeOfCertificatesFollowsTheAgentsVersion(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	const day = 24 * time.Hour
	for i, c := range []struct {
		version, program string
		days             time.Duration
	}{
		{"7.23.0", "", 5 * 365}, {"8.11.0", "", 365}, {"", "Puppet/7.30.0 Ruby/2.7", 5 * 365}, {"", "curl/8.0", 365},
		{"-7", "", 365},
	} {
		a := newAgent(t, f, fmt.Sprintf("n%d.example.net", i))
		a.version = c.version
		a.headers = map[string]string{"User-Agent": c.program}
		a.enroll()
		if a.leaf == nil {
			t.Fatalf("%+v: no certificate", c)
		}
		if got := a.leaf.NotAfter.Sub(f.Clock.Now()); got < c.days*day-time.Hour || got > c.days*day+time.Hour {
			t.Errorf("%+v: lives %v", c, got)
		}
	}
}

// TestBundleNeverChanges: `--ca_fingerprint` is over the bytes.
func TestBundleNeverChanges(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{})
	a := newAgent(t, f, web1)
	first := a.get("certificate/ca")
	f.Stop()
	f.Start()
	a.connect()
	second := a.get("certificate/ca")
	if sha256.Sum256([]byte(first.body)) != sha256.Sum256([]byte(second.body)) {
		t.Error("the bundle is another after a restart")
	}
	if first.body != f.Read("puppet-ca/bundle.pem") {
		t.Error("the bundle is not the file")
	}
}

// TestListsOfTheWholeChain: an agent verifies its server with its saved lists before it gets new ones, and so never
// again once one has lapsed.
func TestListsOfTheWholeChain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	a := enrolled(t, f, web1)
	bundle := a.get("certificate/ca").body
	got := a.get("certificate_revocation_list/ca")
	if got.status != 200 || !strings.HasPrefix(got.header.Get("Content-Type"), "text/plain") {
		t.Fatalf("lists: %+v", got)
	}
	found := lists(t, got.body)
	issuers := 0
	now := f.Clock.Now()
	for block, rest := pem.Decode([]byte(bundle)); block != nil; block, rest = pem.Decode(rest) {
		issuer, err := x509.ParseCertificate(block.Bytes)
		must(t, err)
		l := found[string(issuer.RawSubject)]
		if l == nil {
			t.Fatalf("no list of %s", issuer.Subject)
		}
		must(t, l.CheckSignatureFrom(issuer))
		if l.NextUpdate.Sub(now) < 4*365*24*time.Hour || now.Sub(l.ThisUpdate) < time.Hour {
			t.Errorf("list of %s: from %v to %v", issuer.Subject, l.ThisUpdate, l.NextUpdate)
		}
		issuers++
	}
	if issuers != 2 || len(found) != 2 {
		t.Errorf("%d authorities, %d lists, want 2", issuers, len(found))
	}
	if a.listed() {
		t.Error("a certificate in use is listed")
	}
	since := func(at time.Time) int {
		a.headers = map[string]string{"If-Modified-Since": at.UTC().Format(http.TimeFormat)}
		return a.get("certificate_revocation_list/ca").status
	}
	if got := since(now.Add(48 * time.Hour)); got != http.StatusNotModified {
		t.Errorf("a saved list that is newer: %d", got)
	}
	if got := since(now.Add(-time.Hour)); got != http.StatusOK {
		t.Errorf("a saved list that is older: %d", got)
	}
	if got := since(now.Add(time.Hour)); got != http.StatusOK {
		t.Errorf("a saved list, by a clock that is an hour ahead: %d", got)
	}
	a.headers = map[string]string{"If-Modified-Since": now.Add(48 * time.Hour).UTC().Format(http.TimeFormat)}
	if got := a.get("certificate/ca"); got.status != http.StatusNotModified || got.body != "" {
		t.Errorf("a saved bundle: %+v", got)
	}
	a.headers = nil

	// Revoked: refused at once, and on the list soon.
	f.Revoke(web1)
	if got := a.do(http.MethodPost, ca+"certificate_renewal", nil); got.status != http.StatusForbidden {
		t.Errorf("renewal of a revoked node: %+v", got)
	}
	if got := a.get("certificate/" + web1); got.status != http.StatusNotFound {
		t.Errorf("certificate of a revoked node: %+v", got)
	}
	f.Eventually("the certificate is listed", a.listed)
	if got := a.enroll(); got.status != http.StatusNotFound {
		t.Errorf("a revoked key got a certificate: %+v", got)
	}
}

// TestStrangersSeeNoCertificate: all names are alike to another address, and to another connection of a key.
func TestStrangersSeeNoCertificate(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	a := newAgent(t, f, web1)
	a.source = "127.0.0.1"
	a.enroll()
	if a.leaf == nil {
		t.Fatal("no certificate")
	}
	mine := func(c *agent, name string) answer { c.connect(); return c.get("certificate/" + name) }

	neighbor := newAgent(t, f, web2) // of the same address
	neighbor.source = "127.0.0.1"
	if got := mine(neighbor, web1); got.status != 200 {
		t.Errorf("`puppet ssl download_cert` of the same address: %+v", got)
	}
	f.Clock.Advance(11 * time.Minute)
	if got := mine(neighbor, web1); got.status != 404 {
		t.Errorf("after ten minutes: %+v", got)
	}

	stranger := newAgent(t, f, web2)
	stranger.source = "127.0.0.2"
	var bodies []string
	for _, name := range []string{web1, "nobody.example.net", "ca.example.net", "web1", "WEB1.example.net", "..", "a%2fb"} {
		got := mine(stranger, name)
		if got.status != 404 {
			t.Errorf("%s: %+v", name, got)
		}
		bodies = append(bodies, strings.TrimPrefix(got.body, "Could not find certificate "))
		delete(got.header, "Date")
		delete(got.header, "Content-Length")
		if want := "[nosniff] [8.7.0]"; fmt.Sprint(got.header["X-Content-Type-Options"], " ", got.header["X-Puppet-Version"]) != want {
			t.Errorf("%s: headers %v", name, got.header)
		}
	}
	if want := []string{web1, "nobody.example.net", "ca.example.net", "web1", "WEB1.example.net", "..", "a/b"}; !slices.Equal(bodies, want) {
		t.Errorf("texts end with %q", bodies)
	}

	// A second key of the same address hides neither the first one's certificate on its connection, nor gets it.
	other := newAgent(t, f, web1)
	other.source = "127.0.0.1"
	a.leaf = nil
	a.connect()
	a.put()
	if got := other.enroll(); got.status != 404 {
		t.Errorf("another key: %+v", got)
	}
	if got := a.get("certificate/" + web1); got.status != 200 {
		t.Errorf("the key's own connection: %+v", got)
	}
	if got := a.get("certificate/" + web2); got.status != 404 {
		t.Errorf("another name on this connection: %+v", got)
	}
}

// TestReasonNeedsAToken tells why there is no certificate only to an agent that showed a valid token.
func TestReasonNeedsAToken(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{DefaultPolicy: true})
	token := f.Token(nil)
	if len(token) <= 255 {
		t.Fatalf("the token has %d characters only", len(token))
	}
	proven := newAgent(t, f, web1)
	proven.challenge = token
	got := proven.enroll()
	if got.status != 404 || !strings.HasPrefix(got.body, "approval_pending: ") || strings.Contains(got.body, "certificate") {
		t.Errorf("with a token: %+v", got)
	}
	for what, challenge := range map[string]string{"none": "", "a wrong one": "abc", "a forged one": token[:len(token)-8] + "AAAAAAAA"} {
		a := newAgent(t, f, web2)
		a.challenge = challenge
		if got := a.enroll(); got.status != 404 || got.body != "Could not find certificate "+web2 {
			t.Errorf("with token %s: %+v", what, got)
		}
	}
	if strings.Contains(f.Log(), token) {
		t.Error("the token is in the log")
	}
}

// TestMendedRefusalIsJudgedAnew: the same request, and even the same connection, gets the certificate after the approval.
func TestMendedRefusalIsJudgedAnew(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{DefaultPolicy: true})
	a := newAgent(t, f, web1)
	if got := a.enroll(); got.status != 404 || got.body != "Could not find certificate "+web1 {
		t.Fatalf("before: %+v", got)
	}
	keys, err := f.Daemon().Orders().Keys.Waiting(f.Context(), web1)
	must(t, err)
	if len(keys) != 1 || keys[0].Protocol != "puppet" {
		t.Fatalf("waiting: %+v", keys)
	}
	_, err = f.Daemon().Orders().Keys.Approve(f.Context(), operate.Named(web1, ""), 0, testbed.Operator())
	must(t, err)
	f.Clock.Advance(3 * time.Second)
	if got := a.get("certificate/" + web1); got.status != 200 {
		t.Errorf("the same connection: %+v: %s", got, f.Cause(web1))
	}
	if got := a.enroll(); got.status != 200 {
		t.Errorf("the next try: %+v", got)
	}
	if n := len(f.Record(web1).Lineage); n != 1 {
		t.Errorf("%d keys", n)
	}
	f.Check()
}

// TestTokenAdmits takes a muster token as challengePassword, and counts its uses.
func TestTokenAdmits(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{DefaultPolicy: true})
	f.Allow("*.example.net")
	token := f.Token(testbed.Limited(1))
	first := newAgent(t, f, web1)
	first.challenge = token
	if got := first.enroll(); got.status != 200 {
		t.Fatalf("with a token: %+v: %s", got, f.Cause(web1))
	}
	second := newAgent(t, f, web2)
	second.challenge = token
	if got := second.enroll(); got.status != 404 || !strings.HasPrefix(got.body, "token_used_up: ") {
		t.Errorf("the second use: %+v", got)
	}
	third := newAgent(t, f, web2)
	if got := third.enroll(); got.status != 404 {
		t.Errorf("an ordinary entry of the allow-list admits without a token: %+v", got)
	}
	f.Check()
}

// TestRebuiltMachine has a new key. It waits until an operator gives the name away.
func TestRebuiltMachine(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	old := enrolled(t, f, web1)
	rebuilt := newAgent(t, f, web1)
	if got := rebuilt.enroll(); got.status != 404 || got.body != "Could not find certificate "+web1 {
		t.Fatalf("another key: %+v", got)
	}
	if cause := f.Cause(web1); !strings.HasPrefix(cause, "identity_taken") {
		t.Errorf("cause %s", cause)
	}
	secret, _, err := f.Daemon().Orders().Nodes.OneTime(f.Context(), web1, 0, testbed.Operator())
	must(t, err)
	thief := newAgent(t, f, web1)
	if got := thief.enroll(); got.status != 404 {
		t.Errorf("another key without the secret: %+v", got)
	}
	rebuilt.challenge = secret
	if got := rebuilt.enroll(); got.status != 200 {
		t.Fatalf("with the secret: %+v: %s", got, f.Cause(web1))
	}
	thief.challenge = secret
	if got := thief.enroll(); got.status != 404 {
		t.Errorf("the secret a second time: %+v", got)
	}
	old.connect()
	if got := old.do(http.MethodPost, ca+"certificate_renewal", nil); got.status != 403 {
		t.Errorf("the former key: %+v", got)
	}
	if strings.Contains(f.Log(), secret) {
		t.Error("the secret is in the log")
	}
	f.Check()
}

// TestRenewals keep key and extensions. Before it is time, an agent gets the certificate that it has.
func TestRenewals(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	a := newAgent(t, f, web1)
	role, err := asn1.MarshalWithParams("web", "utf8")
	must(t, err)
	a.connect()
	a.do(http.MethodPut, ca+"certificate_request/"+web1, a.csr(pkix.Extension{Id: extensionOID(13), Value: role}))
	a.take(a.get("certificate/" + web1).body)
	first := a.leaf
	renew := func() answer { return a.do(http.MethodPost, ca+"certificate_renewal", nil) }
	if got := renew(); got.status != 200 {
		t.Fatalf("at once: %+v: %s", got, f.Cause(web1))
	} else if a.take(got.body); !a.leaf.Equal(first) {
		t.Error("another certificate long before it is time")
	}
	f.Clock.Advance(340 * 24 * time.Hour)
	a.connect()
	got := renew()
	if got.status != 200 {
		t.Fatalf("in the last month: %+v: %s", got, f.Cause(web1))
	}
	if again := a.get("certificate/" + web1); again.body != got.body {
		t.Errorf("the former certificate's agent gets %+v, want the newest certificate", again)
	}
	a.take(got.body)
	if a.leaf.Equal(first) || !a.leaf.NotAfter.After(first.NotAfter.Add(300*24*time.Hour)) {
		t.Errorf("renewed until %v", a.leaf.NotAfter)
	}
	if !slices.ContainsFunc(a.leaf.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(extensionOID(13)) }) {
		t.Error("the renewed certificate has no pp_role")
	}
	f.Check()

	stranger := newAgent(t, f, web2)
	if got := stranger.do(http.MethodPost, ca+"certificate_renewal", nil); got.status != 403 ||
		got.body != "Forbidden request: /puppet-ca/v1/certificate_renewal (method :post). Please see the server logs for details." {
		t.Errorf("without a certificate: %+v", got)
	}
}

// TestMalformedRequests get a 400 with a text, or a 413, and no record.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	a := newAgent(t, f, web1)
	good := a.csr()
	small, large := newAgent(t, f, web1), newAgent(t, f, web1)
	small.key, large.key = newRSAKey(t, 1024), newRSAKey(t, 4104)
	forge := func(request []byte) []byte {
		block, _ := pem.Decode(request)
		block.Bytes[len(block.Bytes)-3] ^= 1
		return pem.EncodeToMemory(block)
	}
	block, _ := pem.Decode(good)
	named := func(name string) []byte { return newAgent(t, f, name).csr() }
	for what, c := range map[string]struct {
		path   string
		body   []byte
		status int
		text   string // part of it
	}{
		"empty":              {web1, nil, 400, ""},
		"text":               {web1, []byte("hello"), 400, ""},
		"DER":                {web1, block.Bytes, 400, ""},
		"two requests":       {web1, append(bytes.Clone(good), good...), 400, ""},
		"a forged signature": {web1, forge(good), 400, "signature"},
		"RSA of 1024 bits":   {web1, small.csr(), 400, "1024 bits"},
		"RSA of 4104 bits":   {web1, forge(large.csr()), 400, "4104 bits"}, // before the signature is verified
		"another name":       {web2, good, 400, `Instance name "web1.example.net" does not match requested key "web2.example.net"`},
		"upper case":         {"WEB1.example.net", named("WEB1.example.net"), 400, "Certificate names must be lower case."},
		"traversal":          {"..%2F..%2Fetc%2Fpasswd", named("../../etc/passwd"), 400, "Subject hostname format is invalid"},
		"dots":               {"..", named(".."), 400, "Subject hostname format is invalid"},
		"a wildcard":         {"*.example.net", named("*.example.net"), 400, "Subject hostname format is invalid"},
		"a NUL":              {"web1%00.example.net", named("web1\x00.example.net"), 400, ""},
		"encoded twice":      {"web1%252eexample.net", named(web1), 400, "does not match"},
		"17 KiB":             {web1, append(bytes.Clone(good), bytes.Repeat([]byte("\n"), 17<<10)...), 413, ""},
		"1 MB":               {web1, bytes.Repeat([]byte("a"), 1<<20), 413, ""},
	} {
		got := newAgent(t, f, web1).do(http.MethodPut, ca+"certificate_request/"+c.path, c.body)
		if got.status != c.status || !strings.Contains(got.body, c.text) || got.body == "" {
			t.Errorf("%s: %+v", what, got)
		}
	}
	for _, e := range f.Events() {
		if e.Type == events.Refused {
			t.Errorf("%s: a stranger's request is in the history of nodes, which a flood could displace", e.Cause)
		}
	}
	// Odd encodings of a good name name the same agent.
	if got := a.do(http.MethodPut, ca+"certificate_request/web1%2eexample%2Enet", good); got.status != 200 {
		t.Errorf("an encoded dot: %+v", got)
	}
	for _, path := range []string{"certificate_request/", "certificate_request/../certificate/ca", "certificate_request/%zz"} {
		if got := rawPut(t, f, ca+path); got != 403 && got != 400 {
			t.Errorf("%s: %d", path, got)
		}
	}
}

// rawPut sends a path as it is.
func rawPut(t *testing.T, f *testbed.Fleet, path string) int {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(f.PuppetURL(), "https://"), &tls.Config{InsecureSkipVerify: true})
	must(t, err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", path)
	must(t, err)
	var version string
	var status int
	_, err = fmt.Fscan(conn, &version, &status)
	must(t, err)
	return status
}

// TestHeadersNameNoCaller: only TLS does.
func TestHeadersNameNoCaller(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	victim := enrolled(t, f, web1)
	forged := map[string]string{
		"X-Client-Verify": "SUCCESS",
		"X-Client-Dn":     "CN=" + web1,
		"X-Client-Cert":   "-----BEGIN CERTIFICATE-----",
		"X-Ssl-Subject":   "/CN=" + web1,
	}
	stranger := newAgent(t, f, web1)
	stranger.source, stranger.headers = "127.0.0.2", forged
	for _, c := range [][2]string{
		{http.MethodPost, "certificate_renewal"}, {http.MethodGet, "certificate_statuses/any_key"},
		{http.MethodGet, "certificate_status/" + web1}, {http.MethodPut, "clean"}, {http.MethodDelete, "certificate_status/" + web1},
		{http.MethodPost, "sign"}, {http.MethodPost, "sign/all"},
	} {
		if got := stranger.do(c[0], ca+c[1], nil); got.status != 403 {
			t.Errorf("%s %s: %+v", c[0], c[1], got)
		}
	}
	if got := stranger.get("certificate/" + web1); got.status != 404 {
		t.Errorf("certificate: %+v", got)
	}
	victim.headers = map[string]string{"X-Client-Verify": "SUCCESS", "X-Client-Dn": "CN=" + web2}
	if got := victim.get("certificate/" + web2); got.status != 404 {
		t.Errorf("another node's: %+v", got)
	}
	// A node is no operator.
	for _, path := range []string{"certificate_statuses/any_key", "certificate_status/" + web1} {
		if got := victim.get(path); got.status != 403 {
			t.Errorf("a node reads %s: %+v", path, got)
		}
	}
}

// TestPendingNamesOfOneAddressAreBounded asks for a thousand names.
func TestPendingNamesOfOneAddressAreBounded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{DefaultPolicy: true, Quiet: true})
	a := newAgent(t, f, web1)
	a.source = "127.0.0.9"
	for i := range 1000 {
		a.name = fmt.Sprintf("n%d.example.net", i)
		a.put()
	}
	keys, err := f.Daemon().Orders().Keys.Waiting(f.Context(), "")
	must(t, err)
	if len(keys) == 0 || len(keys) > 64 {
		t.Errorf("%d keys wait, want 64 at most", len(keys))
	}
	if err := f.Daemon().Orders().Keys.Full(); err == nil || !strings.Contains(err.Error(), "127.0.0.9") {
		t.Errorf("the list does not say that it is full: %v", err)
	}
	honest := newAgent(t, f, web2)
	honest.source = "127.0.0.10"
	honest.enroll()
	if keys, err := f.Daemon().Orders().Keys.Waiting(f.Context(), web2); err != nil || len(keys) != 1 {
		t.Errorf("an agent of another address does not wait: %v, %v", keys, err)
	}
}

// TestCertificateThatWasRevokedIsNotGiven looks a certificate up that was issued before.
func TestCertificateThatWasRevokedIsNotGiven(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	a := newAgent(t, f, web1)
	a.connect()
	a.put()
	f.Revoke(web1)
	if got := a.get("certificate/" + web1); got.status != 404 {
		t.Errorf("a certificate that was revoked before the agent got it: %+v", got)
	}
}
