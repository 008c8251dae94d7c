package provisioner_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"muster/provisioner/trust"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/ca"
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

// TestHostileIdentities sends invalid names in every request. Each is refused by name and leaves no record, subject
// or file, but for the stream of attempts.
func TestHostileIdentities(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	conn, err := f.Daemon().Connect("witness")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	all, err := conn.SubscribeSync("muster.>")
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	token := f.Token(nil)
	nc := f.Dial(token)
	member := f.Node("web1.example.net")
	key, e := member.Key, f.Enroll(member)
	f.Apply(member, e)
	session, err := member.DialFleet(f.URL(), e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, err := all.NextMsg(0); err == nil; _, err = all.NextMsg(0) { // from the honest node
	}
	for name, identity := range hostileNames {
		n := &simnode.Node{Identity: identity, Token: token, Key: key, Boot: wire.NewID()}
		if n.CSR, err = simnode.CSR(key, "web1.example.net"); err != nil {
			t.Fatal(err)
		}
		applied, err := n.Confirm(&wire.Enrolled{Serial: "01"})
		if err != nil {
			t.Fatal(err)
		}
		renewal, err := n.Renewal(n)
		if err != nil {
			t.Fatal(err)
		}
		for subject, message := range map[string]any{wire.SubjectEnroll: n.Request(), wire.SubjectApplied: applied,
			wire.SubjectRenew: renewal} {
			nc := nc
			if subject == wire.SubjectRenew {
				nc = session
			}
			b, err := wire.Encode(message)
			if err != nil {
				t.Fatal(err)
			}
			// Our encoder replaces invalid UTF-8; an attacker's does not.
			b = []byte(strings.ReplaceAll(string(b), "\ufffd", "\xff"))
			m, err := nc.RequestWithContext(f.Context(), subject, b)
			if err != nil {
				t.Fatalf("%s to %s: %v", name, subject, err)
			}
			r, err := wire.DecodeReply(m.Data)
			want := wire.CodeIdentityInvalid
			if name == "invalid UTF-8" {
				want = wire.CodeBadRequest
			}
			if err != nil || r.Refusal == nil || r.Refusal.Code != want {
				t.Errorf("%s to %s: %+v, %v, want %s", name, subject, r, err, want)
			}
		}
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := all.NextMsg(0)
		if err != nil {
			break
		}
		// The provisioner's own writes go on meanwhile.
		if slices.Contains([]string{"muster.entry.clock.mark", "muster.entry.probe", "muster.inputs",
			"muster.component.broker_fleet_test"}, m.Subject) {
			continue
		}
		if !slices.Contains([]string{wire.SubjectEnroll, wire.SubjectApplied, wire.SubjectRenew}, m.Subject) &&
			m.Subject != "muster.attempt.refused._" {
			t.Errorf("a name that is none led to the subject %q", m.Subject)
		}
	}
	records := 0
	if err := f.Daemon().Store().Revisions(f.Context(), "", func(r *provisioner.Record, _ trust.Revision) error {
		if r.Identity != "web1.example.net" {
			records++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if records > 0 {
		t.Errorf("%d records", records)
	}
	f.Check()
}

func TestNamesAtTheLimit(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	for name, identity := range map[string]string{
		"253 bytes":         strings.Repeat(strings.Repeat("a", 62)+".", 4) + "a",
		"a label of 63":     strings.Repeat("a", 63) + ".example.net",
		"one label":         "a",
		"an encoded IDN":    "xn--wb1-bma.example.net",
		"numbers":           "1.2.3.a",
		"hyphens":           "a--b.example.net",
		"JetStream's words": "api.stream.purge",
	} {
		n := f.Node(identity)
		if r := f.Apply(n, f.Enroll(n)); r.Applied == nil {
			t.Errorf("%s: %+v", name, r.Refusal)
		}
	}
	f.Check()
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
// names by the built-in policy. Even a policy that allows everything adds nothing to the certificate: Check looks at
// that.
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
	strict := testbed.New(t, testbed.Options{})
	for name, tt := range tests {
		if tt.want == ok {
			continue
		}
		n := strict.Node("web1.example.net")
		n.CSR = tt.make(n.Key)
		if got := strict.Refused(n); got != tt.want {
			t.Errorf("%s: refused with %s, want %s: %.200s", name, got, tt.want, strict.Cause(n.Identity))
		}
	}
	if r := strict.Record("web1.example.net"); r != nil {
		t.Errorf("record = %+v", r)
	}
	strict.Check()
	// A policy that looks at nothing; one machine after the other has the name.
	f := testbed.New(t, testbed.Options{Policy: "package muster.enroll\n\nallow := true\n"})
	for name, tt := range tests {
		if tt.want != ok && tt.want != denied {
			continue
		}
		t.Run(name, func(t *testing.T) {
			n := f.Node("web1.example.net")
			n.CSR = tt.make(n.Key)
			e := f.Enroll(n)
			f.Apply(n, e)
			block, _ := pem.Decode([]byte(e.Certificate))
			leaf, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			if len(leaf.URIs) != 1 || leaf.URIs[0].String() != "spiffe://fleet.test/node/web1.example.net" ||
				len(leaf.Subject.Names) > 1 {
				t.Errorf("certificate of %v, URIs %v", leaf.Subject, leaf.URIs)
			}
			if bytes.Contains(leaf.Raw, []byte("hunter2")) {
				t.Error("the password is in the certificate")
			}
			f.Retire("web1.example.net")
		})
	}
	f.Check()
}

// TestAVouchingKeyIsBounded: keys whose check would take seconds are refused before use.
func TestAVouchingKeyIsBounded(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	p := f.Provisioner(nil)
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, pub := range map[string]crypto.PublicKey{
		"RSA-16384": hugeRSA(16384, 65537), "RSA of 300,000 bits": hugeRSA(300_000, 1<<31-1), "P-224": p224.Public(),
	} {
		spki, err := x509.MarshalPKIXPublicKey(pub)
		if err != nil {
			t.Fatal(err)
		}
		r := f.Node("web1.example.net").Request()
		r.Continuity = &wire.Continuity{PublicKey: spki, Signature: make([]byte, 256)}
		if k, ok := pub.(*rsa.PublicKey); ok {
			r.Continuity.Signature = make([]byte, k.Size())
			if err := wire.CheckSignature(pub, sha256.Sum256(nil), r.Continuity.Signature); !errors.Is(err,
				wire.ErrProof) || !strings.Contains(err.Error(), "limit") {
				t.Errorf("%s: CheckSignature = %v, want the limit", name, err)
			}
		}
		_, err = p.Enroll(f.Context(), r, provisioner.Source{})
		if provisioner.CodeOf(err) != wire.CodeBadRequest || !errors.Is(err, ca.ErrKey) {
			t.Errorf("%s: %v, want %s for the key", name, err, wire.CodeBadRequest)
		}
	}
	f.Check()
}
