package trust

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// RevocationSchema is the version of a [Revocation]. An entry of another version stops all admissions.
const RevocationSchema = 1

// A RevocationKind is the kind of a [Revocation].
type RevocationKind string

// The kinds of entries.
const (
	RevokedToken RevocationKind = "token"
	RevokedNode  RevocationKind = "node"
	RetiredNode  RevocationKind = "retired" // the identity is free again; its certificates are revoked

	HandedOver RevocationKind = "handover" // a name went to another key

	// RevokedService ends service certificates alone; their keys may go on. Name is "" for several.
	RevokedService RevocationKind = "certificate"

	RemovedSigner   RevocationKind = "signer"
	RemovedOperator RevocationKind = "operator"
)

// A Revocation ends a token, node, signer or operator. It is never changed or deleted. A retirement admits the
// identity's revoked keys again; certificates stay revoked.
type Revocation struct {
	Schema int            `json:"schema"`
	ID     string         `json:"id"` // records and journals name it
	Kind   RevocationKind `json:"kind"`
	At     time.Time      `json:"at"` // UTC, to the second
	By     string         `json:"by"`
	Why    string         `json:"why"`

	// Token is for kind token only.
	Token jwt.TokenID `json:"token,omitempty"`

	// Entry is the id of the ended entry, or the fingerprint of a signer of provisioner.yaml.
	Entry string `json:"entry,omitempty"`
	Name  string `json:"name,omitempty"`

	// Certificates are the unexpired ones of the node, Keys the hashes of all its keys. A retirement has no keys.
	Node         wire.Identity        `json:"node,omitempty"`
	Certificates []RevokedCertificate `json:"certificates,omitempty"`
	Keys         []string             `json:"keys,omitempty"`

	// Awaiting: the retired name is kept for a one-time secret, a grant or an approval.
	Awaiting bool `json:"awaiting,omitempty"`

	// To is the hash of the key that gets the name in a hand-over. Its Keys are refused for this name only.
	To string `json:"to,omitempty"`
}

// NewRevocation returns an entry with an id of its own, without a subject.
func NewRevocation(kind RevocationKind, at time.Time, c Cause) *Revocation {
	return &Revocation{
		Schema: RevocationSchema,
		ID:     wire.NewID(),
		Kind:   kind,
		At:     at,
		By:     c.By,
		Why:    c.Why,
	}
}

// A RevokedCertificate is a certificate for a CRL.
type RevokedCertificate struct {
	Serial   string    `json:"serial"`    // lower-case hex
	NotAfter time.Time `json:"not_after"` // then it leaves the CRL
	Issuer   string    `json:"issuer"`    // key identifier
}

const (
	keyNode    = "node."
	keyService = "certificate."
)

// LogKey returns the key of the entry.
func (r *Revocation) LogKey() string {
	switch r.Kind {
	case RevokedToken:
		return "token." + string(r.Token)
	case RemovedSigner:
		return "signer." + r.Entry
	case RemovedOperator:
		return "operator." + r.Entry
	}
	scope := keyNode
	if r.Kind == RevokedService {
		scope = keyService
	}
	return scope + r.Node.SubjectToken() + "." + r.ID
}

// RevocationScope returns the keys whose newest revision a write of key must expect: all keys of the same node.
func RevocationScope(key string) string {
	if node, ok := strings.CutPrefix(key, keyNode); ok {
		token, _, _ := strings.Cut(node, ".")
		return keyNode + token + ".*"
	}
	return key
}

// Check validates an entry.
func (r *Revocation) Check() error {
	switch {
	case r.Schema != RevocationSchema:
		return fmt.Errorf("revocation %q: schema %d, want %d", r.ID, r.Schema, RevocationSchema)
	case !isSubjectToken(r.ID):
		return fmt.Errorf("revocation with id %.80q, want one token of a NATS subject", r.ID)
	case r.Kind == RemovedSigner || r.Kind == RemovedOperator:
		if !isSubjectToken(r.Entry) {
			return fmt.Errorf("revocation %q: entry %.80q, want one token of a NATS subject", r.ID, r.Entry)
		}
		return nil
	case r.Kind == RevokedToken:
		return CheckTokenID(r.Token)
	case r.Kind == HandedOver && (r.To == "" || len(r.Keys) == 0):
		return fmt.Errorf("revocation %q: hand-over from %d keys to key %q, want at least one key and a new one", r.ID,
			len(r.Keys), r.To)
	case r.Kind != RevokedNode && r.Kind != RetiredNode && r.Kind != HandedOver && r.Kind != RevokedService:
		return fmt.Errorf("revocation %q: unknown kind %q", r.ID, r.Kind)
	case r.Kind == RevokedService && (len(r.Certificates) == 0 || len(r.Keys) > 0):
		return fmt.Errorf("revocation %q: %d service certificates and %d keys, want at least one and none", r.ID,
			len(r.Certificates), len(r.Keys))
	case r.Kind == RetiredNode && len(r.Keys) > 0:
		return fmt.Errorf("revocation %q: a retirement must have no keys", r.ID)
	}
	if _, err := wire.ParseIdentity(string(r.Node)); err != nil {
		return fmt.Errorf("revocation %q: %w", r.ID, err)
	}
	for _, c := range r.Certificates {
		if c.Serial == "" || strings.Trim(c.Serial, "0123456789abcdef") != "" {
			return fmt.Errorf("revocation %q: certificate serial %q, want lower-case hex", r.ID, c.Serial)
		}
	}
	return nil
}

func isSubjectToken(s string) bool { return s != "" && !strings.ContainsAny(s, ".*> \t") }

// Ended returns the revocation that ended the entry with this id, or nil.
func Ended(log Log[*Revocation], kind RevocationKind, id string) *Revocation {
	key := (&Revocation{Kind: kind, Entry: id}).LogKey()
	e, found := log.Get(key)
	switch {
	case !found:
		return nil
	case e.Unread != nil:
		return UnreadEntry(kind, id, e.At)
	}
	return e.Value
}

// Err describes the entry as the cause of a refusal.
func (r *Revocation) Err() error {
	what := "token " + string(r.Token)
	switch r.Kind {
	case RevokedNode:
		what = string(r.Node)
	case RetiredNode:
		what = "a retired certificate of " + string(r.Node)
	case HandedOver:
		return fmt.Errorf("%s: given to another key by %q at %s: %q", r.Node, r.By, r.At.UTC().Format(time.RFC3339),
			r.Why)
	case RevokedService:
		what = strings.TrimSuffix("a service certificate of "+string(r.Node)+": "+r.Name, ": ")
	case RemovedSigner, RemovedOperator:
		what = string(r.Kind) + " " + r.Name
	}
	return fmt.Errorf("%s: revoked by %q at %s: %q", what, r.By, r.At.UTC().Format(time.RFC3339), r.Why)
}

// ErrTokenID means that a text is not a token id.
var ErrTokenID = errors.New("not a token id")

// CheckTokenID returns [ErrTokenID], wrapped, unless id is 32 lower-case hex digits.
func CheckTokenID(id jwt.TokenID) error {
	if !isHex(string(id), 32) {
		return fmt.Errorf("%w: %.80q, want 32 lower-case hex digits", ErrTokenID, id)
	}
	return nil
}
