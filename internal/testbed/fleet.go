// Package testbed runs a whole fleet in one process, for tests: a provisioner with broker and store on disk, as
// `muster provisioner init` sets it up, and agents and simulated nodes on loopback. It adds a movable clock, injected
// faults, and [Fleet.Check].
package testbed

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/provisioner/trust"

	"muster/internal/daemon"
	"muster/internal/setup"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/operate"
	"muster/provisioner/puppet"
	"muster/provisioner/webhook"
	"muster/server"
)

// Secret is in the fleet's tokens, Setting in its configurations, Fact in the facts of its simulated nodes. The fleet
// must not log, report or store them.
const (
	Secret  = "correct-horse-battery-staple"
	Setting = "hush-this-is-pushed-to-nodes"
	Fact    = "only-the-policy-may-see-this"
)

// patience bounds each wait of a test. It is far longer than needed, since machines may be slow.
const patience = 60 * time.Second

// Options change the default fleet, which trusts every token. All are optional.
type Options struct {
	// DefaultPolicy uses the policy that asks for approval of new names.
	DefaultPolicy bool

	Policy string

	// Template is server.conf, the template of nodes' configurations.
	Template string

	Edit func(*daemon.Config)

	Agent func(*server.Config)

	Resolver *net.Resolver

	// Alive is the interval of alive events; 0: the agent's default.
	Alive time.Duration

	// Servers is the number of nats-server processes in a cluster; 0: the broker inside the provisioner.
	Servers int

	// Sites adds a leaf nats-server for each site; see [Fleet.Site].
	Sites []string

	// Puppet adds a gateway for Puppet agents; see [Fleet.PuppetURL].
	Puppet bool

	Webhooks webhook.Config

	Quiet bool
}

// Fleet is a provisioner with its nodes. Make one with [New].
type Fleet struct {
	Dir    string
	Clock  *Clock
	Faults *Faults

	t    testing.TB
	opts Options
	cfg  daemon.Config
	log  *logBuffer

	*tokens
	*cluster // nil: the provisioner's own broker

	mu     sync.Mutex
	events []events.Event
	agents []*Agent

	url    string
	daemon *daemon.Daemon
	stop   context.CancelFunc
	done   chan error
}

// New sets up a fleet and starts its provisioner, which stops when the test ends.
func New(t testing.TB, opts Options) *Fleet {
	t.Helper()
	f := &Fleet{
		t:     t,
		opts:  opts,
		Dir:   filepath.Join(t.TempDir(), "provisioner"),
		Clock: &Clock{},
		log:   &logBuffer{quiet: opts.Quiet},
	}
	installation := setup.Installation{
		Name: "broker.fleet.test", TrustDomain: "fleet.test", Listen: "127.0.0.1:0", BrokerNames: []string{"localhost"},
		Addresses: []string{"127.0.0.1"}, TrustFirstUse: !opts.DefaultPolicy,
	}
	if opts.Servers > 0 {
		f.cluster = newCluster(f, opts.Servers, opts.Sites)
		installation.Addresses, installation.Cluster, installation.Replicas = f.addresses(), f.urls("tls"),
			min(3, opts.Servers)
		f.url = f.urls("nats")
	}
	must(t, setup.Init(f.Dir, installation))
	if f.cluster != nil {
		f.start(filepath.Join(f.Dir, "provisioner.yaml"))
	}
	if opts.Puppet {
		_, err := (&setup.Maker{Config: filepath.Join(f.Dir, "provisioner.yaml")}).Puppet()
		must(t, err)
	}
	f.Write("server.conf", cmp.Or(opts.Template, "identity = {{ .Identity }}\nsecret_setting = "+Setting+
		"\nregistration_interval = 1s\n"))
	if opts.Policy != "" {
		must(t, os.RemoveAll(filepath.Join(f.Dir, "policy")))
		f.Write("policy/policy.rego", opts.Policy)
	}
	f.tokens = newTokens(t, f.Dir, f.URL, f.Clock)
	f.Start()
	t.Cleanup(func() {
		if f.daemon != nil {
			f.Stop()
		}
		if t.Failed() {
			t.Logf("the end of the provisioner's log, above debug level:\n%s", f.log.last())
		}
	})
	return f
}

// Quotas edits a configuration's quotas.
func Quotas(perToken, perSource int) func(*daemon.Config) {
	return func(c *daemon.Config) { c.Quotas.PerToken, c.Quotas.PerSource = perToken, perSource }
}

func (f *Fleet) Write(name, content string) {
	f.t.Helper()
	path := filepath.Join(f.Dir, name)
	must(f.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(f.t, os.WriteFile(path, []byte(content), 0o644))
}

// Start starts the provisioner and returns when it serves. After a restart it has the same port.
func (f *Fleet) Start() {
	f.t.Helper()
	f.daemon, f.stop, f.done = run(f, "provisioner", func() (*daemon.Daemon, error) {
		opts := f.options(f.Clock, f.log.logger())
		opts.WrapStore = func(s provisioner.Store) provisioner.Store {
			f.Faults = &Faults{Store: s}
			return f.Faults
		}
		return daemon.LoadWith(filepath.Join(f.Dir, "provisioner.yaml"), opts, func(c *daemon.Config) {
			if f.cfg.Broker.Listen != "" {
				c.Broker.Listen = f.cfg.Broker.Listen
			}
			if f.opts.Puppet {
				c.Puppet = f.puppet()
			}
			if f.opts.Edit != nil {
				f.opts.Edit(c)
			}
			f.cfg = *c
		})
	})
	if f.url == "" {
		f.url = f.daemon.BrokerURL()
		f.cfg.Broker.Listen = strings.TrimPrefix(f.url, "nats://")
	}
	if url := f.daemon.PuppetURL(); url != "" {
		f.cfg.Puppet.Listen = strings.TrimPrefix(url, "https://")
	}
}

// options returns what all provisioners of the fleet have in common.
func (f *Fleet) options(clock *Clock, log *slog.Logger) daemon.Options {
	return daemon.Options{
		Version:   "test",
		Log:       log,
		Now:       clock.Now,
		StoreTime: f.Clock.at,
		Resolver:  f.opts.Resolver,
		Emit:      f.emit,
		Webhooks:  f.opts.Webhooks,
	}
}

// run runs a provisioner and returns when it serves. It restarts the provisioner, as a supervisor does, if the store
// was too slow or another process took its port.
func run(f *Fleet, name string, load func() (*daemon.Daemon, error)) (d *daemon.Daemon, stop context.CancelFunc,
	done chan error) {
	f.t.Helper()
	for began := time.Now(); ; {
		d, err := load()
		if err != nil {
			f.t.Fatalf("start %s: %v", name, err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ready, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- d.Run(ctx, func() { close(ready) }) }()
		select {
		case <-ready:
			return d, stop, done
		case err := <-done:
			stop()
			again := errors.Is(err, context.DeadlineExceeded) || err != nil &&
				strings.Contains(err.Error(), "address already in use")
			if !again || time.Since(began) > patience {
				f.t.Fatalf("%s ended: %v; log:\n%s", name, err, f.log.last())
			}
			<-time.After(100 * time.Millisecond)
		case <-time.After(patience):
			stop()
			f.t.Fatalf("%s does not start: %s", name, f.Log())
		}
	}
}

// Stop stops the provisioner as SIGTERM does, and waits for its end.
func (f *Fleet) Stop() {
	f.t.Helper()
	f.stop()
	stopped(f.t, "provisioner", f.done)
	f.daemon = nil
}

// stopped waits for the end of what was stopped. An error and a hang fail the test.
func stopped(t testing.TB, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(patience):
		t.Errorf("%s does not stop", what)
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Daemon returns the running provisioner.
func (f *Fleet) Daemon() *daemon.Daemon { return f.daemon }

// Provisioner starts another provisioner on the open store, as in another process; wrap, if not nil, wraps its store.
// It restarts the provisioner if the store is too slow.
func (f *Fleet) Provisioner(wrap func(provisioner.Store) provisioner.Store) *provisioner.Provisioner {
	f.t.Helper()
	return f.ProvisionerFor(context.Background(), wrap)
}

// ProvisionerFor is Provisioner, but the provisioner runs until life is done.
func (f *Fleet) ProvisionerFor(life context.Context,
	wrap func(provisioner.Store) provisioner.Store) *provisioner.Provisioner {
	f.t.Helper()
	var p *provisioner.Provisioner
	f.Eventually("one more provisioner started", func() bool {
		var err error
		if p, err = f.daemon.Provisioner(life, wrap); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			f.t.Fatal(err)
		}
		return err == nil
	})
	return p
}

// Orders returns the orders of a provisioner that is not connected to nodes.
func Orders(p *provisioner.Provisioner) *operate.Orders {
	return operate.New(operate.Config{Provisioner: p})
}

// Allow adds patterns to the allow-list.
func (f *Fleet) Allow(patterns ...string) {
	f.t.Helper()
	for _, p := range patterns {
		_, err := f.daemon.Orders().AllowList.Add(f.Context(), operate.AllowOrder{Pattern: p}, Operator())
		must(f.t, err)
	}
}

// puppet returns the settings of the gateway, with the port that it had before.
func (f *Fleet) puppet() puppet.Settings {
	dir := filepath.Join(f.Dir, "puppet-ca")
	return puppet.Settings{
		Listen:  cmp.Or(f.cfg.Puppet.Listen, "127.0.0.1:0"),
		Names:   []string{"puppet.fleet.test", "127.0.0.1"},
		Bundle:  filepath.Join(dir, "bundle.pem"),
		Key:     filepath.Join(dir, "key.pem"),
		RootCRL: filepath.Join(dir, "root-crl.pem"),
	}
}

// PuppetURL is the https URL of Puppet agents; it stays the same after a restart.
func (f *Fleet) PuppetURL() string { return f.daemon.PuppetURL() }

// URL is the broker's URL; it stays the same after a restart.
func (f *Fleet) URL() string { return f.url }

// Context returns a context that ends before the test's deadline.
func (f *Fleet) Context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	f.t.Cleanup(cancel)
	return ctx
}

// Record returns the newest record of an identity, nil if there is none.
func (f *Fleet) Record(identity string) *provisioner.Record {
	f.t.Helper()
	r, _, err := f.daemon.Store().Record(f.Context(), wire.Identity(identity))
	must(f.t, err)
	return r
}

// PutRecord overwrites the newest record.
func (f *Fleet) PutRecord(identity string, edit func(*provisioner.Record)) {
	f.t.Helper()
	s := f.daemon.Store()
	r, after, err := s.Record(f.Context(), wire.Identity(identity))
	if err != nil || r == nil {
		f.t.Fatalf("record of %s: %v, %v", identity, r, err)
	}
	edit(r)
	r.Attempt = wire.NewID()
	if _, err := s.Put(f.Context(), r, after); err != nil {
		f.t.Fatal(err)
	}
}

// Revisions returns the number of revisions of a record.
func (f *Fleet) Revisions(identity string) int {
	f.t.Helper()
	n := 0
	err := f.daemon.Store().Revisions(f.Context(), wire.Identity(identity),
		func(*provisioner.Record, trust.Revision) error {
			n++
			return nil
		})
	must(f.t, err)
	return n
}

func (f *Fleet) emit(e events.Event) {
	f.mu.Lock()
	f.events = append(f.events, e)
	f.mu.Unlock()
	if !f.opts.Quiet {
		checkEmitted(f.t, e)
	}
}

// Events returns the events so far.
func (f *Fleet) Events() []events.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

// Cause returns why the last request for the identity was refused, for messages of tests.
func (f *Fleet) Cause(identity string) string {
	for _, e := range slices.Backward(f.Events()) {
		if e.Node == identity && e.Code != "" {
			return fmt.Sprintf("%s: %s", e.Code, e.Cause)
		}
	}
	return "no refusal"
}

// Log returns everything that was logged, as JSON lines at debug level.
func (f *Fleet) Log() string { return f.log.String() }

// Eventually waits until the condition holds. After patience it fails the test with what.
func (f *Fleet) Eventually(what string, condition func() bool) {
	f.t.Helper()
	if !within(patience, 10*time.Millisecond, condition) {
		f.t.Fatalf("not within %v: %s", patience, what)
	}
}

// within looks once an interval whether the condition holds, and returns true when it does, or false after the limit.
func within(limit, interval time.Duration, condition func() bool) bool {
	deadline := time.Now().Add(limit)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !condition() {
		if time.Now().After(deadline) {
			return false
		}
		<-tick.C
	}
	return true
}

// Facts returns facts as JSON.
func Facts(t testing.TB, facts any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(facts)
	must(t, err)
	return b
}

func (f *Fleet) Read(name string) string {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.Dir, name))
	must(f.t, err)
	return string(b)
}
