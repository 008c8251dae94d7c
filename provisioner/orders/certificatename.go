package orders

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/provisioner/trust"
)

// CertificateNameSchema is the version of the JSON form.
const CertificateNameSchema = 1

// MaxCertificateNodes bounds the patterns of a [CertificateName].
const MaxCertificateNodes = 64

// A CertificateName lists a name for the service certificates of nodes. Several nodes may have it at a time.
type CertificateName struct {
	Schema    int            `json:"schema"`
	ID        string         `json:"id"`                  // of this version of the entry
	Name      string         `json:"name"`                // DNS name or IP address
	Nodes     []wire.Pattern `json:"nodes"`               // one or more; none covers every node
	ExpiresAt time.Time      `json:"expires_at,omitzero"` // zero: never
	At        time.Time      `json:"at"`
	Removed   bool           `json:"removed,omitempty"`
	trust.Cause
}

// CheckCertificateName returns why service certificates cannot have the name, or nil.
func CheckCertificateName(name string) error {
	if a, err := wire.ParseNodeAddress(name); err == nil && a.String() == name {
		return nil
	}
	_, err := wire.ParseIdentity(name)
	return err
}

// CertificateNameID is the key of a name's entry.
func CertificateNameID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// LogKey is the entry's key in the log.
func (n *CertificateName) LogKey() string { return CertificateNameID(n.Name) }

// Check returns what is invalid.
func (n *CertificateName) Check() error {
	if n.Schema != CertificateNameSchema {
		return fmt.Errorf("certificate name %q: schema %d, want %d", n.Name, n.Schema, CertificateNameSchema)
	}
	errs := []error{CheckCertificateName(n.Name), n.Cause.Check()}
	if n.ID == "" {
		errs = append(errs, errors.New("it has no id"))
	}
	if len(n.Nodes) > MaxCertificateNodes || len(n.Nodes) == 0 && !n.Removed {
		errs = append(errs, fmt.Errorf("%d patterns of nodes, want 1 to %d", len(n.Nodes), MaxCertificateNodes))
	}
	for _, p := range n.Nodes {
		if _, err := wire.ParsePattern(string(p)); err != nil {
			errs = append(errs, err)
		} else if AnyName(p) {
			errs = append(errs, fmt.Errorf("%q covers every node", p))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("certificate name %.80q: %w", n.Name, err)
	}
	return nil
}

// n may be nil.
func (n *CertificateName) allows(node wire.Identity, now time.Time) bool {
	return n != nil && !n.Removed && (n.ExpiresAt.IsZero() || now.Before(n.ExpiresAt)) &&
		slices.ContainsFunc(n.Nodes, func(p wire.Pattern) bool { return p.Match(node) })
}

// CertificateNames is this process's view of listed names.
type CertificateNames struct{ trust.Log[*CertificateName] }

// Allows reports whether operators list the name for the node. An unreadable entry allows nothing.
func (ns CertificateNames) Allows(name string, node wire.Identity, now time.Time) bool {
	e, _ := ns.Get(CertificateNameID(name))
	return e.Value.allows(node, now)
}

// List returns all entries by name, also expired ones.
func (ns CertificateNames) List() []*CertificateName {
	list := []*CertificateName{}
	for _, e := range ns.All() {
		if e.Value != nil && !e.Value.Removed {
			list = append(list, e.Value)
		}
	}
	slices.SortFunc(list, func(a, b *CertificateName) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
