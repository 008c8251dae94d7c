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
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/files"
)

// Config configures [New]; [Statuses] needs the paths alone.
type Config struct {
	Specifications string // directory of NAME.yaml: /etc/muster/certificates.d
	Actions        string // directory of NAME.yaml: /etc/muster/actions.d
	Settings       string // /etc/muster/certificates.yaml, may be missing
	State          string // directory of state files, made with mode 0700: SSLDIR/certificates

	// Protected are further paths of muster's own that no specification may write: SSLDIR, server.conf, tokens. The
	// directory of Settings is one of them, apart from its directory tls.
	Protected []string

	// BackoffMin and BackoffMax bound the doubling wait between attempts.
	BackoffMin, BackoffMax time.Duration

	// WatchInterval is how often specifications are looked at. Default: 2s. The files of certificates are each minute.
	WatchInterval time.Duration

	Facts  func() json.RawMessage // for names with templates
	Now    func() time.Time       // the agent's trusted clock
	Random func() float64
	Log    *slog.Logger
	Step   func(name string) // for tests: called after each change on disk
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

// atOnce bounds the certificates that are worked on, and apart from those the actions that run.
const atOnce = 4

// longestWait is more than a refusal can ask for.
const longestWait = 2 * time.Hour

// A Manager keeps all service certificates of a node. Its methods are safe for concurrent use.
type Manager struct {
	cfg           Config
	wake          chan struct{}
	slots, acting chan struct{}

	mu       sync.Mutex // guards the fields below
	identity string
	ask      Asker
	pushed   map[string]wire.Specification // nil: not known yet
	units    map[string]*unit
	problem  string // last logged about all specifications
	metrics  string // last written
}

// A unit is the work for one name. The holder of busy owns state; Manager.mu guards the rest.
type unit struct {
	busy   chan struct{}
	state  *state
	want   *want
	due    bool
	next   time.Time
	status Status
}

func newUnit(st *state) *unit {
	return &unit{
		busy:   make(chan struct{}, 1),
		state:  st,
		want:   &want{source: st.Source, spec: st.Specification},
		next:   st.Next,
		status: st.Status,
	}
}

// New returns the manager of cfg. It touches no disk.
func New(cfg Config) *Manager {
	return &Manager{
		cfg:    cfg,
		wake:   make(chan struct{}, 1),
		slots:  make(chan struct{}, atOnce),
		acting: make(chan struct{}, atOnce),
		units:  make(map[string]*unit),
	}
}

// Run works until ctx is done, and returns nil then. It first finishes what a killed process left.
func (m *Manager) Run(ctx context.Context) error {
	states, err := readStates(m.cfg.State)
	if err != nil {
		m.cfg.Log.ErrorContext(ctx, "states of service certificates could not be read", "err", err)
	}
	m.mu.Lock()
	for name, st := range states {
		m.units[name] = newUnit(st)
	}
	m.mu.Unlock()
	var workers sync.WaitGroup
	defer workers.Wait()
	for ctx.Err() == nil {
		m.reload(ctx, &workers)
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-time.After(cmp.Or(m.cfg.WatchInterval, 2*time.Second)):
		}
	}
	return nil
}

func (m *Manager) poke() {
	select {
	case m.wake <- struct{}{}:
	default: // already woken
	}
}

// Connected gives the manager the connection to the fleet, and the name that the node has there.
func (m *Manager) Connected(identity string, ask Asker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.identity, m.ask = identity, ask
	for _, u := range m.units {
		u.due = true
	}
	m.poke()
}

// Disconnected takes the connection away.
func (m *Manager) Disconnected() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ask = nil
}

func (m *Manager) connection() (identity string, ask Asker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.identity, m.ask
}

// Push sets the pushed specifications; nil keeps those of before. Until its first call those on disk count.
func (m *Manager) Push(pushed map[string]wire.Specification) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if pushed != nil {
		m.pushed = maps.Clone(pushed)
		m.poke()
	}
}

// reload reads all specifications, starts the work that is due, and writes the metrics.
func (m *Manager) reload(ctx context.Context, workers *sync.WaitGroup) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pushed := m.pushed
	if pushed == nil {
		pushed = make(map[string]wire.Specification)
		for name, u := range m.units {
			if u.want.source == "pushed" {
				pushed[name] = u.want.spec
			}
		}
	}
	all, known, err := m.cfg.wants(pushed)
	if problem := fmt.Sprint(err); problem != m.problem {
		m.problem = problem
		if err != nil {
			m.cfg.Log.ErrorContext(ctx, "specifications of service certificates are not all usable", "err", err)
		}
	}
	for name, u := range m.units {
		if all[name] == nil && (known || u.want.source == "pushed") {
			all[name] = &want{source: u.want.source, gone: true}
		}
	}
	now := m.cfg.Now()
	for name, w := range all {
		u := m.units[name]
		if u == nil {
			u = newUnit(&state{Status: Status{Name: name}})
			m.units[name] = u
		}
		if !reflect.DeepEqual(u.want, w) {
			u.want, u.due = w, true
		}
		clockWentBack := u.next.After(now.Add(2*m.cfg.BackoffMax + longestWait))
		if u.due || clockWentBack || !u.next.After(now) {
			select {
			case u.busy <- struct{}{}:
				u.due = false
				workers.Go(func() { m.work(ctx, name, u) })
			default: // its end wakes us
			}
		}
	}
	m.writeMetrics(ctx)
}

// work takes the steps of one unit, and releases it.
func (m *Manager) work(ctx context.Context, name string, u *unit) {
	m.slots <- struct{}{}
	defer func() {
		<-m.slots
		<-u.busy
		m.poke()
	}()
	m.mu.Lock()
	w := u.want
	m.mu.Unlock()
	began := m.cfg.Now()
	err := m.steps(ctx, u.state, w)
	if ctx.Err() != nil {
		return // the next process goes on
	}
	gone := w.gone && err == nil
	var next time.Time
	if !gone {
		next = m.settle(ctx, u.state, err, began)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if gone {
		delete(m.units, name)
	}
	u.next, u.status = next, u.state.Status
}

// Do carries out an order. The answer is nil but for [Submit]; renewals are only begun. An error may have advice, as of
// [advice.Of], and is a [link.Refusal] if the provisioner refused.
func (m *Manager) Do(ctx context.Context, o Order) (*wire.ServiceCertificate, error) {
	if o.Verb == Submit {
		return m.send(ctx, &state{Status: Status{Name: o.Name, Source: "certmonger"}}, wire.CertificateRequest{
			Verb: wire.CertificateIssue, CSR: o.CSR, Profile: o.Profile, Network: o.Network, Usages: o.Usages})
	}
	m.mu.Lock()
	u := m.units[o.Name]
	m.mu.Unlock()
	if u == nil {
		return nil, advice.Errorf("`muster-server certificate list` shows all", "no service certificate %.80q", o.Name)
	}
	select {
	case u.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%s is being worked on: %w", o.Name, ctx.Err())
	}
	m.mu.Lock()
	w := u.want
	m.mu.Unlock()
	st := *u.state
	var err error
	switch o.Verb {
	case Renew, Rekey:
		if err = w.problem; err == nil {
			st.Order, st.Replace, st.Tries = o.Verb, true, 0
			if o.Verb == Rekey {
				st.Staged = nil
			}
			err = m.put(&st)
		}
	case Adopt:
		err = m.adopt(&st, w)
	case Remove:
		err = m.end(&st, w, o.Revoke)
	default:
		err = fmt.Errorf("order %.80q, want one of renew, rekey, adopt, remove and submit", o.Verb)
	}
	if err == nil {
		*u.state = st
	}
	<-u.busy
	m.mu.Lock()
	defer m.mu.Unlock()
	u.due = u.due || err == nil
	m.poke()
	return nil, err
}

// writeMetrics writes the file for node_exporter, if the settings name one.
func (m *Manager) writeMetrics(ctx context.Context) {
	text := ""
	gauge := func(name, help string, value func(Status) int64) {
		text += fmt.Sprintf("# HELP %[1]s %[2]s.\n# TYPE %[1]s gauge\n", name, help)
		for _, n := range slices.Sorted(maps.Keys(m.units)) {
			text += fmt.Sprintf("%s{name=%q} %d\n", name, n, max(0, value(m.units[n].status)))
		}
	}
	gauge("muster_certificate_not_after_seconds", "End of the certificate in force",
		func(s Status) int64 { return s.NotAfter.Unix() })
	gauge("muster_certificate_renew_at_seconds", "Next renewal", func(s Status) int64 { return s.RenewAt.Unix() })
	gauge("muster_certificate_stuck", "1 if a person has to act",
		func(s Status) int64 { return map[bool]int64{true: 1}[s.Stuck] })
	bounds, err := m.cfg.settings()
	if err != nil || bounds.Metrics == "" || text == m.metrics {
		return
	}
	if err := files.Replace(bounds.Metrics, []byte(text), 0o644); err != nil {
		m.cfg.Log.DebugContext(ctx, "metrics of service certificates not written", "err", err)
		return
	}
	m.metrics = text
}
