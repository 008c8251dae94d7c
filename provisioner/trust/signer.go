package trust

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"muster/internal/wire"
	"muster/jwt"
)

// SignerSchema is the version of a [SignerEntry]. A signer with an entry of another version is not trusted.
const SignerSchema = 1

// MaxSignerNameBytes bounds the name of a signer.
const MaxSignerNameBytes = 64

// A SignerEntry makes a signer's tokens valid until a revocation ends it.
type SignerEntry struct {
	Schema     int            `json:"schema"`
	Entry      string         `json:"entry"` // named by revocations
	ID         jwt.SignerID   `json:"id"`
	Name       string         `json:"name,omitempty"`
	Key        []byte         `json:"key,omitempty"` // SubjectPublicKeyInfo, DER
	NotBefore  time.Time      `json:"not_before,omitzero"`
	NotAfter   time.Time      `json:"not_after,omitzero"`
	Sites      []jwt.Site     `json:"sites,omitempty"`
	Identities []wire.Pattern `json:"identities,omitempty"`
	By         string         `json:"by"`
	Why        string         `json:"why,omitempty"`
	At         time.Time      `json:"at"`
}

// Check validates an entry.
func (e *SignerEntry) Check() error {
	if e.Schema != SignerSchema {
		return fmt.Errorf("signer %q: schema %d, want %d", e.ID, e.Schema, SignerSchema)
	}
	if err := CheckSignerID(e.ID); err != nil {
		return err
	}
	if e.Entry == "" {
		return fmt.Errorf("signer %q: entry without an id", e.ID)
	}
	_, err := e.signer()
	return err
}

// LogKey returns the key of the signer's entries.
func (e *SignerEntry) LogKey() string { return string(e.ID) }

func (e *SignerEntry) signer() (jwt.Signer, error) {
	key, err := x509.ParsePKIXPublicKey(e.Key)
	if err != nil {
		return jwt.Signer{}, fmt.Errorf("signer %q: key: %w", e.ID, err)
	}
	id, err := jwt.Fingerprint(key)
	if err != nil {
		return jwt.Signer{}, fmt.Errorf("signer %q: %w", e.ID, err)
	}
	if id != e.ID {
		return jwt.Signer{}, fmt.Errorf("signer %q: its key is that of signer %q", e.ID, id)
	}
	return jwt.Signer{
		Name:       e.Name,
		Key:        key,
		NotBefore:  e.NotBefore,
		NotAfter:   e.NotAfter,
		Sites:      e.Sites,
		Identities: e.Identities,
	}, nil
}

// CheckSignerID returns an error unless id is 64 lower-case hex digits.
func CheckSignerID(id jwt.SignerID) error {
	if !IsSHA256(string(id)) {
		return fmt.Errorf("signer id %.80q, want the SHA-256 of the public key, 64 lower-case hex digits", id)
	}
	return nil
}

// A NewSigner is an order to add a signer.
type NewSigner struct {
	// Public is for [jwt.ParseSigner]. Required.
	Public []byte `json:"public"`

	// Name defaults to a certificate's common name.
	Name string `json:"name,omitempty"`

	// Sites and Identities limit the tokens. Absent means no limit.
	Sites      []string `json:"sites,omitempty"`
	Identities []string `json:"identities,omitempty"`
}

// Entry validates the order.
func (n *NewSigner) Entry() (*SignerEntry, error) {
	s, err := jwt.ParseSigner(n.Public)
	if err != nil {
		return nil, err
	}
	e := &SignerEntry{
		Schema:    SignerSchema,
		Entry:     wire.NewID(),
		Name:      cmp.Or(n.Name, s.Name),
		NotBefore: s.NotBefore,
		NotAfter:  s.NotAfter,
	}
	var errs []error
	if e.Name == "" || len(e.Name) > MaxSignerNameBytes {
		errs = append(errs, fmt.Errorf("name of %d bytes, want 1 to %d", len(e.Name), MaxSignerNameBytes))
	}
	if !utf8.ValidString(e.Name) || strings.ContainsFunc(e.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		errs = append(errs, fmt.Errorf("name %.80q: want letters, digits, signs and spaces on one line", e.Name))
	}
	if !e.NotAfter.IsZero() && e.NotAfter.Before(e.NotBefore) { // verifiers refuse it
		errs = append(errs, fmt.Errorf("certificate ends at %s, before it begins", e.NotAfter.Format(time.RFC3339)))
	}
	const empty = "the list is empty: name the allowed values, or leave it out"
	if n.Sites != nil && len(n.Sites) == 0 {
		errs = append(errs, errors.New("sites: "+empty))
	}
	if n.Identities != nil && len(n.Identities) == 0 {
		errs = append(errs, errors.New("identities: "+empty))
	}
	for _, text := range n.Sites {
		site, err := jwt.ParseSite(text)
		e.Sites, errs = append(e.Sites, site), append(errs, err)
	}
	for _, text := range n.Identities {
		p, err := wire.ParseNamePattern(text)
		e.Identities, errs = append(e.Identities, p), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if e.ID, err = jwt.Fingerprint(s.Key); err != nil {
		return nil, err
	}
	if e.Key, err = x509.MarshalPKIXPublicKey(s.Key); err != nil {
		return nil, err
	}
	return e, nil
}

// A SignerSource is the origin of a signer.
type SignerSource string

// The sources of signers.
const (
	SignerOfFile  SignerSource = "file"  // provisioner.yaml
	SignerOfStore SignerSource = "store" // for every provisioner
)

// SignerInfo is a signer as this provisioner sees it.
type SignerInfo struct {
	ID         jwt.SignerID   `json:"id"`
	Name       string         `json:"name,omitempty"` // empty for a removed signer that is in no file
	Source     SignerSource   `json:"source"`         // of the entry in use
	InFile     bool           `json:"in_file"`
	KeyType    string         `json:"key_type,omitempty"` // [ca.KeyType]
	NotBefore  time.Time      `json:"not_before,omitzero"`
	NotAfter   time.Time      `json:"not_after,omitzero"`
	Sites      []jwt.Site     `json:"sites,omitempty"`
	Identities []wire.Pattern `json:"identities,omitempty"`
	Removed    bool           `json:"removed"`
	By         string         `json:"by,omitempty"` // operator of the last change
	Why        string         `json:"why,omitempty"`
	At         time.Time      `json:"at,omitzero"`
}
