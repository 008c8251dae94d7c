package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"

	"muster/internal/wire"
)

// A Request asks for one certificate. All of it has been approved: the names
// by the policy or an operator, the key by whoever checked that its owner
// holds it.
type Request struct {
	Role wire.Role // required

	// Name is the node's identity, or the name of a broker, provisioner or
	// operator: 1 to 64 of a-z, 0-9, '.', '_' and '-'. Required.
	Name string

	// PublicKey is of a kind that [KeyType] names. Required.
	PublicKey crypto.PublicKey

	// TTL is the lifetime from now on, MinTTL to the authority's MaxTTL; 0 means
	// its default. The certificate ends earlier if the authority does.
	TTL time.Duration

	// DNSNames are names besides a node's identity: host names, no wildcards.
	// Not for operators; repeated ones count once.
	DNSNames []string

	// IPAddresses are for brokers and provisioners only.
	IPAddresses []net.IP

	// ServerAuth makes a certificate of a node or provisioner that of a TLS server too. A
	// broker's always is.
	ServerAuth bool
}

// A Certificate is an issued certificate and what records keep of it.
type Certificate struct {
	DER       []byte
	Chain     string    // PEM: the certificate, then the issuing one
	Serial    string    // [Serial]: 32 lower-case hex digits
	NotBefore time.Time // UTC, in whole seconds
	NotAfter  time.Time // UTC, in whole seconds; last instant of validity
}

// Serial returns the serial number of c as records and messages write it:
// lower-case hex without leading zeros. The numbers that this package chooses
// all have 32 digits.
func Serial(c *x509.Certificate) string { return c.SerialNumber.Text(16) }

// Issue signs a certificate for r. Nothing is stored: whoever calls it decides
// whether the certificate leaves the process. The error wraps [ErrRequest] if
// the request is at fault, and [ErrAuthority] if the authority is, which is
// [ErrExpired] where that is why. Issue may be called concurrently. With a
// P-256 key in memory a node's certificate takes about 50 µs of one core, an
// unusual one (see [layout]) 170 µs.
func (a *Authority) Issue(r Request) (*Certificate, error) {
	s, err := a.subject(&r)
	if err != nil {
		return nil, fmt.Errorf("issue certificate for %.80q: %w", r.Name, err)
	}
	template, err := a.template(&r, s)
	if err != nil {
		return nil, fmt.Errorf("issue certificate for %q: %w", r.Name, err)
	}
	der, err := a.sign(&r, template)
	if err != nil {
		return nil, fmt.Errorf("issue certificate for %q: %w: %w", r.Name, ErrAuthority, err)
	}
	return &Certificate{
		DER: der, Chain: encodePEM(der) + a.trust.chainPEM, Serial: template.SerialNumber.Text(16),
		NotBefore: template.NotBefore, NotAfter: template.NotAfter,
	}, nil
}

// errSignature means that a key did not sign what it was given. Such a certificate must never leave: its node would
// be offered it again and again.
var errSignature = errors.New("the key's signature does not verify")

// sign returns the signed certificate, in DER. The signature of a key outside of the process, as in an HSM, is
// verified. One of crypto/ecdsa in this process is not, see docs/adr/0015-decode-once-sign-once.md.
func (a *Authority) sign(r *Request, template *x509.Certificate) ([]byte, error) {
	if !a.layout.usual(r, template) {
		return x509.CreateCertificate(rand.Reader, template, a.cfg.Issuing, r.PublicKey, a.cfg.Key)
	}
	spki, err := encodeKey(r.PublicKey)
	if err != nil {
		return nil, err
	}
	tbs := a.layout.assemble(template, spki)
	digest := sha256.Sum256(tbs)
	if key, inMemory := a.cfg.Key.(*ecdsa.PrivateKey); inMemory {
		signature, err := key.Sign(nil, digest[:], crypto.SHA256) // deterministic (RFC 6979): less work
		if err != nil {
			return nil, err
		}
		return signed(tbs, signature), nil
	}
	signature, err := a.cfg.Key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		return nil, err
	}
	if pub, ok := a.cfg.Issuing.PublicKey.(*ecdsa.PublicKey); !ok || !ecdsa.VerifyASN1(pub, digest[:], signature) {
		return nil, errSignature
	}
	return signed(tbs, signature), nil
}

// template returns the certificate to sign. Every field of it comes from s, the
// authority or the random source.
func (a *Authority) template(r *Request, s *subject) (*x509.Certificate, error) {
	notBefore, notAfter, err := a.validity(s.ttl)
	if err != nil {
		return nil, err
	}
	keyID, err := keyIdentifier(r.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	template := &x509.Certificate{
		SerialNumber:          newSerial(),
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           s.usages,
		BasicConstraintsValid: true, // and IsCA is false
		SubjectKeyId:          keyID,
		DNSNames:              s.dnsNames,
		IPAddresses:           s.addresses,
		URIs:                  []*url.URL{wire.RoleURI(a.cfg.TrustDomain, r.Role, r.Name)},
	}
	// A subject that does not fit is left empty, and crypto/x509 then makes the
	// alternative names critical, as RFC 5280 section 4.2.1.6 asks.
	template.Subject = pkix.Name{CommonName: s.commonName}
	return template, nil
}

// validity returns the bounds of a certificate that is to live for ttl from
// now on. It never reaches beyond either end of the authority's own
// certificates, where no verifier would accept it anyway.
func (a *Authority) validity(ttl time.Duration) (notBefore, notAfter time.Time, err error) {
	now := a.cfg.Now().UTC()
	if err := errors.Join(checkValid("root", a.cfg.Root, now), checkValid("issuing", a.cfg.Issuing, now)); err != nil {
		return time.Time{}, time.Time{}, err
	}
	notBefore = now.Add(-Backdate).Truncate(time.Second)
	notAfter = now.Add(ttl).Truncate(time.Second)
	for _, c := range []*x509.Certificate{a.cfg.Root, a.cfg.Issuing} {
		if notBefore.Before(c.NotBefore) {
			notBefore = c.NotBefore.UTC()
		}
		if notAfter.After(c.NotAfter) {
			notAfter = c.NotAfter.UTC()
		}
	}
	if left := notAfter.Sub(now.Truncate(time.Second)); left < MinTTL {
		return time.Time{}, time.Time{}, fmt.Errorf("%w: it ends at %s, in less than %v", ErrExpired, stamp(notAfter), MinTTL)
	}
	return notBefore, notAfter, nil
}

// newSerial returns 128 random bits as a positive number whose first hex digit
// is not 0 (one of 16 draws is repeated, which costs 0.1 bits), so that it
// reads the same with and without leading zeros. RFC 5280 section 4.1.2.2
// allows 20 octets.
func newSerial() *big.Int {
	var b [16]byte
	for b[0] < 0x10 {
		_, _ = rand.Read(b[:]) // never fails (crypto/rand, Go 1.24)
	}
	return new(big.Int).SetBytes(b[:])
}

// keyIdentifier returns the subject key identifier of pub by method 1 of RFC
// 7093: the first 160 bits of the SHA-256 over the public key's bits.
func keyIdentifier(pub crypto.PublicKey) ([]byte, error) {
	der, err := encodeKey(pub)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	bits := bytes.TrimPrefix(der, p256KeyHeader)
	if len(bits) == len(der) {
		var spki struct {
			Algorithm asn1.RawValue
			Key       asn1.BitString
		}
		if _, err := asn1.Unmarshal(der, &spki); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrKey, err)
		}
		bits = spki.Key.Bytes
	}
	sum := sha256.Sum256(bits)
	return bytes.Clone(sum[:20]), nil
}

// certificateFingerprint returns the lower-case hex SHA-256 over der.
func certificateFingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}
