package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"muster/internal/wire"
)

// A Request asks for a certificate. The caller must have approved it and verified that the holder has the key.
type Request struct {
	Role wire.Role // required

	// Name is a node's identity; for a service <identity>/<name>; for other roles 1 to 64 of a-z, 0-9, '.', '_' and
	// '-'. Required.
	Name string

	// PublicKey must be accepted by [KeyType]. Required.
	PublicKey crypto.PublicKey

	// TTL is from [MinTTL] to [Config].MaxTTL; 0 means the default. No certificate outlives the authority.
	TTL time.Duration

	// DNSNames are additional host names, without wildcards. Not for operators.
	DNSNames []string

	// IPAddresses are not for operators.
	IPAddresses []net.IP

	// ServerAuth adds TLS server use; a broker always has it.
	ServerAuth bool

	// ClientAuth and URIs are for services alone; other roles are always clients.
	ClientAuth bool
	URIs       []string

	// Extensions are Puppet's, by name: at most 16, each of 1 to 255 bytes of printable UTF-8. Only for nodes.
	Extensions map[string]string
}

// A Certificate is an issued certificate.
type Certificate struct {
	DER       []byte
	Chain     string    // PEM: the certificate, the issuing one, cross certificates
	Serial    string    // [Serial], 32 digits
	NotBefore time.Time // UTC, in whole seconds
	NotAfter  time.Time // UTC, whole seconds; last instant of validity
}

// Serial returns the serial number in lower-case hex without leading zeros.
func Serial(c *x509.Certificate) string { return c.SerialNumber.Text(16) }

// Issue signs a certificate and stores nothing. The error wraps [ErrRequest], [ErrAuthority] or [ErrExpired]. With a
// P-256 key in memory, a node's certificate takes 50 µs, an unusual one (see [layout]) 170 µs.
//
// If the authority has name constraints, each certificate is verified before it leaves; the error then wraps
// [ErrRequest].
func (a *Authority) Issue(r Request) (*Certificate, error) {
	c, err := a.issue(r)
	if err != nil || !a.constrained {
		return c, err
	}
	if err := a.accepted(c); err != nil {
		return nil, fmt.Errorf("issue certificate for %q: %w: the authority may not sign it: %w", r.Name, ErrRequest,
			err)
	}
	return c, nil
}

func (a *Authority) issue(r Request) (*Certificate, error) {
	template, err := a.filled(&r)
	if err != nil {
		return nil, fmt.Errorf("issue certificate for %.80q: %w", r.Name, err)
	}
	der, err := a.sign(&r, template)
	if err != nil {
		return nil, fmt.Errorf("issue certificate for %q: %w: %w", r.Name, ErrAuthority, err)
	}
	return &Certificate{
		DER:       der,
		Chain:     encodePEM(der) + a.trust.chainPEM,
		Serial:    template.SerialNumber.Text(16),
		NotBefore: template.NotBefore,
		NotAfter:  template.NotAfter,
	}, nil
}

// sign leaves a key outside this process to crypto/x509, which verifies each signature.
func (a *Authority) sign(r *Request, template *x509.Certificate) ([]byte, error) {
	key, inMemory := a.cfg.Key.(*ecdsa.PrivateKey)
	if !inMemory || !a.layout.fits(r, template) {
		return x509.CreateCertificate(rand.Reader, template, a.cfg.Issuing, r.PublicKey, a.cfg.Key)
	}
	spki, err := encodeKey(r.PublicKey)
	if err != nil {
		return nil, err
	}
	tbs := a.layout.assemble(template, spki)
	digest := sha256.Sum256(tbs)
	signature, err := key.Sign(nil, digest[:], crypto.SHA256) // deterministic (RFC 6979), which is faster
	if err != nil {
		return nil, err
	}
	return signed(tbs, signature), nil
}

// filled returns what is signed.
func (a *Authority) filled(r *Request) (*x509.Certificate, error) {
	t, ttl, err := a.template(r)
	if err != nil {
		return nil, err
	}
	t.SerialNumber = newSerial()
	if t.NotBefore, t.NotAfter, err = a.validity(ttl); err != nil {
		return nil, err
	}
	t.SubjectKeyId, err = keyIdentifier(r.PublicKey)
	return t, err
}

// validity returns bounds within those of the authority's certificates.
func (a *Authority) validity(ttl time.Duration) (notBefore, notAfter time.Time, err error) {
	now := a.cfg.Now().UTC()
	if err := errors.Join(checkValid("root", a.cfg.Root, now), checkValid("issuing", a.cfg.Issuing, now)); err != nil {
		return time.Time{}, time.Time{}, err
	}
	notBefore = now.Add(-a.cfg.Backdate).Truncate(time.Second)
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
		return time.Time{}, time.Time{}, fmt.Errorf("%w: it ends at %s, in less than %v",
			ErrExpired, stamp(notAfter), MinTTL)
	}
	return notBefore, notAfter, nil
}

// newSerial returns 128 random bits whose first hex digit is not 0.
func newSerial() *big.Int {
	var b [16]byte
	for b[0] < 0x10 {
		_, _ = rand.Read(b[:]) // never fails (Go 1.24)
	}
	return new(big.Int).SetBytes(b[:])
}

// keyIdentifier uses method 1 of RFC 7093.
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

func certificateFingerprint(der []byte) string { return fmt.Sprintf("%x", sha256.Sum256(der)) }
