package ca

import (
	"crypto/x509"
	"encoding/hex"
	"time"
)

// CertificateInfo describes one certificate of an authority, for `muster ca show -o json` and /v1/ca.
type CertificateInfo struct {
	Authority   string    `json:"authority"` // present, previous or puppet; a previous one issues nothing
	What        string    `json:"what"`      // root, issuing or cross
	Name        string    `json:"name"`      // common name
	Issuer      string    `json:"issuer"`    // common name
	Fingerprint string    `json:"sha256"`    // lower-case hex over the DER; claim `ca` of a token pins that of a root
	KeyID       string    `json:"key_id"`    // subject key identifier, lower-case hex
	NotBefore   time.Time `json:"not_before"`
	NotAfter    time.Time `json:"not_after"`
}

// Certificates describes the certificates of the authority, of the previous ones and of the branch, as [Describe] does.
func (a *Authority) Certificates() []CertificateInfo {
	if b := a.cfg.Branch; b != nil {
		return Describe(a.all[0], a.all[1:], b.all[0])
	}
	return Describe(a.all[0], a.all[1:])
}

// Describe describes the certificates of the present authority, then those of the previous ones and of the branch. They
// are not checked.
func Describe(present Previous, previous []Previous, branch ...Previous) (all []CertificateInfo) {
	of := "present"
	add := func(what string, certificates ...*x509.Certificate) {
		for _, c := range certificates {
			all = append(all, CertificateInfo{
				Authority:   of,
				What:        what,
				Name:        c.Subject.CommonName,
				Issuer:      c.Issuer.CommonName,
				Fingerprint: certificateFingerprint(c.Raw),
				KeyID:       hex.EncodeToString(c.SubjectKeyId),
				NotBefore:   c.NotBefore.UTC(),
				NotAfter:    c.NotAfter.UTC(),
			})
		}
	}
	for _, p := range append([]Previous{present}, previous...) {
		add("root", p.Root)
		add("issuing", p.Issuing)
		add("cross", p.Cross...)
		of = "previous"
	}
	of = "puppet"
	for _, p := range branch {
		add("root", p.Root)
		add("issuing", p.Issuing)
	}
	return all
}
