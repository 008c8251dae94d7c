package ca_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

func request(t testing.TB, key crypto.Signer, template x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// A rawRequest is a request that crypto/x509 would not make. Parts are DER; nil ones are valid defaults.
type rawRequest struct {
	version    int
	subject    []byte
	key        any    // public key to encode, nil for that of the signer
	spki       []byte // instead of key
	attributes []asn1.RawValue
	algorithm  pkix.AlgorithmIdentifier
	hash       crypto.Hash
}

var (
	oidECDSAWithSHA1   = asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 1}
	oidECDSAWithSHA256 = asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}
	oidRequest         = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14} // extensionRequest
	oidChallenge       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 7}
	oidCN              = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidSAN             = asn1.ObjectIdentifier{2, 5, 29, 17}
)

func (r rawRequest) sign(t testing.TB, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	if r.subject == nil {
		r.subject = encode(t, pkix.Name{CommonName: "web1.example.net"}.ToRDNSequence())
	}
	if r.key == nil {
		r.key = key.Public()
	}
	if r.spki == nil {
		var err error
		if r.spki, err = x509.MarshalPKIXPublicKey(r.key); err != nil {
			t.Fatal(err)
		}
	}
	if r.algorithm.Algorithm == nil {
		r.algorithm, r.hash = pkix.AlgorithmIdentifier{Algorithm: oidECDSAWithSHA256}, crypto.SHA256
	}
	info := encode(t, struct {
		Version    int
		Subject    asn1.RawValue
		SPKI       asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}{r.version, asn1.RawValue{FullBytes: r.subject}, asn1.RawValue{FullBytes: r.spki}, r.attributes})
	var digest []byte
	switch r.hash {
	case crypto.SHA1:
		sum := sha1.Sum(info)
		digest = sum[:]
	default:
		sum := sha256.Sum256(info)
		digest = sum[:]
	}
	signature, err := key.Sign(rand.Reader, digest, nil)
	if err != nil {
		t.Fatal(err)
	}
	return encode(t, struct {
		Info      asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{asn1.RawValue{FullBytes: info}, r.algorithm, asn1.BitString{Bytes: signature, BitLength: len(signature) * 8}})
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	der, err := asn1.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func attribute(t testing.TB, id asn1.ObjectIdentifier, values ...any) asn1.RawValue {
	t.Helper()
	var set []asn1.RawValue
	for _, v := range values {
		set = append(set, asn1.RawValue{FullBytes: encode(t, v)})
	}
	return asn1.RawValue{FullBytes: encode(t, struct {
		ID     asn1.ObjectIdentifier
		Values []asn1.RawValue `asn1:"set"`
	}{id, set})}
}

// altNames returns a subjectAltName extension, one name per argument, by tag.
func altNames(t testing.TB, names ...asn1.RawValue) pkix.Extension {
	t.Helper()
	return pkix.Extension{Id: oidSAN, Value: encode(t, names)}
}

func altName(tag int, b []byte) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, Bytes: b}
}

func TestParseCSR(t *testing.T) {
	t.Parallel()
	for name, key := range keys(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			uri := &url.URL{Scheme: "spiffe", Host: "elsewhere.example", Path: "/operator/root"}
			got, err := ca.ParseCSR(request(t, key, x509.CertificateRequest{
				Subject:  pkix.Name{CommonName: "web1.example.net", Organization: []string{"Example"}},
				DNSNames: []string{"web1.example.net", "www.example.net"}, EmailAddresses: []string{"root@example.net"},
				IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)}, URIs: []*url.URL{uri},
			}))
			if err != nil {
				t.Fatal(err)
			}
			hash, err := ca.KeyHash(key.Public())
			if err != nil {
				t.Fatal(err)
			}
			want := &ca.CSR{
				CommonName: "web1.example.net", DNSNames: []string{"web1.example.net", "www.example.net"},
				IPAddresses: []string{"192.0.2.1"}, URIs: []string{"spiffe://elsewhere.example/operator/root"},
				Emails: []string{"root@example.net"}, PublicKey: key.Public(), KeyHash: hash, KeyType: name,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("ParseCSR (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseCSRRefuses(t *testing.T) {
	t.Parallel()
	key := newEC(t, elliptic.P256())
	honest := request(t, key, x509.CertificateRequest{Subject: pkix.Name{CommonName: "web1.example.net"},
		DNSNames: []string{"web1.example.net"}})
	if _, err := ca.ParseCSR(honest); err != nil {
		t.Fatalf("the honest base request is refused: %v", err)
	}
	if _, err := ca.ParseCSR((rawRequest{}).sign(t, key)); err != nil {
		t.Fatalf("the raw base request is refused: %v", err)
	}
	edit := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(honest)) }
	extensions := func(n int) (all []pkix.Extension) {
		for i := range n {
			all = append(all, pkix.Extension{Id: asn1.ObjectIdentifier{1, 2, 3, i}})
		}
		return all
	}
	with := func(extensions ...pkix.Extension) []byte {
		return rawRequest{attributes: []asn1.RawValue{attribute(t, oidRequest, extensions)}}.sign(t, key)
	}
	rsaKey := func(n *big.Int, e int) []byte {
		return rawRequest{spki: encode(t, struct {
			Algorithm pkix.AlgorithmIdentifier
			Key       asn1.BitString
		}{pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1},
			Parameters: asn1.NullRawValue},
			bits(encode(t, struct {
				N *big.Int
				E int
			}{n, e}))})}.sign(t, key)
	}
	wide := func(bits uint) *big.Int { // a number of so many bits, odd
		n := new(big.Int).Lsh(big.NewInt(1), bits-1)
		return n.SetBit(n, 0, 1)
	}
	hello := altName(2, []byte("web1.example.net"))
	cn := func(name string) []byte {
		return rawRequest{subject: encode(t, pkix.Name{CommonName: name}.ToRDNSequence())}.sign(t, key)
	}
	tests := map[string]struct {
		der []byte
		key bool // refused for its key
	}{
		"nothing":              {der: nil},
		"empty":                {der: []byte{}},
		"garbage":              {der: []byte("not pem")},
		"zeros":                {der: make([]byte, 512)},
		"PEM instead of DER":   {der: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: honest})},
		"a certificate":        {der: config(t).Root.Raw},
		"trailing data":        {der: edit(func(b []byte) []byte { return append(b, 0) })},
		"two requests":         {der: edit(func(b []byte) []byte { return append(b, b...) })},
		"cut short":            {der: honest[:len(honest)-1]},
		"cut in half":          {der: honest[:len(honest)/2]},
		"too large":            {der: edit(func(b []byte) []byte { return append(b, make([]byte, wire.MaxCSRBytes+wire.MaxTokenBytes)...) })},
		"indefinite length":    {der: edit(func(b []byte) []byte { b[1] = 0x80; return append(b, 0, 0) })},
		"signature altered":    {der: edit(func(b []byte) []byte { b[len(b)-1] ^= 1; return b })},
		"name altered":         {der: bytes.Replace(honest, []byte("web1"), []byte("web2"), 1)},
		"another's key":        {der: rawRequest{key: newEC(t, elliptic.P256()).Public()}.sign(t, key)},
		"SHA-1":                {der: rawRequest{algorithm: pkix.AlgorithmIdentifier{Algorithm: oidECDSAWithSHA1}, hash: crypto.SHA1}.sign(t, key)},
		"unknown algorithm":    {der: rawRequest{algorithm: pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 3}}}.sign(t, key)},
		"version 2":            {der: rawRequest{version: 1}.sign(t, key)},
		"P-224":                {der: request(t, newEC(t, elliptic.P224()), x509.CertificateRequest{}), key: true},
		"P-521":                {der: request(t, newEC(t, elliptic.P521()), x509.CertificateRequest{}), key: true},
		"RSA-1024":             {der: request(t, testRSA(t, 1024), x509.CertificateRequest{}), key: true},
		"RSA-2040":             {der: rsaKey(wide(2040), 65537), key: true},
		"RSA-2049":             {der: rsaKey(wide(2049), 65537), key: true},
		"RSA-4104":             {der: rsaKey(wide(4104), 65537), key: true},
		"RSA-16384":            {der: rsaKey(wide(16384), 65537), key: true},
		"RSA of 60,000 bits":   {der: rsaKey(wide(60_000), 65537), key: true},
		"RSA exponent 1":       {der: rsaKey(wide(2048), 1), key: true},
		"RSA exponent 3":       {der: rsaKey(wide(2048), 3), key: true},
		"RSA exponent even":    {der: rsaKey(wide(2048), 65538), key: true},
		"RSA modulus even":     {der: rsaKey(new(big.Int).Lsh(big.NewInt(1), 2047), 65537), key: true},
		"RSA modulus negative": {der: rsaKey(big.NewInt(-5), 65537)},
		"RSA, signed by EC":    {der: rsaKey(testRSA(t, 2048).N, 65537)},
		"key of an unknown algorithm": {der: rawRequest{spki: encode(t, struct {
			Algorithm pkix.AlgorithmIdentifier
			Key       asn1.BitString
		}{pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 3}}, bits([]byte{1})})}.sign(t, key),
			key: true},
		"point that is not on the curve": {der: bytes.Replace(honest, coordinate(t, key), make([]byte, 32), 1)},

		"NUL in the common name":         {der: cn("web1.example.net\x00.evil.example")},
		"line break in the common name":  {der: cn("web1\nlevel=info")},
		"NUL in a DNS name":              {der: with(altNames(t, altName(2, []byte("web1\x00.evil.example"))))},
		"UTF-8 in a DNS name":            {der: with(altNames(t, altName(2, []byte("wéb1.example.net"))))},
		"an address of 3 bytes":          {der: with(altNames(t, altName(7, []byte{1, 2, 3})))},
		"no alternative names but bytes": {der: with(pkix.Extension{Id: oidSAN, Value: []byte("web1")})},
		"alternative names twice":        {der: with(altNames(t, hello), altNames(t, hello))},
		"an extension twice":             {der: with(extensions(1)[0], extensions(1)[0])},
		"thousands of extensions":        {der: with(extensions(3000)...)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := ca.ParseCSR(tt.der)
			if c != nil || !errors.Is(err, ca.ErrCSR) {
				t.Fatalf("ParseCSR = %+v, %v, want %v alone", c, err, ca.ErrCSR)
			}
			if errors.Is(err, ca.ErrKey) != tt.key {
				t.Errorf("ParseCSR error = %v, for its key: %v, want %v", err, !tt.key, tt.key)
			}
		})
	}
}

func bits(b []byte) asn1.BitString { return asn1.BitString{Bytes: b, BitLength: len(b) * 8} }

// The requests ask for forbidden content. The certificates equal that of a plain request.
func TestOnlyTheKeyOfACSRIsCertified(t *testing.T) {
	t.Parallel()
	key := newEC(t, elliptic.P256())
	constraints := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true,
		Value: encode(t, struct{ CA bool }{true})}
	usage := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 15}, Critical: true,
		Value: encode(t, asn1.BitString{Bytes: []byte{0x06}, BitLength: 7})}
	server := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 37},
		Value: encode(t, []asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 1}, {2, 5, 29, 37, 0}})}
	operator := &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/operator/alice"}
	tests := map[string][]byte{
		"a CA": request(t, key, x509.CertificateRequest{Subject: pkix.Name{CommonName: "web1.example.net"},
			ExtraExtensions: []pkix.Extension{constraints, usage, server}}),
		"wildcard": request(t, key, x509.CertificateRequest{DNSNames: []string{"*.example.net", "*"}}),
		"another's name": request(t, key,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "prov1.example.net"},
				DNSNames: []string{"prov1.example.net"}}),
		"an operator": request(t, key, x509.CertificateRequest{URIs: []*url.URL{operator}}),
		"addresses": request(t, key,
			x509.CertificateRequest{IPAddresses: []net.IP{net.IPv4(10, 9, 9, 9), net.IPv6loopback}}),
		"IDN": request(t, key, x509.CertificateRequest{Subject: pkix.Name{CommonName: "wéb1.example.net"},
			DNSNames: []string{"xn--wb1-bma.example.net"}}),
		"a long name": request(t, key, x509.CertificateRequest{DNSNames: []string{strings.Repeat("a.", 2000)}}),
		"16 names": request(t, key,
			x509.CertificateRequest{DNSNames: slices.Repeat([]string{"www.example.net"}, 16)}),
		"no name": request(t, key, x509.CertificateRequest{}),
		"a whole subject": request(t, key,
			x509.CertificateRequest{Subject: pkix.Name{Organization: []string{"system:masters"},
				Country: []string{"XX"}, CommonName: "web1.example.net", SerialNumber: "7"}}),
		"unknown critical": request(t, key, x509.CertificateRequest{ExtraExtensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}}),
		"two common names": rawRequest{subject: encode(t, pkix.RDNSequence{
			{{Type: oidCN, Value: "web1.example.net"}}, {{Type: oidCN, Value: "admin"}},
		})}.sign(t, key),
		"a directory name": rawRequest{attributes: []asn1.RawValue{
			attribute(t, oidRequest, []pkix.Extension{altNames(t, altName(4, nil))}),
		}}.sign(t, key),
		"attributes without values": rawRequest{attributes: []asn1.RawValue{
			attribute(t, oidRequest), attribute(t, oidChallenge),
		}}.sign(t, key),
		"a challenge": rawRequest{attributes: []asn1.RawValue{attribute(t, oidChallenge, "hunter2")}}.sign(t, key),
	}
	a := authority(t, nil)
	r := requests()["node"]
	r.PublicKey = key.Public()
	_, honest := issue(t, a, r)
	for name, der := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := ca.ParseCSR(der)
			if err != nil {
				t.Fatalf("ParseCSR: %v", err)
			}
			r := r
			r.PublicKey = c.PublicKey
			_, parsed := issue(t, a, r)
			if diff := cmp.Diff(string(describe(honest)), string(describe(parsed))); diff != "" {
				t.Errorf("certificate (-honest +got):\n%s", diff)
			}
			if role, name, err := a.Verify(parsed, nil, noon); err != nil || role != wire.RoleNode ||
				name != "web1.example.net" {
				t.Errorf("Verify = %s, %s, %v, want the node", role, name, err)
			}
		})
	}
}

// TestWhatAPuppetAgentAsksFor: extensions by name, a challengePassword, and what is not permitted.
func TestWhatAPuppetAgentAsksFor(t *testing.T) {
	t.Parallel()
	key := newEC(t, elliptic.P256())
	text := func(params, value string) []byte {
		b, err := asn1.MarshalWithParams(value, params)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	puppet := func(value []byte, arcs ...int) pkix.Extension {
		return pkix.Extension{Id: append(asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 34380}, arcs...), Value: value}
	}
	challenges := func(values ...any) asn1.RawValue { return attribute(t, oidChallenge, values...) }
	raw := func(tag string, value string) asn1.RawValue { return asn1.RawValue{FullBytes: text(tag, value)} }
	ask := func(extensions []pkix.Extension, more ...asn1.RawValue) []byte {
		return rawRequest{attributes: append(more, attribute(t, oidRequest, extensions))}.sign(t, key)
	}
	san := altNames(t, altName(2, []byte("web1.example.net")))
	long := strings.Repeat("x", wire.MaxTokenBytes)
	for name, tt := range map[string]struct {
		der         []byte
		extensions  map[string]string
		unpermitted []string
		challenge   string
		refused     bool
	}{
		"nothing": {der: ask(nil)},
		"what agents ask for": {
			der: ask([]pkix.Extension{san, puppet(text("utf8", "web"), 1, 1, 13), puppet(text("printable", "z1"), 1, 1, 20),
				puppet(text("utf8", "hush"), 1, 1, 4)}, challenges(raw("utf8", "token"))),
			extensions: map[string]string{"pp_role": "web", "pp_zone": "z1"}, challenge: "token",
		},
		"a challenge in IA5":         {der: ask(nil, challenges(raw("ia5", "a@b"))), challenge: "a@b"},
		"a challenge in Printable":   {der: ask(nil, challenges(raw("printable", "a b"))), challenge: "a b"},
		"a challenge as long as any": {der: ask(nil, challenges(raw("utf8", long))), challenge: long},
		"an authorization": {
			der:         ask([]pkix.Extension{puppet(text("utf8", "true"), 1, 3, 39)}),
			unpermitted: []string{"1.3.6.1.4.1.34380.1.3.39"},
		},
		"a private one": {
			der:         ask([]pkix.Extension{puppet(text("utf8", "x"), 1, 2, 1)}),
			unpermitted: []string{"1.3.6.1.4.1.34380.1.2.1"},
		},
		"a number without a name": {
			der:         ask([]pkix.Extension{puppet(text("utf8", "x"), 1, 1, 99)}),
			unpermitted: []string{"1.3.6.1.4.1.34380.1.1.99"},
		},
		"below a name": {
			der:         ask([]pkix.Extension{puppet(text("utf8", "x"), 1, 1, 13, 1)}),
			unpermitted: []string{"1.3.6.1.4.1.34380.1.1.13.1"},
		},
		"two challenges": {
			der:     ask(nil, challenges(raw("utf8", "a"), raw("utf8", "b"))),
			refused: true,
		},
		"two attributes of challenge": {
			der:     ask(nil, challenges(raw("utf8", "a")), challenges(raw("utf8", "b"))),
			refused: true,
		},
		"a challenge that is no text": {der: ask(nil, challenges(7))},
		"a challenge of two lines":    {der: ask(nil, challenges(raw("utf8", "a\nb")))},
		"an extension that is no text": {
			der:     ask([]pkix.Extension{puppet([]byte{2, 1, 7}, 1, 1, 13)}),
			refused: true,
		},
		"an extension with more": {
			der:     ask([]pkix.Extension{puppet(append(text("utf8", "x"), 0), 1, 1, 13)}),
			refused: true,
		},
		"an extension with a control": {
			der:     ask([]pkix.Extension{puppet(text("utf8", "x\x00"), 1, 1, 13)}),
			refused: true,
		},
		"an extension too long": {
			der:     ask([]pkix.Extension{puppet(text("utf8", long[:256]), 1, 1, 13)}),
			refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := ca.ParseCSR(tt.der)
			if tt.refused {
				if !errors.Is(err, ca.ErrCSR) {
					t.Errorf("ParseCSR = %+v, %v, want %v", c, err, ca.ErrCSR)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(c.Extensions, tt.extensions) || !slices.Equal(c.Unpermitted, tt.unpermitted) ||
				c.Challenge != tt.challenge {
				t.Errorf("asked for %v and %q with a challenge of %d bytes, want %v, %q and %d", c.Extensions, c.Unpermitted,
					len(c.Challenge), tt.extensions, tt.unpermitted, len(tt.challenge))
			}
		})
	}
}

// FuzzParseCSR checks that no input panics, no result comes beside an error, and accepted requests can be issued.
func FuzzParseCSR(f *testing.F) {
	key := newEC(f, elliptic.P256())
	honest := request(f, key, x509.CertificateRequest{Subject: pkix.Name{CommonName: "web1.example.net"},
		DNSNames: []string{"web1.example.net"}})
	f.Add(honest)
	f.Add([]byte{})
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n"))
	f.Add(rawRequest{attributes: []asn1.RawValue{attribute(f, oidChallenge, "x")}}.sign(f, key))
	// RSA requests are in testdata, since generating keys is slow.
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	for _, k := range []crypto.Signer{newEC(f, elliptic.P384()), ed} {
		f.Add(request(f, k, x509.CertificateRequest{EmailAddresses: []string{"a@b"},
			IPAddresses: []net.IP{net.IPv6loopback}}))
	}
	a := authority(f, nil)
	f.Fuzz(func(t *testing.T, der []byte) {
		c, err := ca.ParseCSR(der)
		if err != nil {
			if c != nil || !errors.Is(err, ca.ErrCSR) {
				t.Fatalf("ParseCSR = %v, %v, want %v alone", c, err, ca.ErrCSR)
			}
			return
		}
		if kind, err := ca.KeyType(c.PublicKey); err != nil || kind != c.KeyType {
			t.Fatalf("KeyType = %q, %v, want %q", kind, err, c.KeyType)
		}
		issued, err := a.Issue(ca.Request{Role: wire.RoleNode, Name: "web1.example.net", PublicKey: c.PublicKey})
		if err != nil {
			t.Fatalf("Issue = %v, want a certificate for key %s", err, c.KeyHash)
		}
		if key, err := ca.PublicKey(issued.DER); err != nil ||
			!c.PublicKey.(interface{ Equal(crypto.PublicKey) bool }).Equal(key) {
			t.Fatalf("the certificate is for %v, %v, want key %s", key, err, c.KeyHash)
		}
	})
}

// coordinate returns the X coordinate, behind the format byte of the point.
func coordinate(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return point[1:33]
}
