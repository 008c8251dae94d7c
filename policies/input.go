package policies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
)

// An Input is what a policy sees of one request: the document `input`. Its
// JSON is also what is recorded of a decision, so that a policy can be run over
// past requests. A field of a later version is added, never renamed.
//
// Lists are always there, empty rather than null. Members tagged omitzero are
// absent where there is nothing to say, which makes them undefined in Rego.
// Times are RFC 3339 in UTC.
//
// There are no secrets in an Input as far as muster knows; what operators
// put into facts and extensions is theirs, so it is not logged.
type Input struct {
	// Identity is the name that the node asks for, checked to be one
	// ([muster/internal/wire.ParseIdentity]) and to be the CSR's.
	Identity string `json:"identity"`

	// Token holds the claims of the token, authenticated. Of a renewal, which
	// brings none, they are those of the token that let the node in.
	Token Token `json:"token"`

	// CSR is what the certificate request asks for. Its signature is verified,
	// its names are wishes.
	CSR CSR `json:"csr"`

	// Facts is a JSON object that the node sent about itself. It is unproven:
	// whoever holds a token can write anything here. Nil means {}.
	Facts json.RawMessage `json:"facts"`

	// Node is what is on record of the identity.
	Node Node `json:"node"`

	// Allow is the entry of the allow-list that matched, unexpired; null if
	// none did. Matching is done before the policy, since Rego over 100,000
	// patterns is slow.
	Allow *AllowEntry `json:"allow"`

	// Source is where the request came from.
	Source Source `json:"source"`

	// Provisioner is who asks.
	Provisioner Provisioner `json:"provisioner"`

	// Evidence is reserved for attestation. Nil means null.
	Evidence json.RawMessage `json:"evidence"`

	// Time is when the request is decided, by the provisioner's clock; also what
	// time.now_ns gives.
	Time time.Time `json:"time"`
}

// A Token is the claims of a verified token. Its secret, its password and its
// text are left out.
type Token struct {
	ID         string          `json:"id"`         // the id that counts and revokes it (DESIGN: tid)
	Signer     string          `json:"signer"`     // name of the signer in provisioner.yaml
	Issuer     string          `json:"issuer"`     // claim iss, "" if none
	Org        string          `json:"org"`        // claim ou, "choria" if none
	Site       string          `json:"site"`       // the only site it is for, "" for any
	Identities []string        `json:"identities"` // patterns of which one matched the identity, empty for any
	Uses       int             `json:"uses"`       // how many keys may be enrolled with it, 0 for unlimited
	Extensions json.RawMessage `json:"extensions"` // free JSON object of whoever signed it. Nil means {}
	IssuedAt   time.Time       `json:"issued_at,omitzero"`
	ExpiresAt  time.Time       `json:"expires_at,omitzero"`
	Secure     bool            `json:"secure"`     // TLS wanted
	URLs       []string        `json:"urls"`       // broker URLs, empty with srv_domain
	SRVDomain  string          `json:"srv_domain"` // "" with urls
	Default    bool            `json:"default"`    // nodes without a configuration provision
}

// A CSR is the names and the key of a certificate request.
type CSR struct {
	CommonName  string   `json:"common_name"`
	DNSNames    []string `json:"dns_names"`
	IPAddresses []string `json:"ip_addresses"`
	URIs        []string `json:"uris"`
	Emails      []string `json:"emails"`
	Key         Key      `json:"key"`
}

// A Key describes the public key of a certificate request.
type Key struct {
	Type string `json:"type"` // "P-256", "P-384", "Ed25519", "RSA-2048", ...
	Hash string `json:"hash"` // lower-case hex SHA-256 of the SubjectPublicKeyInfo
}

// A Node is what is on record of an identity before this request.
type Node struct {
	// State is the record's, or "none" if the identity was never seen.
	State string `json:"state"`

	// Reason says why this key may speak for the identity: "new" (no record,
	// or retired), "replay" (the key of a live certificate), "continue" (a key of
	// the record's lineage), or what was proven for another key: "continuity",
	// "grant", "one_time_token", or "renew" (vouched for by a live certificate,
	// over its own session). The provisioner has checked it.
	Reason string `json:"reason"`

	// Serial is of the record's current certificate, lower-case hex; "" if none.
	Serial string `json:"serial"`

	// Cloned says that two live machines were seen to use the identity's key. A
	// policy that denies for it gives neither another certificate.
	Cloned bool `json:"cloned"`

	ProvisionedAt time.Time `json:"provisioned_at,omitzero"` // when the node last confirmed
	ExpiresAt     time.Time `json:"expires_at,omitzero"`     // of the current certificate
}

// An AllowEntry is an entry of the allow-list.
type AllowEntry struct {
	Pattern   string    `json:"pattern"`
	Comment   string    `json:"comment"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero for never
}

// A Source is where a request came from, as the broker says and not the node.
type Source struct {
	Address string `json:"address"` // IP address, "" if unknown
	Site    string `json:"site"`    // of the broker, "" if unknown
}

// A Provisioner is the provisioner that asks.
type Provisioner struct {
	Site    string `json:"site"`
	Version string `json:"version"`
}

// ParseInput decodes an input as it is recorded, or as a person writes it: what is
// not given is as of a machine that was never seen, and the certificate request's
// names are the identity's. A member that there is none of is a mistake.
func ParseInput(b []byte) (*Input, error) {
	in := &Input{Node: Node{State: "none", Reason: "new"}, Time: time.Now().UTC().Truncate(time.Second)}
	if err := wire.DecodeStrict(b, in); err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	if in.Identity == "" {
		return nil, errors.New("input: no identity")
	}
	if in.CSR.CommonName == "" && in.CSR.DNSNames == nil {
		in.CSR.CommonName, in.CSR.DNSNames = in.Identity, []string{in.Identity}
	}
	return in, nil
}

// complete returns a copy as policies see it: lists and objects are never null,
// times are in UTC.
func (in *Input) complete() *Input {
	n := *in
	for _, list := range []*[]string{&n.Token.Identities, &n.Token.URLs, &n.CSR.DNSNames, &n.CSR.IPAddresses, &n.CSR.URIs, &n.CSR.Emails} {
		if *list == nil {
			*list = []string{}
		}
	}
	n.Facts, n.Token.Extensions = orObject(n.Facts), orObject(n.Token.Extensions)
	for _, t := range []*time.Time{&n.Token.IssuedAt, &n.Token.ExpiresAt, &n.Node.ProvisionedAt, &n.Node.ExpiresAt, &n.Time} {
		*t = t.UTC()
	}
	if n.Allow != nil {
		entry := *n.Allow
		entry.ExpiresAt = entry.ExpiresAt.UTC()
		n.Allow = &entry
	}
	return &n
}

// orObject returns b, or {} if it is empty or null: a token made elsewhere
// says null where it has no extensions.
func orObject(b json.RawMessage) json.RawMessage {
	if s := bytes.TrimSpace(b); len(s) == 0 || string(s) == "null" {
		return json.RawMessage("{}")
	}
	return b
}
