package provisioner

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"math/big"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/facts"
)

// A Brief is the short form of a node in lists. Unknown members are empty.
type Brief struct {
	Identity wire.Identity `json:"identity"`
	Traits

	// Serial and Expires are the confirmed certificate's, or the offer's if none is confirmed.
	Serial  string    `json:"serial,omitempty"` // lower-case hex
	Expires time.Time `json:"expires,omitzero"`

	Issued time.Time `json:"-"` // the begin of the certificate's life

	Token jwt.TokenID `json:"token_id,omitempty"` // that it enrolled with
	Facts facts.Facts `json:"facts,omitempty"`    // the kept ones

	FirstEnrolled time.Time `json:"first_enrolled,omitzero"`
	Changed       time.Time `json:"changed"` // last write of the record

	// OwnedSince is [Record.OwnedSince]. It differs for each holder of the name.
	OwnedSince time.Time `json:"owned_since,omitzero"`

	// KeyHash is the key of Serial, and Source the address of its enrollment.
	KeyHash string `json:"-"`
	Source  string `json:"-"`

	// Leaf is the certificate of Serial, for a Puppet agent only: Puppet's clients list certificates by fingerprint.
	Leaf *Leaf `json:"-"`
}

// A Leaf describes a certificate without keeping it.
type Leaf struct {
	DNSNames            []string
	NotBefore, NotAfter time.Time
	Serial              *big.Int
	SHA256              [sha256.Size]byte
}

// leafOf returns nil for a certificate that cannot be read.
func leafOf(der []byte) *Leaf {
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil
	}
	return &Leaf{
		DNSNames:  c.DNSNames,
		NotBefore: c.NotBefore,
		NotAfter:  c.NotAfter,
		Serial:    c.SerialNumber,
		SHA256:    sha256.Sum256(der),
	}
}

// Traits are what many nodes have in common.
type Traits struct {
	State    State    `json:"state"`
	Site     jwt.Site `json:"site,omitempty"`
	Protocol Protocol `json:"protocol,omitempty"` // of the enrollment; absent: muster's
	Offered  bool     `json:"offered,omitempty"`  // the newest certificate is not confirmed yet
	Cloned   bool     `json:"cloned,omitempty"`   // two live machines use its key
	Fault    string   `json:"fault,omitempty"`    // what keeps it from renewing, as its agent reports
	Policy   string   `json:"policy,omitempty"`   // digest at the last decision
	Reason   Reason   `json:"reason,omitempty"`   // of the last enrollment
	Agent    string   `json:"agent,omitempty"`
}

// Brief returns a summary that shares the record's memory.
func (r *Record) Brief() Brief {
	b := Brief{
		Identity: r.Identity,
		Traits: Traits{
			State:    r.State,
			Site:     r.Site,
			Protocol: r.Protocol,
			Offered:  r.Next != nil,
			Cloned:   r.Cloned != nil,
			Fault:    r.Fault.Text(),
			Policy:   r.Decision.Policy,
			Reason:   r.Decision.Reason,
			Agent:    r.Agent,
		},
		Token:         r.Token,
		Facts:         r.Facts,
		FirstEnrolled: r.FirstEnrolledAt,
		Changed:       r.UpdatedAt,
		OwnedSince:    r.OwnedSince,
		Source:        r.Source,
	}
	if i := cmp.Or(r.Current, r.Next); i != nil {
		b.Serial, b.Issued, b.Expires, b.KeyHash = i.Serial, i.NotBefore, i.NotAfter, i.KeyHash
		if r.Protocol == ProtocolPuppet {
			b.Leaf = leafOf(i.DER)
		}
	}
	return b
}

// DecodeBrief returns the summary of a record in JSON. The error wraps [trust.ErrRecord].
func DecodeBrief(record []byte) (Brief, error) {
	var r Record
	err := wire.DecodeKnown(record, &r)
	if err == nil {
		err = r.Check()
	}
	if err != nil {
		return Brief{}, fmt.Errorf("%w: %w", trust.ErrRecord, err)
	}
	return r.Brief(), nil
}
