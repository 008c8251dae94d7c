package services

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// Schema is the version of the JSON form of a [Certificate].
const Schema = 1

// A Certificate is the durable state of one service certificate of a node. It is written whole, under compare-and-set.
type Certificate struct {
	Schema  int           `json:"schema"`
	Node    wire.Identity `json:"node"`
	Name    string        `json:"name"` // of the specification
	Profile string        `json:"profile,omitempty"`
	Network string        `json:"network,omitempty"`
	Source  string        `json:"source"`           // one of [wire.CertificateSources]
	Names   []string      `json:"names,omitempty"`  // of Current: DNS names, addresses, URIs
	Usages  []string      `json:"usages,omitempty"` // of Current

	// Current is the newest certificate, or nil. It may have expired, or be revoked.
	Current *Issued `json:"current,omitempty"`

	// Former are the replaced certificates that have not expired, oldest first. Revocations name them too.
	Former []trust.RevokedCertificate `json:"former,omitempty"`

	// Approval admitted Names and Usages; it stays good for renewals with the same. Nil: the policy wanted none.
	Approval *Answer `json:"approval,omitempty"`

	Waiting *Waiting               `json:"waiting,omitempty"` // nil if the last request was granted
	State   *wire.CertificateState `json:"state,omitempty"`   // the node's own word, or nil

	// OwnedSince is [provisioner.Record.OwnedSince] of the node that wrote the entry. With another owner the
	// certificates are revoked.
	OwnedSince time.Time `json:"owned_since"`

	Attempt   string    `json:"attempt"` // unique to the write
	UpdatedAt time.Time `json:"updated_at"`
}

// Issued is a certificate.
type Issued struct {
	trust.RevokedCertificate
	KeyHash   string    `json:"key_hash"`      // [ca.KeyHash]
	Request   string    `json:"request"`       // digest of the key and of what was requested
	DER       []byte    `json:"der,omitempty"` // nil in an [Index]
	NotBefore time.Time `json:"not_before"`
	IssuedAt  time.Time `json:"issued_at"`
}

// Waiting is a request that was not granted.
type Waiting struct {
	// ID is a digest of key, names and usages: an answer is for these alone.
	ID      string    `json:"id"`
	KeyHash string    `json:"key_hash"`
	Names   []string  `json:"names,omitempty"` // that would be issued; if the policy denies them, the requested ones
	Usages  []string  `json:"usages,omitempty"`
	Code    wire.Code `json:"code"` // [wire.CodeApprovalPending] or why it was refused
	Cause   string    `json:"cause,omitempty"`
	Since   time.Time `json:"since"`
	Asked   time.Time `json:"asked"` // last time, to the hour

	Answer *Answer `json:"answer,omitempty"`
}

// An Answer is an operator's verdict about [Waiting].
type Answer struct {
	Verdict   orders.Verdict `json:"verdict"` // approve or reject
	At        time.Time      `json:"at"`
	ExpiresAt time.Time      `json:"expires_at,omitzero"` // of an approval that was not used
	trust.Cause
}

// Check returns what is invalid.
func (c *Certificate) Check() error {
	if c.Schema != Schema {
		return fmt.Errorf("service certificate %q of %q: schema %d, want %d", c.Name, c.Node, c.Schema, Schema)
	}
	if _, err := wire.ParseIdentity(string(c.Node)); err != nil {
		return fmt.Errorf("service certificate: %w", err)
	}
	if !wire.ValidCertificateName(c.Name) || c.Attempt == "" {
		return fmt.Errorf("service certificate %.80q of %q: want a name and an attempt", c.Name, c.Node)
	}
	return nil
}

// unexpired returns the certificates for a CRL.
func (c *Certificate) unexpired(now time.Time) []trust.RevokedCertificate {
	all := slices.Clone(c.Former)
	if c.Current != nil {
		all = append(all, c.Current.RevokedCertificate)
	}
	return slices.DeleteFunc(all, func(r trust.RevokedCertificate) bool { return !now.Before(r.NotAfter) })
}

// forget drops what the entry has besides certificates.
func (c *Certificate) forget() { c.Waiting, c.State, c.Approval = nil, nil, nil }

// ErrNone means that the node has no such service certificate.
var ErrNone = errors.New("no such service certificate")
