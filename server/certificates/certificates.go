// Package certificates keeps a node's service certificates: it makes keys, asks for certificates, writes the files that
// services read, and renews them.
//
// A specification says what the node wants. It is a file of the node, or the provisioner pushes it. Each has a state
// file, which is on disk before the next step is taken, so that a killed process continues where it stopped.
package certificates

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"time"

	"muster/internal/wire"
)

// Config configures [New].
type Config struct {
	Specifications string // directory of NAME.yaml: /etc/muster/certificates.d
	Actions        string // directory of NAME.yaml: /etc/muster/actions.d
	Settings       string // /etc/muster/certificates.yaml, may be missing
	State          string // directory of state files, made with mode 0700: SSLDIR/certificates

	// Protected are further paths of muster's own that no specification may write: SSLDIR, server.conf, tokens. The
	// directory of Settings is one of them, apart from its directory tls.
	Protected []string

	// BackoffMin and BackoffMax bound the doubling wait between attempts. Default: 10s and 1h.
	BackoffMin, BackoffMax time.Duration

	// WatchInterval is how often specifications are looked at. Default: 2s. The files of certificates are each minute.
	WatchInterval time.Duration

	Facts  func() json.RawMessage // for names with templates; nil: none
	Now    func() time.Time       // the agent's trusted clock; default [time.Now]
	Random func() float64         // default [rand.Float64]
	Log    *slog.Logger           // nil: none
	Step   func(name string)      // for tests: called after each change on disk
}

// An Asker sends one request over the node's own connection. The answer was verified against the node's roots; a
// refusal is a [link.Refusal]. After another error the request may have been processed, and can be repeated.
type Asker func(context.Context, *wire.CertificateRequest) (*wire.ServiceCertificate, error)

// A Verb is what an [Order] wants.
type Verb string

// Verbs of orders.
const (
	Renew  Verb = "renew"  // now, with the key that the specification says
	Rekey  Verb = "rekey"  // now, with a new key even if the specification keeps it
	Adopt  Verb = "adopt"  // keep key and certificate that are at the specification's paths, until they are renewed
	Remove Verb = "remove" // the specification's file goes, and what it says for that case is done
	Submit Verb = "submit" // only ask: key, files and state are another program's, as certmonger's
)

// An Order is an operator's, from the agent's socket.
type Order struct {
	Verb   Verb   `json:"verb"`
	Name   string `json:"name"`
	Revoke bool   `json:"revoke,omitempty"` // remove: also remove the files and revoke, whatever the specification says

	// Of submit alone.
	CSR     []byte `json:"csr,omitempty"` // PKCS #10, DER
	Profile string `json:"profile,omitempty"`
	Network string `json:"network,omitempty"`

	Usages []string `json:"usages,omitempty"`
}

// States of a service certificate, in the order of its life.
const (
	Wanted          = "wanted"
	KeyMade         = "key made"
	Requested       = "requested"
	WaitingApproval = "waiting for approval"
	Issued          = "issued"
	Saved           = "saved" // files are in place, the action has not yet succeeded
	ActedOn         = "acted on"
	Current         = "current"
	Renewing        = "renewing"
	Failed          = "failed"   // needs a person
	Removing        = "removing" // the specification is gone
)

// A Status is what is known of one service certificate.
type Status struct {
	Name    string    `json:"name"`
	Source  string    `json:"source"` // "file" or "pushed"
	State   string    `json:"state"`
	Since   time.Time `json:"since,omitzero"`
	Stuck   bool      `json:"stuck"`
	Reason  string    `json:"reason,omitempty"` // why it is stuck or waits
	Advice  string    `json:"advice,omitempty"` // what to do
	Error   string    `json:"error,omitempty"`  // the last one
	ErrorAt time.Time `json:"error_at,omitzero"`
	Next    time.Time `json:"next,omitzero"` // next attempt after an error
	Names   []string  `json:"names,omitempty"`

	Serial    string    `json:"serial,omitempty"` // of the certificate in force, as are the next three
	NotBefore time.Time `json:"not_before,omitzero"`
	NotAfter  time.Time `json:"not_after,omitzero"`
	RenewAt   time.Time `json:"renew_at,omitzero"`

	Files  map[string]string `json:"files,omitempty"` // paths by kind: key, certificate, chain, ca, combined
	Action *ActionResult     `json:"action,omitempty"`
}

// An ActionResult is how the last run of an action ended.
type ActionResult struct {
	Name   string    `json:"name"`
	Exit   int       `json:"exit"`             // -1: not started, or ended by a signal
	Output string    `json:"output,omitempty"` // the last 4 KiB
	At     time.Time `json:"at"`
}

func (cfg Config) complete() Config {
	cfg.BackoffMin = cmp.Or(cfg.BackoffMin, 10*time.Second)
	cfg.BackoffMax = max(cmp.Or(cfg.BackoffMax, time.Hour), cfg.BackoffMin)
	cfg.WatchInterval = cmp.Or(cfg.WatchInterval, 2*time.Second)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Facts == nil {
		cfg.Facts = func() json.RawMessage { return nil }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	if cfg.Step == nil {
		cfg.Step = func(string) {}
	}
	return cfg
}
