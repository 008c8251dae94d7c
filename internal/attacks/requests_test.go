package attacks_test

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
	"math/big"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/wire"
)

// hostileNames are no identities, each for another reason.
var hostileNames = map[string]string{
	"empty":                     "",
	"climbing":                  "../../etc",
	"a path":                    "/etc/passwd",
	"a wildcard":                "a.*",
	"part of a wildcard":        "a*.example.net",
	"everything":                ">",
	"everything below":          "example.>",
	"a space":                   "a b",
	"a line break":              "web1.example.net\nidentity = evil",
	"upper case":                "Web1.example.net",
	"trailing dot":              "web1.example.net.",
	"leading dot":               ".web1.example.net",
	"doubled dot":               "web1..example.net",
	"only a dot":                ".",
	"an underscore":             "_",
	"as one token":              "web1_example_net",
	"254 bytes":                 strings.Repeat(strings.Repeat("a", 62)+".", 4) + "aa",
	"a label of 64 bytes":       strings.Repeat("a", 64) + ".example.net",
	"30,000 bytes":              strings.Repeat("a", 30_000),
	"UTF-8":                     "wéb1.example.net",
	"a full-width dot":          "web1。example.net",
	"a letter that looks alike": "wеb1.example.net",
	"NUL":                       "web1.example.net\x00.evil.example",
	"invalid UTF-8":             "web1\xff.example.net",
	"an IPv4 address":           "192.0.2.1",
	"an IPv6 address":           "2001:db8::1",
	"a numeric top":             "web1.example.42",
	"a hyphen first":            "-web1.example.net",
	"a hyphen last":             "web1-.example.net",
	"a port":                    "web1.example.net:4222",
	"a user":                    "root@web1.example.net",
	"percent":                   "web1%2eexample.net",
	"a shell":                   "$(reboot).example.net",
	"a template":                "{{ .Token }}",
}

// TestHostileIdentities sends invalid names in requests, confirmations and renewals. Each is refused by name and leaves
// no record.
func TestHostileIdentities(t *testing.T) {
	t.Parallel()
	tg := newTarget(t)
	token := tg.token(nil)
	nc := tg.dial(token)
	member, e := tg.provision("web1.example.net")
	session, err := member.DialFleet("nats://"+tg.broker, e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	for name, identity := range hostileNames {
		n := &simnode.Node{Identity: identity, Token: token, Key: member.Key, CSR: member.CSR, Boot: wire.NewID()}
		applied, err := n.Confirm(&wire.Enrolled{Serial: "01"})
		if err != nil {
			t.Fatal(err)
		}
		renewal, err := n.Renewal(n)
		if err != nil {
			t.Fatal(err)
		}
		want := wire.CodeIdentityInvalid
		if name == "invalid UTF-8" {
			want = wire.CodeBadRequest
		}
		for subject, message := range map[string]any{
			wire.SubjectEnroll: n.Request(), wire.SubjectApplied: applied, wire.SubjectRenew: renewal,
		} {
			conn := nc
			if subject == wire.SubjectRenew {
				conn = session
			}
			if got := refusedRaw(t, conn, subject, message); got != want {
				t.Errorf("%s to %s: %q, want %s", name, subject, got, want)
			}
		}
	}
	if found := tg.identities(); !slices.Equal(found, []string{"web1.example.net"}) {
		t.Errorf("on record: %q", found)
	}
}

// refusedRaw sends a message with invalid UTF-8 left as it is, and returns the code of the refusal, "" for none.
func refusedRaw(t *testing.T, nc *nats.Conn, subject string, message any) wire.Code {
	t.Helper()
	b, err := wire.Encode(message)
	if err != nil {
		t.Fatal(err)
	}
	// Our encoder replaces invalid UTF-8; an attacker's does not.
	b = []byte(strings.ReplaceAll(string(b), "\ufffd", "\xff"))
	m, err := nc.RequestWithContext(within(t), subject, b)
	if err != nil {
		t.Fatal(err)
	}
	r, err := wire.DecodeReply(m.Data)
	if err != nil {
		t.Fatal(err)
	}
	if r.Refusal == nil {
		return ""
	}
	return r.Refusal.Code
}

// csr returns a certificate request in DER.
func csr(t *testing.T, key crypto.Signer, template x509.CertificateRequest) []byte {
	t.Helper()
	if template.Subject.CommonName == "" {
		template.Subject.CommonName = "web1.example.net"
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func der(t *testing.T, v any) []byte {
	t.Helper()
	b, err := asn1.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// hugeRSA returns a public key of that many bits, without a private key.
func hugeRSA(bits uint, exponent int) *rsa.PublicKey {
	n := new(big.Int).Lsh(big.NewInt(1), bits-1)
	return &rsa.PublicKey{N: n.SetBit(n, 0, 1), E: exponent}
}

// requestFor returns a certificate request for a foreign key, with a bad signature.
func requestFor(t *testing.T, pub *rsa.PublicKey) []byte {
	t.Helper()
	spki, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	info := der(t, struct {
		Version    int
		Subject    pkix.RDNSequence
		Key        asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}{0, pkix.Name{CommonName: "web1.example.net"}.ToRDNSequence(), asn1.RawValue{FullBytes: spki}, nil})
	signature := slices.Repeat([]byte{1}, pub.Size())
	return der(t, struct {
		Info      asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{asn1.RawValue{FullBytes: info},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11},
			Parameters: asn1.NullRawValue},
		asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}})
}

// TestHostileCertificateRequests asks for more than is allowed. Malformed requests are refused by name, and foreign
// names by the built-in policy. Under a policy that allows everything, the certificate still has the name alone.
func TestHostileCertificateRequests(t *testing.T) {
	t.Parallel()
	ec := func(c elliptic.Curve) crypto.Signer {
		key, err := ecdsa.GenerateKey(c, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	extension := func(critical bool, value []byte, oid ...int) pkix.Extension {
		return pkix.Extension{Id: oid, Critical: critical, Value: value}
	}
	names := func(tag int, values ...string) pkix.Extension {
		var all []asn1.RawValue
		for _, v := range values {
			all = append(all, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, Bytes: []byte(v)})
		}
		return extension(false, der(t, all), 2, 5, 29, 17)
	}
	asks := func(extensions ...pkix.Extension) func(crypto.Signer) []byte {
		return func(key crypto.Signer) []byte {
			return csr(t, key, x509.CertificateRequest{ExtraExtensions: extensions})
		}
	}
	with := func(template x509.CertificateRequest) func(crypto.Signer) []byte {
		return func(key crypto.Signer) []byte { return csr(t, key, template) }
	}
	password := x509.CertificateRequest{
		//nolint:staticcheck // the only way to an attribute of another kind
		Attributes: []pkix.AttributeTypeAndValueSET{{Type: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 7},
			Value: [][]pkix.AttributeTypeAndValue{{{Type: asn1.ObjectIdentifier{1, 2, 3}, Value: "hunter2"}}}}},
	}
	honest := with(x509.CertificateRequest{DNSNames: []string{"web1.example.net"}})
	bytesOf := func(b []byte) func(crypto.Signer) []byte { return func(crypto.Signer) []byte { return b } }
	many := func(n int) (all []pkix.Extension) {
		for i := range n {
			all = append(all, extension(false, []byte{5, 0}, 1, 2, 3, i))
		}
		return all
	}
	spiffe := &url.URL{Scheme: "spiffe", Host: "fleet.test", Path: "/operator/root"}
	const refused, denied, ok = wire.CodeCSRInvalid, wire.CodeDenied, wire.Code("")
	tests := map[string]struct {
		make func(crypto.Signer) []byte
		want wire.Code
	}{
		"honest": {honest, ok},
		"a CA":   {asks(extension(true, der(t, struct{ CA bool }{true}), 2, 5, 29, 19)), ok},
		"a key that signs": {asks(extension(true, der(t, asn1.BitString{Bytes: []byte{0x06}, BitLength: 7}),
			2, 5, 29, 15)), ok},
		"a server, or anything": {asks(extension(false,
			der(t, []asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 1}, {2, 5, 29, 37, 0}}), 2, 5, 29, 37)), ok},
		"wildcards": {asks(names(2, "*.example.net", "*", "**")), denied},
		"foreign DNS names": {asks(names(2, "broker.fleet.test", "db1.example.net", "web1.example.net")),
			denied},
		"foreign addresses": {with(
			x509.CertificateRequest{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}}), denied},
		"an operator's URI": {with(x509.CertificateRequest{URIs: []*url.URL{spiffe}}), denied},
		"foreign mail": {with(x509.CertificateRequest{EmailAddresses: []string{"root@example.net"}}),
			denied},
		"an encoded IDN": {asks(names(2, "xn--wb1-bma.example.net")), denied},
		"a password":     {with(password), ok},
		"a subject beside the name": {with(
			x509.CertificateRequest{Subject: pkix.Name{Organization: []string{"system:masters"},
				SerialNumber: "7"}}), ok},
		"another's common name": {with(
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "db1.example.net"}}), wire.CodeCSRIdentity},
		"a wildcard as common name": {with(x509.CertificateRequest{Subject: pkix.Name{CommonName: "*.example.net"}}),
			wire.CodeCSRIdentity},
		"an IDN as common name": {with(
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "wéb1.example.net"}}), wire.CodeCSRIdentity},
		"another spelling of itself": {with(
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "WEB1.example.net"}}), wire.CodeCSRIdentity},
		"NUL in the common name": {with(
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "web1.example.net\x00.evil.example"}}), refused},
		"NUL in a DNS name":   {asks(names(2, "web1.example.net\x00.evil.example")), refused},
		"UTF-8 in a DNS name": {asks(names(2, "wéb1.example.net")), refused},
		"an oversized common name": {with(
			x509.CertificateRequest{Subject: pkix.Name{CommonName: strings.Repeat("a", 2000)}}), refused},
		"an oversized DNS name":   {asks(names(2, strings.Repeat("a.", 2000)+"net")), denied},
		"a hundred names":         {asks(names(2, slices.Repeat([]string{"a.example.net"}, 100)...)), refused},
		"hundreds of extensions":  {asks(many(400)...), refused},
		"thousands of extensions": {asks(many(4000)...), wire.CodeTooLarge},
		"an extension twice":      {asks(many(1)[0], many(1)[0]), refused},
		"names twice":             {asks(names(2, "web1.example.net"), names(2, "db1.example.net")), refused},
		"RSA-1024": {func(crypto.Signer) []byte { return csr(t, weak, x509.CertificateRequest{}) },
			refused},
		"P-224": {func(crypto.Signer) []byte {
			return csr(t, ec(elliptic.P224()), x509.CertificateRequest{})
		}, refused},
		"RSA-16384":                 {bytesOf(requestFor(t, hugeRSA(16384, 65537))), refused},
		"RSA of 30,000 bits":        {bytesOf(requestFor(t, hugeRSA(30_000, 1<<31-1))), refused},
		"RSA with exponent 1":       {bytesOf(requestFor(t, hugeRSA(2048, 1))), refused},
		"RSA with an even exponent": {bytesOf(requestFor(t, hugeRSA(2048, 65536))), refused},
		"RSA without the key":       {bytesOf(requestFor(t, hugeRSA(4096, 65537))), refused},
		"a wrong signature": {func(k crypto.Signer) []byte { b := honest(k); b[len(b)-1] ^= 1; return b },
			refused},
		"trailing bytes": {func(k crypto.Signer) []byte { return append(honest(k), 0) }, refused},
		"PEM": {func(k crypto.Signer) []byte {
			return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: honest(k)})
		}, refused},
		"what crashes Choria's": {bytesOf([]byte("not pem")), refused},
		"nothing":               {bytesOf(nil), refused},
		"8 KiB of zeros":        {bytesOf(make([]byte, wire.MaxCSRBytes)), refused},
		"more than 8 KiB":       {bytesOf(make([]byte, wire.MaxCSRBytes+1)), wire.CodeTooLarge},
	}
	strict, open := newTarget(t), install(t)
	open.must("policy", "test", "prov/policy")
	open.write("policy/open.rego", "package muster.enroll\n\nallow := true\n")
	if err := os.Remove(open.path("policy/open_test.rego")); err != nil {
		t.Fatal(err)
	}
	open.start()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := strict.node("web1.example.net", strict.token(nil))
			n.CSR = tt.make(n.Key)
			if tt.want != ok {
				if r := strict.ask(strict.dial(n.Token), n.Request()); r.Refusal == nil || r.Refusal.Code != tt.want {
					t.Errorf("refused with %+v, want %s", r.Refusal, tt.want)
				}
			}
			if tt.want != ok && tt.want != denied {
				return
			}
			n.Token = open.token(nil)
			reply := open.ask(open.dial(n.Token), n.Request())
			if reply.Enrolled == nil {
				t.Fatalf("refused: %+v", reply.Refusal)
			}
			block, _ := pem.Decode([]byte(reply.Enrolled.Certificate))
			leaf, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			if len(leaf.URIs) != 1 || leaf.URIs[0].String() != "spiffe://attacks.test/node/web1.example.net" ||
				!slices.Equal(leaf.DNSNames, []string{"web1.example.net"}) || len(leaf.IPAddresses) > 0 ||
				len(leaf.EmailAddresses) > 0 || leaf.IsCA || len(leaf.Subject.Names) > 1 ||
				!slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
				t.Errorf("a certificate of %v for %v %v %v, usage %v", leaf.Subject, leaf.URIs, leaf.DNSNames,
					leaf.IPAddresses, leaf.ExtKeyUsage)
			}
			if bytes.Contains(leaf.Raw, []byte("hunter2")) {
				t.Error("the password is in the certificate")
			}
			open.must("node", "retire", "web1.example.net", "--why", "next row", "--yes")
		})
	}
	if found := strict.identities(); len(found) > 0 {
		t.Errorf("on record: %v", found)
	}
}

// keyPEM returns a private key in PKCS #8.
func keyPEM(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
