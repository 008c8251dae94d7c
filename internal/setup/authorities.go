package setup

import (
	"crypto/x509"
	"encoding/hex"
	"time"

	"muster/internal/daemon"
)

// CertificateInfo is one certificate of an authority that a configuration names. Its
// JSON form is what `muster ca show --json` prints.
type CertificateInfo struct {
	Authority   string    `json:"authority"` // present, which issues, or previous
	What        string    `json:"what"`      // root, issuing or cross
	Name        string    `json:"name"`      // common name
	Issuer      string    `json:"issuer"`    // common name
	Fingerprint string    `json:"sha256"`    // lower-case hex over the DER; of a root, what tokens pin as their `ca`
	KeyID       string    `json:"key_id"`    // subject key identifier, lower-case hex
	NotBefore   time.Time `json:"not_before"`
	NotAfter    time.Time `json:"not_after"`
}

// ReadAuthorities reads the certificates of the authorities that a
// configuration file names, the present one first. No key is read, and whether
// they fit together is not looked at.
func ReadAuthorities(path string) ([]CertificateInfo, error) {
	cfg, err := daemon.ReadConfig(path)
	if err != nil {
		return nil, err
	}
	var all []CertificateInfo
	of := "present"
	add := func(what string, certificates ...*x509.Certificate) {
		for _, c := range certificates {
			all = append(all, CertificateInfo{
				Authority:   of,
				What:        what,
				Name:        c.Subject.CommonName,
				Issuer:      c.Issuer.CommonName,
				Fingerprint: fingerprintOf(c),
				KeyID:       hex.EncodeToString(c.SubjectKeyId),
				NotBefore:   c.NotBefore.UTC(),
				NotAfter:    c.NotAfter.UTC(),
			})
		}
	}
	for _, p := range append([]daemon.PreviousConfig{{Root: cfg.CA.Root, Certificate: cfg.CA.Certificate}}, cfg.CA.Previous...) {
		read, err := p.Read()
		if err != nil {
			return nil, err
		}
		add("root", read.Root)
		add("issuing", read.Issuing)
		add("cross", read.Cross...)
		of = "previous"
	}
	return all, nil
}
