package trust

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// OperatorSchema is the version of an [OperatorEntry]. An entry of another version counts as removed.
const OperatorSchema = 1

// MaxOperatorName is the limit of a common name in bytes (RFC 5280 appendix A.1).
const MaxOperatorName = 64

// An OperatorRole includes all weaker roles. [RoleForeman] includes none, and no role includes it.
type OperatorRole string

// The roles of operators.
const (
	RoleViewer   OperatorRole = "viewer"  // reads
	RoleAuditor  OperatorRole = "auditor" // also reads recorded inputs, the configuration and the policy
	RoleOperator OperatorRole = "operator"
	RoleAdmin    OperatorRole = "admin" // may change signers and operators, and make backups
	RoleForeman  OperatorRole = "foreman"
)

// OperatorRoles returns all roles, the weakest first, and last that of Foreman.
func OperatorRoles() []OperatorRole {
	return []OperatorRole{RoleViewer, RoleAuditor, RoleOperator, RoleAdmin, RoleForeman}
}

// Covers reports whether r includes need.
func (r OperatorRole) Covers(need OperatorRole) bool {
	if r == RoleForeman || need == RoleForeman {
		return r == need
	}
	have, want := slices.Index(OperatorRoles(), r), slices.Index(OperatorRoles(), need)
	return want >= 0 && have >= want
}

// Check validates a role.
func (r OperatorRole) Check() error {
	if !slices.Contains(OperatorRoles(), r) {
		return fmt.Errorf("role %.40q, want viewer, auditor, operator, admin or foreman", r)
	}
	return nil
}

// Sites limit an operator to the nodes, pending keys, tokens and service certificates at these sites. Nil: no limit.
type Sites []jwt.Site

// maxSites bounds an entry.
const maxSites = 64

// Has reports whether what is at a site is within the limit. A limit includes nothing without a site.
func (s Sites) Has(site jwt.Site) bool { return s == nil || site != "" && slices.Contains(s, site) }

// Check validates the sites of an operator with a role.
func (s Sites) Check(role OperatorRole) error {
	switch {
	case s == nil:
		return nil
	case role != RoleViewer && role != RoleOperator:
		return fmt.Errorf("sites for the role %s: only the roles viewer and operator are limited to sites", role)
	case len(s) == 0 || len(s) > maxSites:
		return fmt.Errorf("%d sites, want 1 to %d", len(s), maxSites)
	}
	var errs []error
	for _, site := range s {
		_, err := jwt.ParseSite(string(site))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// An OperatorEntry admits an operator over HTTPS until a revocation ends it.
type OperatorEntry struct {
	Schema int          `json:"schema"`
	ID     string       `json:"id"` // named by revocations
	Name   string       `json:"name"`
	Role   OperatorRole `json:"role"`

	// Names are the only nodes that a [RoleForeman] may manage. Other roles have none.
	Names []wire.Pattern `json:"names,omitempty"`

	Sites Sites `json:"sites,omitempty"`

	Key    []byte    `json:"key"` // SubjectPublicKeyInfo, DER
	Serial string    `json:"serial,omitempty"`
	Ends   time.Time `json:"ends,omitzero"`    // of the certificate
	Issuer string    `json:"issuer,omitempty"` // of the certificate: [ca.CertificateInfo].KeyID
	By     string    `json:"by"`
	Why    string    `json:"why,omitempty"`
	At     time.Time `json:"at"`
}

// Check validates an entry.
func (e *OperatorEntry) Check() error {
	if e.Schema != OperatorSchema {
		return fmt.Errorf("operator %.80q: schema %d, want %d", e.Name, e.Schema, OperatorSchema)
	}
	if err := CheckOperatorName(e.Name); err != nil {
		return err
	}
	if e.ID == "" {
		return fmt.Errorf("operator %q: entry without an id", e.Name)
	}
	if err := e.Role.Check(); err != nil {
		return fmt.Errorf("operator %q: %w", e.Name, err)
	}
	if err := e.Sites.Check(e.Role); err != nil {
		return fmt.Errorf("operator %q: %w", e.Name, err)
	}
	if _, err := x509.ParsePKIXPublicKey(e.Key); err != nil {
		return fmt.Errorf("operator %q: key: %w", e.Name, err)
	}
	return nil
}

// LogKey returns the key of the operator's entries.
func (e *OperatorEntry) LogKey() string { return e.Name }

// CheckOperatorName validates a name. It is one token of a NATS subject.
func CheckOperatorName(name string) error {
	const chars = "abcdefghijklmnopqrstuvwxyz0123456789"
	if name == "" || len(name) > MaxOperatorName || strings.Trim(name, chars+"_-") != "" ||
		!strings.ContainsRune(chars, rune(name[0])) {
		return fmt.Errorf("operator %.80q: want 1 to %d of a-z, 0-9, _ and -, beginning with a letter or digit", name,
			MaxOperatorName)
	}
	return nil
}

// ErrNoOperator means that there is no operator of this name.
var ErrNoOperator = errors.New("no such operator")

// Operators are the operators in the store.
type Operators struct {
	Log[*OperatorEntry]

	Revocations Log[*Revocation]
}

// A KnownOperator is an operator's newest entry, and the revocation that ended it.
type KnownOperator struct {
	*OperatorEntry

	Ended *Revocation
}

func (o Operators) known(name string, e Entry[*OperatorEntry]) KnownOperator {
	if e.Unread != nil {
		return KnownOperator{&OperatorEntry{Name: name}, UnreadEntry(RemovedOperator, name, e.At)}
	}
	return KnownOperator{e.Value, Ended(o.Revocations, RemovedOperator, e.Value.ID)}
}

// Of returns the operator of this name, and whether there is one.
func (o Operators) Of(name string) (KnownOperator, bool) {
	e, found := o.Get(name)
	if !found {
		return KnownOperator{}, false
	}
	return o.known(name, e), true
}

// List returns all operators by name.
func (o Operators) List() []KnownOperator {
	list := []KnownOperator{}
	for name, e := range o.All() {
		list = append(list, o.known(name, e))
	}
	slices.SortFunc(list, func(a, b KnownOperator) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
