package provisioner

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/jwt"
	"muster/provisioner/ca"
)

// OperatorSchema is the version of an operator entry's JSON form. An entry of another
// schema removes its operator.
const OperatorSchema = 1

// maxOperatorName bounds the name of an operator, as package ca bounds that of
// a certificate's holder (ub-common-name, RFC 5280 appendix A.1).
const maxOperatorName = 64

// OperatorRole says what an operator may do. Each role may do what those before
// it may.
type OperatorRole string

// The roles of operators.
const (
	RoleViewer   OperatorRole = "viewer"   // looks
	RoleOperator OperatorRole = "operator" // changes nodes, tokens and approvals
	RoleAdmin    OperatorRole = "admin"    // changes whom the installation trusts, and takes backups
)

// OperatorRoles returns the roles, the one that may do least first.
func OperatorRoles() []OperatorRole { return []OperatorRole{RoleViewer, RoleOperator, RoleAdmin} }

// Covers reports whether who has the role may do what need may. No role covers
// one that does not exist, and one that does not exist covers none.
func (r OperatorRole) Covers(need OperatorRole) bool {
	have, want := slices.Index(OperatorRoles(), r), slices.Index(OperatorRoles(), need)
	return want >= 0 && have >= want
}

// check reports that there is no such role.
func (r OperatorRole) check() error {
	if !slices.Contains(OperatorRoles(), r) {
		return fmt.Errorf("role %.40q, want viewer, operator or admin", r)
	}
	return nil
}

// An OperatorEntry says in the store that an operator may come in over HTTPS,
// or no longer. The newest entry about a name counts. An operator has one key:
// it signs their tokens, or is that of their certificate, or both.
type OperatorEntry struct {
	Schema  int          `json:"schema"`
	Name    string       `json:"name"`
	Role    OperatorRole `json:"role,omitempty"` // none in a removal
	Key     []byte       `json:"key,omitempty"`  // SubjectPublicKeyInfo in DER; none in a removal
	Serial  string       `json:"serial,omitempty"`
	Ends    time.Time    `json:"ends,omitzero"`    // of the certificate
	Issuer  string       `json:"issuer,omitempty"` // of the certificate: [ca.Issuer].KeyID; none on entries of before it was kept
	Removed bool         `json:"removed,omitempty"`
	By      string       `json:"by"`
	Why     string       `json:"why,omitempty"`
	At      time.Time    `json:"at"` // UTC, to the second
}

// Check reports what about an entry cannot be. It is run on every entry that is
// read.
func (e *OperatorEntry) Check() error {
	if e.Schema != OperatorSchema {
		return fmt.Errorf("operator %.80q: schema %d, want %d", e.Name, e.Schema, OperatorSchema)
	}
	if err := CheckOperatorName(e.Name); err != nil {
		return err
	}
	if e.Removed {
		return nil
	}
	if err := e.Role.check(); err != nil {
		return fmt.Errorf("operator %q: %w", e.Name, err)
	}
	if _, err := x509.ParsePKIXPublicKey(e.Key); err != nil {
		return fmt.Errorf("operator %q: key: %w", e.Name, err)
	}
	return nil
}

// LogKey is the key of the log's entries about the operator.
func (e *OperatorEntry) LogKey() string { return e.Name }

// CheckOperatorName reports why name cannot be an operator's. It has no dot: it
// is one token of a subject as it is.
func CheckOperatorName(name string) error {
	const chars = "abcdefghijklmnopqrstuvwxyz0123456789"
	if name == "" || len(name) > maxOperatorName || strings.Trim(name, chars+"_-") != "" || !strings.ContainsRune(chars, rune(name[0])) {
		return fmt.Errorf("operator %.80q: want 1 to %d of a-z, 0-9, _ and -, beginning with a letter or digit", name, maxOperatorName)
	}
	return nil
}

// A NewOperator is an operator who is to be added.
type NewOperator struct {
	// Name is what events and history call them; see [CheckOperatorName].
	Name string `json:"name"`

	// Role is required.
	Role OperatorRole `json:"role"`

	// Public is their public key, P-256 or Ed25519, as [jwt.ParseSigner] reads it.
	// Whoever asks has seen to it that they hold the private half.
	Public []byte `json:"public"`

	// Certificate asks for a certificate over the key.
	Certificate bool `json:"certificate,omitempty"`

	// TTL is the life of the certificate; 0 is the authority's default, 720h.
	TTL time.Duration `json:"ttl_ns,omitempty"`
}

// entry checks what was given, all of it, and returns it as an entry.
func (n *NewOperator) entry() (*OperatorEntry, error) {
	e := &OperatorEntry{Schema: OperatorSchema, Name: n.Name, Role: n.Role}
	errs := []error{CheckOperatorName(n.Name), n.Role.check()}
	if n.TTL != 0 && !n.Certificate {
		errs = append(errs, errors.New("a lifetime without a certificate: tokens have their own"))
	}
	s, err := jwt.ParseSigner(n.Public)
	if err == nil {
		if err = jwt.CheckOperatorKey(s.Key); err == nil {
			e.Key, err = x509.MarshalPKIXPublicKey(s.Key)
		}
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return e, nil
}

// An OperatorInfo is an operator as this provisioner knows them.
type OperatorInfo struct {
	Name    string       `json:"name"`
	Role    OperatorRole `json:"role,omitempty"`
	KeyType string       `json:"key_type,omitempty"` // as [ca.KeyType] names it
	Serial  string       `json:"serial,omitempty"`   // of the certificate, if they have one
	Ends    time.Time    `json:"ends,omitzero"`      // of the certificate
	Removed bool         `json:"removed"`
	By      string       `json:"by"`
	Why     string       `json:"why,omitempty"`
	At      time.Time    `json:"at"`
}

// info describes the entry.
func (e *OperatorEntry) info() OperatorInfo {
	i := OperatorInfo{Name: e.Name, Role: e.Role, Serial: e.Serial, Ends: e.Ends, Removed: e.Removed, By: e.By, Why: e.Why, At: e.At}
	if key, err := x509.ParsePKIXPublicKey(e.Key); err == nil { // a removal has none
		i.KeyType, _ = ca.KeyType(key)
	}
	return i
}
