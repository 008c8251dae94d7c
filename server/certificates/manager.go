package certificates

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/files"
)

// atOnce bounds the certificates that are worked on, and apart from those the actions that run.
const atOnce = 4

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
	pushes   int    // counts calls of Push
	problem  string // last logged about all specifications
	metrics  string // path; "": none
	changed  bool   // the metrics have to be written
}

// A unit is the work for one name. The holder of busy owns state; Manager.mu guards the rest.
type unit struct {
	busy  chan struct{}
	state *state

	want   *want
	gone   bool // the specification is
	order  Verb
	due    bool
	next   time.Time
	status Status
}

// New returns the manager of cfg. It touches no disk.
func New(cfg Config) *Manager {
	return &Manager{
		cfg:    cfg.complete(),
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
		m.units[name] = &unit{
			busy:   make(chan struct{}, 1),
			state:  st,
			want:   &want{source: st.Source, spec: st.Specification},
			next:   st.Next,
			status: st.Status,
		}
	}
	m.mu.Unlock()
	var workers sync.WaitGroup
	defer workers.Wait()
	var seen string
	for ctx.Err() == nil {
		if now := m.fingerprint(); now != seen {
			seen = now
			m.reload(ctx)
		}
		m.dispatch(ctx, &workers)
		m.writeMetrics(ctx)
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-time.After(m.cfg.WatchInterval):
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
		u.due = u.due || u.status.Next.IsZero()
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
	if pushed == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pushed = maps.Clone(pushed)
	m.pushes++
	m.poke()
}

// fingerprint changes with the specifications, settings and actions. It is read again each minute for the sake of
// directories above them.
func (m *Manager) fingerprint() string {
	var b strings.Builder
	for _, dir := range []string{m.cfg.Specifications, m.cfg.Actions, m.cfg.Settings} {
		paths, _ := filepath.Glob(filepath.Join(dir, "*")) // a valid pattern
		for _, path := range append(paths, dir) {
			if info, err := os.Stat(path); err == nil {
				fmt.Fprintln(&b, path, info.Size(), info.ModTime().UnixNano(), info.Mode())
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprint(&b, m.pushes, time.Now().Unix()/60)
	return b.String()
}

// reload reads all specifications and marks what changed as due.
func (m *Manager) reload(ctx context.Context) {
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
	bounds, _ := m.cfg.settings() // wants has the error
	m.metrics, m.changed = bounds.Metrics, true
	wants, known, err := m.cfg.wants(pushed)
	if problem := fmt.Sprint(err); problem != m.problem {
		m.problem = problem
		if err != nil {
			m.cfg.Log.ErrorContext(ctx, "specifications of service certificates are not all usable", "err", err)
		}
	}
	for name, w := range wants {
		u := m.units[name]
		if u == nil {
			u = &unit{
				busy:  make(chan struct{}, 1),
				state: &state{Status: Status{Name: name}},
				want:  &want{source: w.source},
			}
			m.units[name] = u
		}
		if u.gone || !reflect.DeepEqual(u.want.spec, w.spec) ||
			fmt.Sprint(u.want.problem) != fmt.Sprint(w.problem) {
			u.due, u.next = true, time.Time{}
		}
		u.want, u.gone = w, false
	}
	for name, u := range m.units {
		if wants[name] == nil && !u.gone && (known || u.want.source == "pushed") {
			u.gone, u.due, u.next = true, true, time.Time{}
		}
	}
}

// dispatch starts the work that is due.
func (m *Manager) dispatch(ctx context.Context, workers *sync.WaitGroup) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Now()
	for name, u := range m.units {
		late := u.next.After(now.Add(2 * m.cfg.BackoffMax)) // the clock went back
		if !u.due && u.next.After(now) && !late {
			continue
		}
		select {
		case u.busy <- struct{}{}:
		default:
			continue // its end wakes us
		}
		u.due = false
		workers.Go(func() {
			m.slots <- struct{}{}
			m.work(ctx, name, u)
			<-m.slots
			<-u.busy
			m.poke()
		})
	}
}

// work takes the steps of one unit. The caller holds busy.
func (m *Manager) work(ctx context.Context, name string, u *unit) {
	m.mu.Lock()
	w, gone, order := u.want, u.gone, u.order
	u.order = ""
	m.mu.Unlock()
	st := u.state
	if order != "" {
		st.Order, st.Replace, st.Tries = order, true, 0
		if order == Rekey {
			st.Staged = nil
		}
	}
	var err error
	if gone {
		if err = m.remove(ctx, st); err == nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.units, name)
			m.changed = true
			return
		}
	} else {
		err = m.steps(ctx, u, w)
	}
	if ctx.Err() != nil {
		return // the next process goes on
	}
	m.settle(ctx, st, err)
	next := st.Next
	if next.IsZero() {
		next = m.cfg.Now().Add(checkEvery)
		if at := st.RenewAt; err == nil && at.After(m.cfg.Now()) && at.Before(next) {
			next = at
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	u.next, u.status, m.changed = next, st.Status, true
}

// Do carries out an order. The answer is nil but for [Submit]; renewals are only begun. An error may have advice, as of
// [advice.Of], and is a [link.Refusal] if the provisioner refused.
func (m *Manager) Do(ctx context.Context, o Order) (*wire.ServiceCertificate, error) {
	if !wire.ValidCertificateName(o.Name) {
		return nil, fmt.Errorf("%.80q is not the name of a service certificate", o.Name)
	}
	if o.Verb == Submit {
		identity, ask := m.connection()
		if ask == nil {
			return nil, errOffline
		}
		return ask(ctx, &wire.CertificateRequest{ID: wire.NewID(), Identity: identity, Name: o.Name,
			Verb: wire.CertificateIssue, CSR: o.CSR, Profile: o.Profile, Network: o.Network, Usages: o.Usages,
			Source: "certmonger"})
	}
	m.mu.Lock()
	u := m.units[o.Name]
	m.mu.Unlock()
	if u == nil {
		return nil, advice.Errorf("`muster-server certificate list` shows all", "no service certificate %q", o.Name)
	}
	var err error
	switch o.Verb {
	case Renew, Rekey:
		m.mu.Lock()
		err = u.want.problem
		m.mu.Unlock()
	case Adopt, Remove:
		select {
		case u.busy <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("%s is being worked on: %w", o.Name, ctx.Err())
		}
		if o.Verb == Adopt {
			err = m.adopt(u)
		} else {
			err = m.end(u, o)
		}
		<-u.busy
	default:
		err = fmt.Errorf("order %.80q, want one of renew, rekey, adopt, remove and submit", o.Verb)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		u.due, u.next = true, time.Time{}
		if o.Verb == Renew || o.Verb == Rekey {
			u.order = o.Verb
		}
		m.poke()
	}
	return nil, err
}

// adopt puts the key and certificate in force that are in the files. The caller holds busy.
func (m *Manager) adopt(u *unit) error {
	m.mu.Lock()
	w := u.want
	m.mu.Unlock()
	if w.problem != nil {
		return w.problem
	}
	st := *u.state
	st.Source, st.Specification, st.Replace = w.source, w.spec, true
	list, err := m.targets(&st, nil)
	if err != nil {
		return err
	}
	defer closeAll(list)
	p, err := found(list)
	if err != nil {
		return err
	}
	chain, err := p.chain()
	if err != nil {
		return err
	}
	leaf := chain[0]
	if !m.cfg.Now().Before(leaf.NotAfter) {
		return fmt.Errorf("the certificate has expired, at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	p.Asked, p.Jitter = asked(&st.Specification), m.cfg.Random()
	st.InForce, st.Staged, st.Adopted, st.Order, st.Tries = p, nil, true, "", 0
	st.describe(leaf, m.cfg.Now())
	if err := m.mark(&st, Current); err != nil {
		return err
	}
	*u.state = st
	return nil
}

// end removes the specification's file. The caller holds busy.
func (m *Manager) end(u *unit, o Order) error {
	m.mu.Lock()
	pushed := u.want.source == "pushed" && !u.gone
	m.mu.Unlock()
	if pushed {
		return advice.Errorf("remove it from the policy's decision", "the provisioner wants %s", o.Name)
	}
	if o.Revoke {
		u.state.Specification.Removed = "revoke"
		if err := m.put(u.state); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(m.cfg.Specifications, o.Name+".yaml")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// writeMetrics writes the file for node_exporter, if the settings name one.
func (m *Manager) writeMetrics(ctx context.Context) {
	var b strings.Builder
	m.mu.Lock()
	path, changed := m.metrics, m.changed
	m.changed = false
	names := slices.Sorted(maps.Keys(m.units))
	gauge := func(name, help string, value func(*Status) any) {
		fmt.Fprintf(&b, "# HELP muster_certificate_%[1]s %[2]s\n# TYPE muster_certificate_%[1]s gauge\n", name, help)
		for _, n := range names {
			st := &m.units[n].status
			fmt.Fprintf(&b, "muster_certificate_%s{name=%q} %v\n", name, n, value(st))
		}
	}
	gauge("not_after_seconds", "End of the certificate in force; 0: none.", func(s *Status) any { return seconds(s.NotAfter) })
	gauge("renew_at_seconds", "When it will be renewed; 0: none.", func(s *Status) any { return seconds(s.RenewAt) })
	gauge("stuck", "1 if a person has to act.", func(s *Status) any {
		if s.Stuck {
			return 1
		}
		return 0
	})
	m.mu.Unlock()
	if path == "" || !changed {
		return
	}
	if err := files.Replace(path, []byte(b.String()), 0o644); err != nil {
		m.cfg.Log.DebugContext(ctx, "metrics of service certificates not written", "err", err)
	}
}

func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}
