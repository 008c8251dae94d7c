package ca

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// ReasonCessation is cessationOfOperation, RFC 5280 section 5.3.1.
const ReasonCessation = 5

// A CRLRequest asks for a signed CRL.
type CRLRequest struct {
	// Number is 1 or more and must increase.
	Number uint64

	// ThisUpdate is when the CRL is issued, NextUpdate the latest time of the next one, in whole seconds.
	ThisUpdate, NextUpdate time.Time

	// Revoked are certificates of the issuer, each once, in any order.
	Revoked []Revoked
}

// Revoked is a certificate on a CRL.
type Revoked struct {
	Serial string    // see [Serial]
	At     time.Time // listed as ThisUpdate if later
	Reason int       // [ReasonCessation] or 0
}

// IssuerKeyID returns the issuing certificate's subject key identifier in lower-case hex.
func (a *Authority) IssuerKeyID() string { return keyID(a.cfg.Issuing) }

// CRLIssuers returns the key ids of the present issuer and of unexpired previous ones that have a [Previous].Key,
// newest first.
func (a *Authority) CRLIssuers() []string {
	ids, now := []string{a.IssuerKeyID()}, a.cfg.Now()
	for _, p := range a.all[1:] {
		expired := now.After(p.Root.NotAfter) || now.After(p.Issuing.NotAfter)
		if id := keyID(p.Issuing); p.Key != nil && !expired && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// crlSigner returns nil if the issuer's key is not configured.
func (a *Authority) crlSigner(issuer string) (*x509.Certificate, crypto.Signer) {
	for _, p := range a.all {
		if p.Key != nil && keyID(p.Issuing) == issuer {
			return p.Issuing, p.Key
		}
	}
	return nil, nil
}

// SignCRL signs a CRL (RFC 5280 section 5) for one of [Authority.CRLIssuers]. Use each number only once. The error
// wraps [ErrRequest] or [ErrAuthority].
func (a *Authority) SignCRL(issuer string, r CRLRequest) ([]byte, error) {
	issuing, key := a.crlSigner(issuer)
	if issuing == nil {
		return nil, fmt.Errorf("sign CRL %d: %w: no key of issuer %q", r.Number, ErrRequest, issuer)
	}
	der, err := r.sign(issuing, key)
	if err != nil {
		return nil, fmt.Errorf("sign CRL %d: %w", r.Number, err)
	}
	return der, nil
}

func (r *CRLRequest) sign(issuing *x509.Certificate, key crypto.Signer) ([]byte, error) {
	entries := make([]x509.RevocationListEntry, 0, len(r.Revoked))
	for _, c := range r.Revoked {
		serial, ok := new(big.Int).SetString(c.Serial, 16)
		if !ok || serial.Sign() <= 0 || strings.ToLower(c.Serial) != c.Serial {
			return nil, fmt.Errorf("%w: serial number %.80q, want lower-case hex", ErrRequest, c.Serial)
		}
		// Revocation and CRL may get their times from different clocks.
		at := c.At.UTC().Truncate(time.Second)
		if at.After(r.ThisUpdate) {
			at = r.ThisUpdate.UTC()
		}
		entry := x509.RevocationListEntry{SerialNumber: serial, RevocationTime: at, ReasonCode: c.Reason}
		entries = append(entries, entry)
	}
	slices.SortFunc(entries, func(a, b x509.RevocationListEntry) int { return a.SerialNumber.Cmp(b.SerialNumber) })
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number:                    new(big.Int).SetUint64(r.Number),
		ThisUpdate:                r.ThisUpdate.UTC(),
		NextUpdate:                r.NextUpdate.UTC(),
		RevokedCertificateEntries: entries,
	}, issuing, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAuthority, err)
	}
	return der, nil
}

// EncodeCRL returns a CRL in PEM. CRLs of several issuers can be concatenated.
func EncodeCRL(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}
