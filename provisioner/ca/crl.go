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

// ReasonCessation is the reason of a CRL entry whose certificate is of no
// further use: its machine is gone (cessationOfOperation, RFC 5280 section
// 5.3.1). 0, of any other entry, says nothing: the section asks to leave
// "unspecified" out.
const ReasonCessation = 5

// A CRLRequest asks for a signed list of revoked certificates.
type CRLRequest struct {
	// Number is greater than that of every CRL before it. 1 or more.
	Number uint64

	// ThisUpdate is when the list is issued, NextUpdate when the next one is, at
	// the latest. Whole seconds.
	ThisUpdate, NextUpdate time.Time

	// Revoked are certificates of the issuer, each once, in any order. None is
	// an empty list.
	Revoked []Revoked
}

// Revoked is a certificate on a CRL.
type Revoked struct {
	Serial string    // as [Serial] writes it
	At     time.Time // listed as ThisUpdate if it is later than that
	Reason int       // [ReasonCessation] or 0
}

// IssuerKeyID returns the subject key identifier of the issuing certificate, in
// lower-case hex: what every certificate and CRL of it names as its authority.
func (a *Authority) IssuerKeyID() string { return keyID(a.cfg.Issuing) }

// CRLIssuers returns the key ids of the issuers whose CRLs are to be signed, each
// once: the present one, and then, the newest first, previous ones that have
// their keys and that have not expired. Whether those are trusted plays no part.
func (a *Authority) CRLIssuers() []string {
	ids, now := []string{a.IssuerKeyID()}, a.cfg.Now()
	for _, p := range a.cfg.Previous {
		expired := now.After(p.Root.NotAfter) || now.After(p.Issuing.NotAfter)
		if id := keyID(p.Issuing); p.Key != nil && !expired && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// crlSigner returns certificate and key of an issuer, nil if there is no key.
func (a *Authority) crlSigner(issuer string) (*x509.Certificate, crypto.Signer) {
	if issuer == a.IssuerKeyID() {
		return a.cfg.Issuing, a.cfg.Key
	}
	for _, p := range a.cfg.Previous {
		if p.Key != nil && keyID(p.Issuing) == issuer {
			return p.Issuing, p.Key
		}
	}
	return nil, nil
}

// SignCRL signs a CRL in DER after the profile of RFC 5280 section 5, for
// certificates of the issuer with the key id, which is [Authority.IssuerKeyID] or
// another of [Authority.CRLIssuers]: version 2 with number and authority key
// identifier, and no other extension. Entries are sorted by serial number. Nothing is
// stored: the caller sees to it that no number of an issuer's is used twice. The
// error wraps [ErrRequest] if the request is at fault, or names an issuer whose key
// is not here, and [ErrAuthority] if the authority is.
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

// sign makes the CRL.
func (r *CRLRequest) sign(issuing *x509.Certificate, key crypto.Signer) ([]byte, error) {
	entries, err := r.entries()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: new(big.Int).SetUint64(r.Number), ThisUpdate: r.ThisUpdate.UTC(), NextUpdate: r.NextUpdate.UTC(),
		RevokedCertificateEntries: entries,
	}, issuing, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAuthority, err)
	}
	return der, nil
}

// entries returns the certificates of the request, sorted.
func (r *CRLRequest) entries() ([]x509.RevocationListEntry, error) {
	entries := make([]x509.RevocationListEntry, 0, len(r.Revoked))
	for _, c := range r.Revoked {
		serial, ok := new(big.Int).SetString(c.Serial, 16)
		if !ok || serial.Sign() <= 0 || strings.ToLower(c.Serial) != c.Serial {
			return nil, fmt.Errorf("serial number %.80q, want lower-case hex", c.Serial)
		}
		// Who revokes and who signs may have different clocks.
		at := c.At.UTC().Truncate(time.Second)
		if at.After(r.ThisUpdate) {
			at = r.ThisUpdate.UTC()
		}
		entries = append(entries, x509.RevocationListEntry{SerialNumber: serial, RevocationTime: at, ReasonCode: c.Reason})
	}
	slices.SortFunc(entries, func(a, b x509.RevocationListEntry) int { return a.SerialNumber.Cmp(b.SerialNumber) })
	return entries, nil
}

// EncodeCRL returns a CRL in PEM, as nats-server, nginx and openssl read it. What
// it returns for several issuers can be put into one file, one after the other.
func EncodeCRL(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}
