// Package certificates keeps a node's service certificates: it makes keys, asks for certificates, writes the files that
// services read, and renews them.
//
// Each specification has a state file, which is on disk before the next step is taken, so that a killed process
// continues where it stopped.
package certificates

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/files"
	"muster/server/trust"
)

// Config configures [New].
type Config struct {
	// Dir is /etc/muster. Of it, specifications may write to tls alone.
	Dir string

	State  string // directory of state files, made with mode 0700: SSLDIR/certificates
	Pushed string // JSON file: specifications of the decision in force, by name; missing: those of before stay

	// Protected are further paths of muster's own that no specification may write: SSLDIR, tokens.
	Protected []string

	// BackoffMin and BackoffMax bound the doubling wait between attempts.
	BackoffMin, BackoffMax time.Duration

	// WatchInterval is how often specifications are looked at. The files of certificates are each minute.
	WatchInterval time.Duration

	Clock  trust.Clock
	Random func() float64
	Log    *slog.Logger
	Step   func(name string) // for tests: called after each change on disk
}

func (cfg *Config) in(name string) string { return filepath.Join(cfg.Dir, name) }

// A Node is a node while it is connected to its fleet.
type Node struct {
	Identity string                 // the name that the node has there
	Facts    func() json.RawMessage // for names with templates

	// Ask returns a verified answer; a refusal is a [link.Refusal]. After another error the request may have been
	// processed, and can be repeated.
	Ask func(context.Context, *wire.CertificateRequest) (*wire.ServiceCertificate, error)
}

// A Verb is what an [Order] wants.
type Verb string

// Verbs.
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
	CSR     []byte   `json:"csr,omitempty"` // PKCS #10, DER
	Profile string   `json:"profile,omitempty"`
	Usages  []string `json:"usages,omitempty"`
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

// longestWait is more than a backoff or a refusal asks for.
const longestWait = 4 * time.Hour

// A Manager works on one certificate at a time. Its methods are safe for concurrent use.
type Manager struct {
	cfg  Config
	node atomic.Pointer[Node] // nil: not connected

	// turn is full while a goroutine works. It owns the fields below.
	turn    chan struct{}
	states  map[string]*state
	seen    *Node  // the node of the last round
	problem string // last logged about all specifications
	metrics string // last written
}

// New returns the manager of cfg. It touches no disk.
func New(cfg Config) *Manager { return &Manager{cfg: cfg, turn: make(chan struct{}, 1)} }

// Connect gives the manager the connection to the fleet; nil takes it away.
func (m *Manager) Connect(n *Node) { m.node.Store(n) }

func (m *Manager) now() time.Time { return m.cfg.Clock(time.Time{}) }

// Run works until ctx is done. It first finishes what a killed process left.
func (m *Manager) Run(ctx context.Context) {
	for ctx.Err() == nil {
		m.round(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(m.cfg.WatchInterval):
		}
	}
}

// round does the work that is due. Orders get their turn in between.
func (m *Manager) round(ctx context.Context) {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	var err error
	if m.states == nil {
		if m.states, err = readStates(m.cfg.State); err != nil {
			m.cfg.Log.ErrorContext(ctx, "states of service certificates could not be read", "err", err)
		}
	}
	wants, err := m.cfg.wants(m.states)
	if problem := fmt.Sprint(err); problem != m.problem {
		m.problem = problem
		if err != nil {
			m.cfg.Log.ErrorContext(ctx, "specifications of service certificates are not all usable", "err", err)
		}
	}
	node := m.node.Load()
	connected := node != nil && node != m.seen
	m.seen = node
	for name, w := range wants {
		st := m.states[name]
		if st == nil {
			st = &state{Status: Status{Name: name}}
			m.states[name] = st
		}
		if now := m.now(); connected || !reflect.DeepEqual(st.want, w) || !st.next.After(now) ||
			st.next.After(now.Add(longestWait)) { // the clock went back
			st.want = w
			m.work(ctx, st)
		}
		<-m.turn
		m.turn <- struct{}{}
	}
	m.writeMetrics(ctx)
}

func (m *Manager) work(ctx context.Context, st *state) {
	err := m.steps(ctx, st)
	switch {
	case ctx.Err() != nil: // the next process goes on
	case st.want.gone && err == nil:
		delete(m.states, st.Name)
	default:
		m.settle(ctx, st, err)
	}
}

// Do carries out an order. The answer is nil but for [Submit]; renewals are only begun. An error may have advice, as of
// [advice.Of], and is a [link.Refusal] if the provisioner refused.
func (m *Manager) Do(ctx context.Context, o Order) (*wire.ServiceCertificate, error) {
	if o.Verb == Submit {
		return m.send(ctx, &state{Status: Status{Name: o.Name, Source: "certmonger"}}, wire.CertificateRequest{
			Verb: wire.CertificateIssue, CSR: o.CSR, Profile: o.Profile, Usages: o.Usages})
	}
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("the agent works on another certificate: %w", ctx.Err())
	}
	former := m.states[o.Name]
	if former == nil {
		return nil, advice.Errorf("`muster-server certificate list` shows all", "no service certificate %.80q", o.Name)
	}
	st := *former
	var err error
	switch o.Verb {
	case Renew, Rekey:
		if err = st.want.problem; err == nil {
			st.Order, st.Tries = o.Verb, 0
			if o.Verb == Rekey {
				st.Staged = nil
			}
			err = m.put(&st)
		}
	case Adopt:
		err = m.adopt(&st)
	case Remove:
		err = m.end(&st, o.Revoke)
	default:
		err = fmt.Errorf("order %.80q, want one of renew, rekey, adopt, remove and submit", o.Verb)
	}
	if err == nil {
		st.next = time.Time{}
		m.states[o.Name] = &st
	}
	return nil, err
}

func (m *Manager) writeMetrics(ctx context.Context) {
	bounds, err := m.cfg.settings()
	if err != nil || bounds.Metrics == "" {
		return
	}
	text := ""
	gauge := func(name, help string, value func(*state) int64) {
		text += fmt.Sprintf("# HELP %[1]s %[2]s.\n# TYPE %[1]s gauge\n", name, help)
		for _, n := range slices.Sorted(maps.Keys(m.states)) {
			text += fmt.Sprintf("%s{name=%q} %d\n", name, n, max(0, value(m.states[n])))
		}
	}
	gauge("muster_certificate_not_after_seconds", "End of the certificate in force",
		func(st *state) int64 { return st.NotAfter.Unix() })
	gauge("muster_certificate_renew_at_seconds", "Next renewal", func(st *state) int64 { return st.RenewAt.Unix() })
	gauge("muster_certificate_stuck", "1 if a person has to act",
		func(st *state) int64 { return map[bool]int64{true: 1}[st.Stuck] })
	if text == m.metrics {
		return
	}
	if err := files.Replace(bounds.Metrics, []byte(text), 0o644); err != nil {
		m.cfg.Log.DebugContext(ctx, "metrics of service certificates not written", "err", err)
		return
	}
	m.metrics = text
}
