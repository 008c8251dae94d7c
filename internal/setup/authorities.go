package setup

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"time"

	"muster/internal/daemon"
)

// AuthorityInfo is one certificate authority that a configuration names. Its
// JSON form is what `muster ca show --json` prints, one object in a list each.
type AuthorityInfo struct {
	Present bool              `json:"present"` // it issues
	Root    CertificateInfo   `json:"root"`
	Issuing CertificateInfo   `json:"issuing"`
	Cross   []CertificateInfo `json:"cross,omitempty"`
}

// CertificateInfo is one certificate of an authority.
type CertificateInfo struct {
	What        string    `json:"what"`   // root, issuing or cross
	Name        string    `json:"name"`   // common name
	Issuer      string    `json:"issuer"` // common name
	Fingerprint string    `json:"sha256"` // lower-case hex over the DER; of a root, what tokens pin as their `ca`
	KeyID       string    `json:"key_id"` // subject key identifier, lower-case hex
	NotBefore   time.Time `json:"not_before"`
	NotAfter    time.Time `json:"not_after"`
}

// Certificates returns all certificates of the authority, the root first.
func (a *AuthorityInfo) Certificates() []CertificateInfo {
	return append([]CertificateInfo{a.Root, a.Issuing}, a.Cross...)
}

// ReadAuthorities reads the certificates of the authorities that a
// configuration file names, the present one first. No key is read, and whether
// they fit together is not looked at.
func ReadAuthorities(path string) ([]AuthorityInfo, error) {
	cfg, err := daemon.ReadConfig(path)
	if err != nil {
		return nil, err
	}
	all := append([]daemon.PreviousConfig{{Root: cfg.CA.Root, Certificate: cfg.CA.Certificate}}, cfg.CA.Previous...)
	var out []AuthorityInfo
	for i, p := range all {
		read, err := p.Read()
		if err != nil {
			return nil, err
		}
		info := AuthorityInfo{Present: i == 0, Root: certificateInfo("root", read.Root), Issuing: certificateInfo("issuing", read.Issuing)}
		for _, c := range read.Cross {
			info.Cross = append(info.Cross, certificateInfo("cross", c))
		}
		out = append(out, info)
	}
	return out, nil
}

func certificateInfo(what string, c *x509.Certificate) CertificateInfo {
	sum := sha256.Sum256(c.Raw)
	return CertificateInfo{
		What: what, Name: c.Subject.CommonName, Issuer: c.Issuer.CommonName, Fingerprint: hex.EncodeToString(sum[:]),
		KeyID: hex.EncodeToString(c.SubjectKeyId), NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(),
	}
}
