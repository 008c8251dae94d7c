// Package puppet_test plays Puppet agents, and operators with Puppet's tools, against a whole provisioner.
package puppet_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// newFleet starts a provisioner with a gateway.
func newFleet(t *testing.T, opts testbed.Options) *testbed.Fleet {
	t.Helper()
	opts.Puppet = true
	return testbed.New(t, opts)
}

// An agent plays a Puppet agent.
type agent struct {
	t    testing.TB
	f    *testbed.Fleet
	name string
	key  crypto.Signer

	challenge  string            // challengePassword, if not empty
	csrVersion int               // of the certificate request
	version    string            // X-Puppet-Version
	headers    map[string]string // sent with each request
	source     string            // the loopback address that it connects from; empty: any

	leaf   *x509.Certificate // the certificate that it has, shown in TLS; nil: none
	client *http.Client      // of one connection; nil: connect makes one
}

// newAgent returns an agent with a P-256 key.
func newAgent(t testing.TB, f *testbed.Fleet, name string) *agent {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return &agent{t: t, f: f, name: name, key: key, version: "8.11.0"}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newRSAKey returns a key as agents make it, of fewer bits.
func newRSAKey(t testing.TB, bits int) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	must(t, err)
	return key
}

var oidChallenge = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 7}

// extensionOID is that of pp_* extension n.
func extensionOID(n int) asn1.ObjectIdentifier {
	return asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 34380, 1, 1, n}
}

// csr returns a request in PEM, with extensions, and with the agent's challengePassword as Puppet writes it.
func (a *agent) csr(extensions ...pkix.Extension) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: a.name}, ExtraExtensions: extensions}, a.key)
	must(a.t, err)
	if a.challenge != "" || a.csrVersion != 0 {
		der = a.changed(der)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// changed adds to a request what package x509 cannot write, and signs again.
func (a *agent) changed(der []byte) []byte {
	t := a.t
	t.Helper()
	var request struct {
		TBS       asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	var info struct {
		Version    int
		Subject    asn1.RawValue
		Key        asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}
	_, err := asn1.Unmarshal(der, &request)
	must(t, err)
	_, err = asn1.Unmarshal(request.TBS.FullBytes, &info)
	must(t, err)
	attribute, err := asn1.Marshal(struct {
		ID     asn1.ObjectIdentifier
		Values []asn1.RawValue `asn1:"set"`
	}{oidChallenge, []asn1.RawValue{{Tag: asn1.TagUTF8String, Bytes: []byte(a.challenge)}}})
	must(t, err)
	if a.challenge != "" {
		info.Attributes = append(info.Attributes, asn1.RawValue{FullBytes: attribute})
	}
	info.Version = a.csrVersion
	request.TBS.FullBytes, err = asn1.Marshal(info)
	must(t, err)
	sum := sha256.Sum256(request.TBS.FullBytes)
	request.Signature.Bytes, err = a.key.Sign(rand.Reader, sum[:], crypto.SHA256)
	must(t, err)
	request.Signature.BitLength = 8 * len(request.Signature.Bytes)
	signed, err := asn1.Marshal(request)
	must(t, err)
	return signed
}

// answer is what a server said.
type answer struct {
	status int
	header http.Header
	body   string
}

// connect makes the next request use a new connection.
func (a *agent) connect() {
	if a.client != nil {
		a.client.CloseIdleConnections()
	}
	cfg := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	if a.leaf != nil {
		cfg.Certificates = []tls.Certificate{{Certificate: [][]byte{a.leaf.Raw}, PrivateKey: a.key}}
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if a.source != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(a.source)}
	}
	transport := &http.Transport{TLSClientConfig: cfg, DialContext: dialer.DialContext}
	a.client = &http.Client{Transport: transport, Timeout: time.Minute}
	a.t.Cleanup(a.client.CloseIdleConnections)
}

// do sends a request below the gateway's URL.
func (a *agent) do(method, path string, body []byte) answer {
	a.t.Helper()
	if a.client == nil {
		a.connect()
	}
	r, err := http.NewRequestWithContext(a.f.Context(), method, a.f.PuppetURL()+path, bytes.NewReader(body))
	must(a.t, err)
	r.Header.Set("X-Puppet-Version", a.version)
	for k, v := range a.headers {
		r.Header.Set(k, v)
	}
	got, err := a.client.Do(r)
	must(a.t, err)
	defer func() { _ = got.Body.Close() }()
	text, err := io.ReadAll(got.Body)
	must(a.t, err)
	return answer{got.StatusCode, got.Header, string(text)}
}

const ca = "/puppet-ca/v1/"

func (a *agent) get(path string) answer {
	a.t.Helper()
	return a.do(http.MethodGet, ca+path, nil)
}

// put sends the certificate request, which must be well-formed.
func (a *agent) put() {
	a.t.Helper()
	if got := a.do(http.MethodPut, ca+"certificate_request/"+a.name, a.csr()); got.status != 200 || got.body != "" {
		a.t.Fatalf("PUT certificate_request: %d %q", got.status, got.body)
	}
}

// enroll asks on one connection, as `puppet ssl bootstrap` does, and returns the answer of GET certificate. If it is a
// certificate, the agent shows it from then on.
func (a *agent) enroll() answer {
	a.t.Helper()
	a.connect()
	a.put()
	got := a.get("certificate/" + a.name)
	if got.status == http.StatusOK {
		a.take(got.body)
	}
	return got
}

// take checks a certificate and shows it from then on, on a new connection.
func (a *agent) take(text string) {
	a.t.Helper()
	block, rest := pem.Decode([]byte(text))
	if block == nil || len(rest) > 0 {
		a.t.Fatalf("certificate %q", text)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	must(a.t, err)
	if leaf.Subject.CommonName != a.name || !leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }).Equal(a.key.Public()) {
		a.t.Fatalf("certificate of %q, or for another key", leaf.Subject.CommonName)
	}
	a.leaf = leaf
	a.connect()
}

// enrolled returns an agent with a certificate.
func enrolled(t testing.TB, f *testbed.Fleet, name string) *agent {
	t.Helper()
	a := newAgent(t, f, name)
	if got := a.enroll(); got.status != http.StatusOK {
		t.Fatalf("%s has no certificate: %d %q: %s", name, got.status, got.body, f.Cause(name))
	}
	return a
}

// newOperator returns a client that shows an operator's token, as `puppetserver ca` does.
func newOperator(t testing.TB, f *testbed.Fleet, role trust.OperatorRole, sites ...jwt.Site) *agent {
	t.Helper()
	o := newAgent(t, f, "ops."+string(role)+".example.net")
	o.client, o.version = nil, ""
	public, err := jwt.MarshalPublicKey(o.key.Public())
	must(t, err)
	name := fmt.Sprint("ops-", role, len(sites))
	_, err = f.Daemon().Orders().Operators.Add(f.Context(),
		operate.NewOperator{Name: name, Role: role, Sites: sites, Public: public}, testbed.Operator())
	must(t, err)
	now := f.Clock.Now()
	token, err := jwt.SignOperator(o.key, jwt.OperatorClaims{
		Operator:  name,
		Audience:  f.Daemon().Store().Installation().ID,
		ID:        wire.NewID(),
		IssuedAt:  now,
		ExpiresAt: now.Add(time.Hour),
	})
	must(t, err)
	o.headers = map[string]string{"X-Authentication": token, "Accept": "application/json"}
	return o
}
