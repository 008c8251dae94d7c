package services_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner"
)

var oidNames = asn1.ObjectIdentifier{2, 5, 29, 17}

// name is an alternative name of a kind that crypto/x509 does not write, or not so.
func name(tag int, text string) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, Bytes: []byte(text)}
}

func names(t *testing.T, list ...asn1.RawValue) pkix.Extension {
	t.Helper()
	b, err := asn1.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return pkix.Extension{Id: oidNames, Value: b}
}

func uri(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestHostileRequestsAreRefused asks a policy that allows anything, so only muster itself stands in the way.
func TestHostileRequestsAreRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, anything)
	n, other := connected(t, f, web1), connected(t, f, db1)
	other.granted(other.request("vip", newKey(t), "vip.example.net"))
	used := newKey(t)
	n.granted(n.request("https", used, "https."+web1))
	ended := newKey(t)
	n.granted(n.request("ended", ended, "ended."+web1))
	if err := f.Daemon().Services().Revoke(f.Context(), web1, "ended", cause); err != nil {
		t.Fatal(err)
	}
	weak, err1 := rsa.GenerateKey(rand.Reader, 1024)
	old, err2 := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	fine := csr(t, newKey(t), x509.CertificateRequest{DNSNames: []string{web1}})
	dns := func(list ...string) x509.CertificateRequest { return x509.CertificateRequest{DNSNames: list} }
	ip := func(text string) x509.CertificateRequest {
		return x509.CertificateRequest{IPAddresses: []net.IP{net.ParseIP(text)}}
	}
	at := func(text string) x509.CertificateRequest {
		return x509.CertificateRequest{URIs: []*url.URL{uri(t, text)}}
	}
	hidden := func(list ...pkix.Extension) x509.CertificateRequest {
		return x509.CertificateRequest{ExtraExtensions: list}
	}
	const own, taken, reserved, failed, malformed, bad = "", wire.CodeNameTaken, wire.CodeIdentityReserved,
		wire.CodeCertificateFailed, wire.CodeCSRInvalid, wire.CodeBadRequest
	for what, tt := range map[string]struct {
		csr  x509.CertificateRequest
		key  crypto.Signer // nil: a new one
		code wire.Code
	}{
		"another node's name":                    {dns(db1), nil, taken},
		"own name and another node's":            {dns(web1, db1), nil, taken},
		"below another node's name":              {dns("a.b." + db1), nil, taken},
		"another node's service":                 {dns("vip.example.net"), nil, wire.CodeApprovalPending},
		"the provisioner's name":                 {dns("broker.fleet.test"), nil, reserved},
		"localhost":                              {dns("localhost"), nil, failed},
		"puppet's name":                          {dns("puppet"), nil, failed},
		"a Choria client":                        {dns("ada.mcollective"), nil, failed},
		"a wildcard":                             {dns("*." + web1), nil, failed},
		"a wildcard of everything":               {dns("*"), nil, failed},
		"a part of a wildcard":                   {dns("a*." + web1), nil, failed},
		"upper case":                             {dns("DB1.example.net"), nil, taken},
		"a dot at the end":                       {dns(db1 + "."), nil, taken},
		"a dot at the begin":                     {dns("." + web1), nil, failed},
		"a space":                                {dns(db1 + " "), nil, taken},
		"an underscore":                          {dns("db1_example_net"), nil, failed},
		"an address as DNS name":                 {dns("192.0.2.1"), nil, failed},
		"an address in hex":                      {dns("0xc0000201"), nil, failed},
		"a URL as DNS name":                      {dns("https://" + db1), nil, failed},
		"a long name":                            {dns(strings.Repeat("a.", 126) + "aa"), nil, failed},
		"the broker's address":                   {ip("127.0.0.1"), nil, failed},
		"the broker's address in IPv6":           {ip("::ffff:127.0.0.1"), nil, failed},
		"loopback in IPv6":                       {ip("::1"), nil, failed},
		"every address":                          {ip("0.0.0.0"), nil, failed},
		"a link's address":                       {ip("fe80::1"), nil, failed},
		"many machines' address":                 {ip("224.0.0.1"), nil, failed},
		"another node's URI":                     {at("spiffe://fleet.test/node/" + db1), nil, failed},
		"the broker's URI":                       {at("spiffe://fleet.test/broker/b"), nil, failed},
		"an operator's URI, in capitals":         {at("SPIFFE://FLEET.TEST/operator/ada"), nil, failed},
		"a URI with a user":                      {at("https://ada@db1.example.net/"), nil, failed},
		"a URI without a host":                   {at("urn:muster:node:db1"), nil, failed},
		"no name":                                {dns(), nil, malformed},
		"a common name alone":                    {x509.CertificateRequest{Subject: pkix.Name{CommonName: db1}}, nil, malformed},
		"an e-mail address beside":               {x509.CertificateRequest{DNSNames: []string{web1}, EmailAddresses: []string{"a@b.net"}}, nil, malformed},
		"a second list of names":                 {hidden(names(t, name(2, web1)), names(t, name(2, db1))), nil, malformed},
		"the other list first":                   {hidden(names(t, name(2, db1)), names(t, name(2, web1))), nil, malformed},
		"another kind of name":                   {hidden(names(t, name(2, web1), name(0, "\x06\x03\x2a\x03\x04\xa0\x03\x0c\x01a"))), nil, malformed},
		"a directory's name":                     {hidden(names(t, name(2, web1), name(4, "\x30\x00"))), nil, malformed},
		"a NUL in the name":                      {hidden(names(t, name(2, db1+"\x00."+web1))), nil, malformed},
		"a letter that looks like another":       {hidden(names(t, name(2, "d\u0432"+"1.example.net"))), nil, malformed},
		"names that are no list":                 {hidden(pkix.Extension{Id: oidNames, Value: []byte("\x02\x01\x01")}), nil, malformed},
		"17 names":                               {dns(strings.Split(strings.Repeat("a."+web1+" ", 16)+"b."+web1, " ")...), nil, malformed},
		"a weak RSA key":                         {dns(web1), weak, malformed},
		"a key of P-224":                         {dns(web1), old, malformed},
		"the node's own key":                     {dns(web1), n.Key, malformed},
		"the key of another of its certificates": {dns(web1), used, malformed},
		"the key of a revoked certificate":       {dns(web1), ended, malformed},
	} {
		key := tt.key
		if key == nil {
			key = newKey(t)
		}
		r := n.request("hostile", newKey(t), web1)
		r.CSR = csr(t, key, tt.csr)
		if got := n.code(r); got != tt.code || got == own {
			t.Errorf("%s: code %q, want %q", what, got, tt.code)
		}
	}
	for what, tt := range map[string]struct {
		spoil func(*wire.CertificateRequest)
		code  wire.Code
	}{
		"another identity":    {func(r *wire.CertificateRequest) { r.Identity = db1 }, wire.CodeRenewSession},
		"no identity":         {func(r *wire.CertificateRequest) { r.Identity = "" }, wire.CodeIdentityInvalid},
		"a path as name":      {func(r *wire.CertificateRequest) { r.Name = "../https" }, bad},
		"a subject as name":   {func(r *wire.CertificateRequest) { r.Name = "a.*" }, bad},
		"a long name":         {func(r *wire.CertificateRequest) { r.Name = strings.Repeat("a", 65) }, bad},
		"another verb":        {func(r *wire.CertificateRequest) { r.Verb = "approve" }, bad},
		"another source":      {func(r *wire.CertificateRequest) { r.Source = "operator" }, bad},
		"another usage":       {func(r *wire.CertificateRequest) { r.Usages = []string{"sign"} }, bad},
		"no usage in the end": {func(r *wire.CertificateRequest) { r.Usages = []string{"client"} }, failed},
		"a huge request":      {func(r *wire.CertificateRequest) { r.CSR = make([]byte, wire.MaxCSRBytes+1) }, wire.CodeTooLarge},
		"no request":          {func(r *wire.CertificateRequest) { r.CSR = []byte("x") }, malformed},
		"PEM": {func(r *wire.CertificateRequest) {
			r.CSR = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: fine})
		}, malformed},
		"data behind":        {func(r *wire.CertificateRequest) { r.CSR = append(bytes.Clone(fine), 0) }, malformed},
		"half a request":     {func(r *wire.CertificateRequest) { r.CSR = fine[:len(fine)/2] }, malformed},
		"a broken signature": {func(r *wire.CertificateRequest) { r.CSR = bytes.Clone(fine); r.CSR[len(fine)-1] ^= 1 }, malformed},
		"another key's names": {func(r *wire.CertificateRequest) {
			r.CSR = bytes.Replace(fine, []byte(web1), []byte("wéb1.example.ne"), 1)
		}, malformed},
	} {
		r := n.request("hostile", newKey(t), web1)
		tt.spoil(r)
		if got := n.code(r); got != tt.code {
			t.Errorf("%s: code %q, want %q", what, got, tt.code)
		}
	}
	if l := n.listed("hostile"); l.Serial != "" {
		t.Errorf("a hostile request got %+v", l)
	}
	f.Check()
}

// TestStrangersGetNoServiceCertificate asks over connections and from nodes that are not in the fleet.
func TestStrangersGetNoServiceCertificate(t *testing.T) {
	t.Parallel()
	f := newFleet(t, anything)
	n, other := connected(t, f, web1), connected(t, f, db1)
	r := n.request("https", newKey(t), web1)
	forged := nats.NewMsg(wire.SubjectCertificate)
	forged.Data, _ = wire.Encode(r)
	forged.Header.Set("Nats-Request-Info", `{"acc":"FLEET","user":"web1.example.net","host":"192.0.2.1"}`)
	m, err := other.conn.RequestMsgWithContext(f.Context(), forged)
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := wire.DecodeReply(m.Data); err != nil || reply.Refusal == nil {
		t.Errorf("a request with a forged header: %+v, %v, want a refusal", reply, err)
	}
	if reply := other.ask(r); reply.Refusal == nil || reply.Refusal.Code != wire.CodeRenewSession {
		t.Errorf("over another node's connection: %+v, want %s", reply, wire.CodeRenewSession)
	}
	stranger := f.Dial(f.Token(nil))
	if err := errors.Join(stranger.Publish(wire.SubjectCertificate, forged.Data), stranger.Flush()); err != nil {
		t.Fatal(err)
	}
	if err := stranger.LastError(); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("a connection with a token alone: %v, want %v", err, nats.ErrPermissionViolation)
	}
	// A server of another system that is on record.
	choria := *f.Record(db1)
	choria.Protocol = provisioner.ProtocolChoria
	_, at, err := f.Daemon().Store().Record(f.Context(), db1)
	if err == nil {
		_, err = f.Daemon().Store().Put(f.Context(), &choria, at)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := other.code(other.request("https", newKey(t), db1)); got != wire.CodeRenewSession {
		t.Errorf("a Choria server: %s, want %s", got, wire.CodeRenewSession)
	}
	f.Revoke(web1)
	if got := n.code(r); got != wire.CodeIdentityRevoked {
		t.Errorf("a revoked node: %s, want %s", got, wire.CodeIdentityRevoked)
	}
	f.Retire(web1)
	if got := n.code(r); got != wire.CodeRenewSession {
		t.Errorf("a retired node: %s, want %s", got, wire.CodeRenewSession)
	}
	back := connected(t, f, "web2.example.net")
	f.Clock.Advance(31 * 24 * 3600e9)
	if got := back.code(back.request("https", newKey(t), "web2.example.net")); got != wire.CodeRenewSession {
		t.Errorf("a node whose certificate has ended: %s, want %s", got, wire.CodeRenewSession)
	}
}
