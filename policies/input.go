package policies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"muster/internal/conffile"
	"muster/internal/wire"
)

// An Input is a request as a policy sees it, in `input`, and as it is recorded. Members are never renamed. Lists are
// never null; zero members with omitzero are undefined in Rego. An Input is not logged, since facts and extensions may
// hold secrets.
type Input struct {
	// Identity is the requested name, valid and equal to the CSR's.
	Identity string `json:"identity"`

	// Proof is what the request was proven with.
	Proof string `json:"proof"`

	// Token holds the verified claims of the token; in a renewal, those of the token that the node enrolled with.
	Token Token `json:"token"`

	// CSR is verified; its names are only requests.
	CSR CSR `json:"csr"`

	// Facts is a JSON object from the node, unproven: any holder of a token can send anything. Nil means {}.
	Facts json.RawMessage `json:"facts"`

	// FactsError is why the node did not send its present facts: Facts are then {} or older ones. "" if it did.
	FactsError string `json:"facts_error"`

	// Node is the record of the identity.
	Node Node `json:"node"`

	// Allow is the unexpired allow-list entry that matches, or null. The provisioner finds it, since Rego is slow with
	// 100,000 patterns.
	Allow *AllowEntry `json:"allow"`

	Source Source `json:"source"`

	Provisioner Provisioner `json:"provisioner"`

	// Certificate is the requested service certificate, or null. Its names are CSR's; Token and Facts are those on
	// record.
	Certificate *ServiceRequest `json:"certificate"`

	// Evidence is reserved for attestation. Nil means null.
	Evidence json.RawMessage `json:"evidence"`

	// Time is the time of the decision; time.now_ns returns it too.
	Time time.Time `json:"time"`
}

// The proofs. A request of a Puppet agent may have none but that of its key.
const (
	ProofToken       = "token"
	ProofCertificate = "certificate" // of the node, at a renewal
	ProofNone        = "none"
)

// A Token holds the claims of a verified token, without its secret, its password and its text.
type Token struct {
	ID         string          `json:"id"`         // for use count and revocation
	Signer     string          `json:"signer"`     // name in provisioner.yaml
	Issuer     string          `json:"issuer"`     // claim iss, or ""
	Org        string          `json:"org"`        // claim ou, or "choria"
	Site       string          `json:"site"`       // "": any
	Identities []string        `json:"identities"` // patterns, one matches the identity; empty: any name
	Uses       int             `json:"uses"`       // number of keys that may use it; 0: unlimited
	Extensions json.RawMessage `json:"extensions"` // JSON object. Nil means {}
	IssuedAt   time.Time       `json:"issued_at,omitzero"`
	ExpiresAt  time.Time       `json:"expires_at,omitzero"`
	Secure     bool            `json:"secure"`     // TLS wanted
	URLs       []string        `json:"urls"`       // addresses of brokers; empty with srv_domain
	SRVDomain  string          `json:"srv_domain"` // "" with urls
	Default    bool            `json:"default"`    // a node without a configuration enrolls
}

// A CSR holds the names and the key of a certificate request.
type CSR struct {
	CommonName  string   `json:"common_name"`
	DNSNames    []string `json:"dns_names"`
	IPAddresses []string `json:"ip_addresses"`
	URIs        []string `json:"uris"`
	Emails      []string `json:"emails"`
	Key         Key      `json:"key"`

	// Extensions are Puppet's, by name such as "pp_role". At a renewal they are those on record.
	Extensions map[string]string `json:"extensions"`

	// Challenge is the challengePassword of a Puppet request, if it is no token. It is not recorded.
	Challenge string `json:"challenge"`
}

// A Key is the public key of a certificate request.
type Key struct {
	Type string `json:"type"` // "P-256", "P-384", "Ed25519", "RSA-2048", ...
	Hash string `json:"hash"` // hex SHA-256 of the SubjectPublicKeyInfo
}

// A Node is the record of an identity before the request.
type Node struct {
	// State is "none" without a record.
	State string `json:"state"`

	// Reason is the verified reason why the key may have the identity: "new" (no record, or retired), "replay" (the key
	// of the live certificate), "continue" (an earlier key). For another key it is "continuity", "grant",
	// "one_time_token" or "renew".
	Reason string `json:"reason"`

	// Serial is the current certificate's serial number in hex, or "".
	Serial string `json:"serial"`

	// Cloned: two live machines use the identity's key. A policy that denies such a node stops both.
	Cloned bool `json:"cloned"`

	ProvisionedAt time.Time `json:"provisioned_at,omitzero"` // last confirmation
	ExpiresAt     time.Time `json:"expires_at,omitzero"`     // of the current certificate
}

// An AllowEntry is an allow-list entry.
type AllowEntry struct {
	Pattern   string    `json:"pattern"`
	Comment   string    `json:"comment"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero: never
}

// A Source is the origin of a request as the broker reports it.
type Source struct {
	Address  string `json:"address"`  // IP address, or ""
	Site     string `json:"site"`     // of the broker, or ""
	Protocol string `json:"protocol"` // of the node's program: "muster", "choria" or "puppet"
}

// A ServiceRequest is a request for a service certificate.
type ServiceRequest struct {
	Name    string   `json:"name"` // of the specification
	Profile string   `json:"profile"`
	Network string   `json:"network"`
	Usages  []string `json:"usages"` // "server", "client"; policies see "server" for none
	Source  string   `json:"source"` // "file", "pushed" or "certmonger"
}

// Service returns the name of the requested service certificate, or "".
func (in *Input) Service() string {
	if in.Certificate == nil {
		return ""
	}
	return in.Certificate.Name
}

// A Provisioner is the provisioner that decides.
type Provisioner struct {
	Site    string `json:"site"`
	Version string `json:"version"`
}

// ParseInput decodes an input in JSON or YAML that was recorded or written by hand. Missing members are those of a new
// node of muster's protocol, which has a token; with a certificate, those of a node on record. An unknown member is an
// error.
func ParseInput(b []byte) (*Input, error) {
	in := &Input{Proof: ProofToken, Node: Node{State: "none", Reason: "new"}, Source: Source{Protocol: "muster"},
		Time: time.Now().UTC().Truncate(time.Second)}
	var err error
	if text := bytes.TrimSpace(b); len(text) > 0 && text[0] != '{' {
		b, err = conffile.ToJSON(text)
	}
	var asked struct {
		Certificate *ServiceRequest `json:"certificate"`
	}
	if err == nil && wire.DecodeKnown(b, &asked) == nil && asked.Certificate != nil {
		in.Proof, in.Node = ProofCertificate, onRecord
	}
	if err == nil {
		err = wire.DecodeStrict(b, in)
	}
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	if in.Identity == "" {
		return nil, errors.New("input: no identity")
	}
	if in.CSR.CommonName == "" && in.CSR.DNSNames == nil && (in.Certificate == nil ||
		len(in.CSR.IPAddresses)+len(in.CSR.URIs) == 0) {
		in.CSR.CommonName, in.CSR.DNSNames = in.Identity, []string{in.Identity}
	}
	return in, nil
}

// onRecord is the node of a request for a service certificate.
var onRecord = Node{State: "provisioned", Reason: "renew"}

// complete returns a copy with times in UTC and empty lists and objects instead of null.
func (in *Input) complete() *Input {
	n := *in
	for _, list := range []*[]string{
		&n.Token.Identities, &n.Token.URLs,
		&n.CSR.DNSNames, &n.CSR.IPAddresses, &n.CSR.URIs, &n.CSR.Emails,
	} {
		if *list == nil {
			*list = []string{}
		}
	}
	if n.CSR.Extensions == nil {
		n.CSR.Extensions = map[string]string{}
	}
	n.Facts, n.Token.Extensions = orObject(n.Facts), orObject(n.Token.Extensions)
	for _, t := range []*time.Time{
		&n.Token.IssuedAt, &n.Token.ExpiresAt, &n.Node.ProvisionedAt, &n.Node.ExpiresAt, &n.Time,
	} {
		*t = t.UTC()
	}
	if n.Allow != nil {
		entry := *n.Allow
		entry.ExpiresAt = entry.ExpiresAt.UTC()
		n.Allow = &entry
	}
	if n.Certificate != nil {
		c := *n.Certificate
		if len(c.Usages) == 0 {
			c.Usages = []string{"server"}
		}
		n.Certificate = &c
	}
	return &n
}

// orObject replaces an empty text and null by {}: tokens of foreign signers may have null extensions.
func orObject(b json.RawMessage) json.RawMessage {
	if s := bytes.TrimSpace(b); len(s) == 0 || string(s) == "null" {
		return json.RawMessage("{}")
	}
	return b
}
