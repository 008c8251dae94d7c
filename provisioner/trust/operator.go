package trust

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// OperatorSchema is the version of an operator entry's JSON form. An entry of another
// schema removes its operator.
const OperatorSchema = 1

// MaxOperatorName bounds the name of an operator, as package ca bounds that of
// a certificate's holder (ub-common-name, RFC 5280 appendix A.1).
const MaxOperatorName = 64

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

// Check reports that there is no such role.
func (r OperatorRole) Check() error {
	if !slices.Contains(OperatorRoles(), r) {
		return fmt.Errorf("role %.40q, want viewer, operator or admin", r)
	}
	return nil
}

// An OperatorEntry says in the store that an operator may come in over HTTPS, until a revocation
// ends the entry. The newest entry about a name counts. An operator has one key:
// it signs their tokens, or is that of their certificate, or both.
type OperatorEntry struct {
	Schema int          `json:"schema"`
	ID     string       `json:"id"` // random: a revocation names it
	Name   string       `json:"name"`
	Role   OperatorRole `json:"role"`
	Key    []byte       `json:"key"` // SubjectPublicKeyInfo in DER
	Serial string       `json:"serial,omitempty"`
	Ends   time.Time    `json:"ends,omitzero"`    // of the certificate
	Issuer string       `json:"issuer,omitempty"` // of the certificate: [ca.Issuer].KeyID
	By     string       `json:"by"`
	Why    string       `json:"why,omitempty"`
	At     time.Time    `json:"at"` // UTC, to the second
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
	if e.ID == "" {
		return fmt.Errorf("operator %q: entry without an id", e.Name)
	}
	if err := e.Role.Check(); err != nil {
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
	if name == "" || len(name) > MaxOperatorName || strings.Trim(name, chars+"_-") != "" || !strings.ContainsRune(chars, rune(name[0])) {
		return fmt.Errorf("operator %.80q: want 1 to %d of a-z, 0-9, _ and -, beginning with a letter or digit", name, MaxOperatorName)
	}
	return nil
}

// ErrNoOperator means that no operator has this name, or no longer.
var ErrNoOperator = errors.New("no such operator")

// Operators are those of the store, as this process knows them.
type Operators struct {
	Log[*OperatorEntry]

	Revocations Log[*Revocation]
}

// A KnownOperator is the newest entry about an operator, and what ended it, nil if it counts. An
// entry that cannot be read does not count.
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

// Of returns what is known of an operator, and whether there is any such.
func (o Operators) Of(name string) (KnownOperator, bool) {
	e, found := o.Get(name)
	if !found {
		return KnownOperator{}, false
	}
	return o.known(name, e), true
}

// List returns what is known of each operator, by name, those that were removed too.
func (o Operators) List() []KnownOperator {
	list := []KnownOperator{}
	for name, e := range o.All() {
		list = append(list, o.known(name, e))
	}
	slices.SortFunc(list, func(a, b KnownOperator) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
