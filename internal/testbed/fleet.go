// Package testbed is a whole fleet in one process, for tests: a provisioner
// with its broker and its store on disk, as `muster provisioner init` sets it
// up, and any number of agents and simulated nodes that reach it over TCP and
// TLS on loopback. Nothing in it is a mock; what it adds is a clock that can be
// moved, writes that can be lost, and [Fleet.Check].
package testbed

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/daemon"
	"muster/internal/seal"
	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/webhook"
	"muster/server"
)

// Secret is the shared secret in the tokens of a fleet, Setting the value of
// one setting that its configurations hold, and Fact is among the facts of its
// simulated nodes. None of them may ever be logged, reported or stored.
const (
	Secret  = "correct-horse-battery-staple"
	Setting = "hush-this-is-pushed-to-nodes"
	Fact    = "only-the-policy-may-see-this"
)

// patience is how long anything in a test may take before the test fails. It
// is far above what is needed: machines are slow at times.
const patience = 60 * time.Second

// compiled are the policies of all fleets of the process: most have the same one.
var compiled policies.Cache

// Options change a fleet from the open one for labs.
type Options struct {
	// DefaultPolicy takes the policy that asks for approval of names that were
	// never seen, in place of the open one.
	DefaultPolicy bool

	// Policy replaces the policy with this Rego. Optional.
	Policy string

	// AllowList is allow-list.yaml. Optional.
	AllowList string

	// Template is server.conf, the template of nodes' configurations. Optional.
	Template string

	// Edit changes the configuration before it is used. Optional.
	Edit func(*daemon.Config)

	// Agent changes the configuration of agents before they start. Optional.
	Agent func(*server.Config)

	// Resolvers are DNS servers for provisioner and agents. Optional.
	Resolvers []string

	// Alive is how often agents say that they are alive. Optional; the default
	// is the agent's.
	Alive time.Duration

	// RolloverCheck is how often the provisioner looks whether a previous
	// certificate authority is still needed. Optional.
	RolloverCheck time.Duration

	// StoreSize is what the provisioner's store may take, in place of what its
	// disk has. Optional.
	StoreSize func(dir string) (limit, capacity int64, err error)

	// Servers starts so many nats-server processes in a cluster, in place of the
	// broker inside the provisioner; see [Fleet.Servers]. Optional.
	Servers int

	// Sites starts one more nats-server at each of them, a leaf of those of
	// Servers; see [Fleet.Site]. Optional.
	Sites []string

	// Journal stands between the provisioner and its journal. Optional.
	Journal func(provisioner.Journal) provisioner.Journal

	// Webhooks are what is changed of every webhook. Optional.
	Webhooks webhook.Config

	// Quiet logs nothing below warnings, for benchmarks.
	Quiet bool
}

// Fleet is a provisioner and what belongs to it. Make one with [New].
type Fleet struct {
	Dir    string // of the setup
	Clock  *Clock
	Faults *Faults // between the provisioner and its store

	t      testing.TB
	opts   Options
	cfg    daemon.Config
	log    *logBuffer
	signer crypto.Signer

	mu     sync.Mutex
	events []provisioner.Event  // guarded by mu
	agents []*Agent             // guarded by mu
	tokens []string             // guarded by mu: the first [maxTokens] that were signed
	sealed map[jwt.TokenID]bool // guarded by mu: tokens that are to be sealed

	cluster *cluster // nil if the broker is the provisioner's own

	limited map[jwt.TokenID]int // guarded by mu: uses of the tokens that were signed

	url    string // set by the first Start
	daemon *daemon.Daemon
	stop   context.CancelFunc
	done   chan error
}

// New sets a fleet up in a directory of the test's and starts its provisioner.
// It is stopped when the test ends.
func New(t testing.TB, opts Options) *Fleet {
	t.Helper()
	f := &Fleet{t: t, opts: opts, Dir: filepath.Join(t.TempDir(), "provisioner"), Clock: &Clock{}, log: &logBuffer{quiet: opts.Quiet}}
	setup := daemon.Setup{
		Name: "broker.fleet.test", TrustDomain: "fleet.test", Listen: "127.0.0.1:0", BrokerNames: []string{"localhost"},
		Addresses: []string{"127.0.0.1"}, TrustFirstUse: !opts.DefaultPolicy,
	}
	if opts.Servers > 0 {
		f.cluster = newCluster(t, opts.Servers, opts.Sites)
		setup.Addresses, setup.Cluster, setup.Replicas = f.cluster.addresses(), f.cluster.urls("tls"), min(3, opts.Servers)
		f.url = f.cluster.urls("nats")
	}
	if err := daemon.Init(f.Dir, setup); err != nil {
		t.Fatal(err)
	}
	if f.cluster != nil {
		f.cluster.start(filepath.Join(f.Dir, "provisioner.yaml"))
	}
	f.Write("server.conf", or(opts.Template, "identity = {{ .Identity }}\nsecret_setting = "+Setting+"\nregistration_interval = 1s\n"))
	if opts.AllowList != "" {
		f.Write("allow-list.yaml", opts.AllowList)
	}
	if opts.Policy != "" {
		if err := os.RemoveAll(filepath.Join(f.Dir, "policy")); err != nil {
			t.Fatal(err)
		}
		f.Write("policy/policy.rego", opts.Policy)
	}
	key, err := os.ReadFile(filepath.Join(f.Dir, "signer-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if f.signer, err = jwt.ParsePrivateKey(key, nil); err != nil {
		t.Fatal(err)
	}
	f.Start()
	t.Cleanup(func() {
		if f.daemon != nil {
			f.Stop()
		}
		if t.Failed() {
			t.Logf("the provisioner's log, its last %d lines that are more than details:\n%s", lastLines, f.log.last(lastLines))
		}
	})
	return f
}

// Quotas edits a configuration's quotas.
func Quotas(perToken, perSource int) func(*daemon.Config) {
	return func(c *daemon.Config) { c.Quotas.PerToken, c.Quotas.PerSource = perToken, perSource }
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Write puts a file into the setup, or replaces it.
func (f *Fleet) Write(name, content string) {
	f.t.Helper()
	path := filepath.Join(f.Dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		f.t.Fatal(err)
	}
}

// Start starts the provisioner and returns when it serves. A restarted one
// keeps the port that it had.
func (f *Fleet) Start() {
	f.t.Helper()
	opts := daemon.Options{
		Version: "test", Log: f.log.logger(), Now: f.Clock.Now, Resolvers: f.opts.Resolvers, Emit: f.emit, RolloverCheck: f.opts.RolloverCheck, Compiled: &compiled,
		StoreSize: f.opts.StoreSize, WrapJournal: f.opts.Journal, Webhooks: f.opts.Webhooks,
		WrapStore: func(s provisioner.Store) provisioner.Store {
			f.Faults = &Faults{Store: s}
			return f.Faults
		},
	}
	d, err := daemon.LoadWith(filepath.Join(f.Dir, "provisioner.yaml"), opts, func(c *daemon.Config) {
		if f.cfg.Broker.Listen != "" {
			c.Broker.Listen = f.cfg.Broker.Listen
		}
		if f.opts.Edit != nil {
			f.opts.Edit(c)
		}
		f.cfg = *c
	})
	if err != nil {
		f.t.Fatalf("start provisioner: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- d.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		stop()
		f.t.Fatalf("provisioner ended: %v", err)
	case <-time.After(patience):
		stop()
		f.t.Fatalf("provisioner does not start: %s", f.Log())
	}
	f.daemon, f.stop, f.done = d, stop, done
	if f.url == "" {
		f.url = d.BrokerURL()
		f.cfg.Broker.Listen = strings.TrimPrefix(f.url, "nats://")
	}
}

// Stop stops the provisioner as SIGTERM does, and waits for its end.
func (f *Fleet) Stop() {
	f.t.Helper()
	f.stop()
	select {
	case err := <-f.done:
		if err != nil {
			f.t.Errorf("provisioner: %v", err)
		}
	case <-time.After(patience):
		f.t.Error("provisioner does not stop")
	}
	f.daemon = nil
}

// Daemon returns the running provisioner.
func (f *Fleet) Daemon() *daemon.Daemon { return f.daemon }

// URL is where the broker listens, also after a restart.
func (f *Fleet) URL() string { return f.url }

// Context returns a context that ends before the test gives up.
func (f *Fleet) Context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	f.t.Cleanup(cancel)
	return ctx
}

// Claims returns the claims of a good token of this fleet.
func (f *Fleet) Claims() jwt.Claims {
	now := f.Clock.Now().UTC().Truncate(time.Second)
	c := jwt.Claims{
		Token: Secret, Brokers: f.URL(), Default: true, Organization: "choria", Purpose: jwt.Purpose,
		Issuer: "test", Subject: jwt.Purpose, JTI: jwt.NewJTI(), IssuedAt: now, NotBefore: now, ExpiresAt: now.Add(24 * time.Hour),
	}
	return c
}

// Token signs a good token of this fleet, changed by edit if that is not nil.
func (f *Fleet) Token(edit func(*jwt.Claims)) string {
	f.t.Helper()
	c := f.Claims()
	if edit != nil {
		edit(&c)
	}
	text, err := jwt.Sign(f.signer, c)
	if err != nil {
		f.t.Fatal(err)
	}
	limits, err := c.Limits()
	if err == nil && limits.Uses > 0 {
		f.limitedToken(text)
	}
	if err == nil && limits.Seal != "" {
		f.noteSealed(text)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.tokens) < maxTokens {
		f.tokens = append(f.tokens, text)
	}
	return text
}

// noteSealed remembers a token that is to be sealed, for [Fleet.Check].
func (f *Fleet) noteSealed(text string) {
	f.t.Helper()
	verifier, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: []jwt.Signer{{Key: f.signer.Public()}}, Now: f.Clock.Now})
	if err != nil {
		f.t.Fatal(err)
	}
	v, err := verifier.Verify(text)
	if err != nil {
		return // one that nobody gets anything with
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sealed == nil {
		f.sealed = make(map[jwt.TokenID]bool)
	}
	f.sealed[v.ID] = true
}

// Seal has a token ask for sealed enrollment, with the fleet's newest seal key.
// It is for [Fleet.Token], and keeps the other limits that the token has.
func (f *Fleet) Seal(c *jwt.Claims) {
	f.t.Helper()
	l, err := c.Limits()
	if err != nil {
		f.t.Fatal(err)
	}
	l.Seal = f.SealKey().String()
	if err := c.SetLimits(l); err != nil {
		f.t.Fatal(err)
	}
}

// SealKey returns the public key in the setup's seal.pub.
func (f *Fleet) SealKey() seal.PublicKey {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.Dir, "seal.pub"))
	if err != nil {
		f.t.Fatal(err)
	}
	key, err := seal.ParsePublicKey(strings.TrimSpace(string(b)))
	if err != nil {
		f.t.Fatal(err)
	}
	return key
}

// SealedNode returns a simulated node with a good token that asks for sealed
// enrollment.
func (f *Fleet) SealedNode(identity string) *simnode.Node {
	f.t.Helper()
	n, err := simnode.New(identity, f.Token(f.Seal))
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

// Session returns a sealed session that has no connection yet.
func (f *Fleet) Session() *seal.Session {
	f.t.Helper()
	s, err := seal.NewSession(f.SealKey(), wire.Secret(f.Token(f.Seal)))
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// Node returns a simulated node with a good token.
func (f *Fleet) Node(identity string) *simnode.Node {
	f.t.Helper()
	n, err := simnode.New(identity, f.Token(nil))
	if err != nil {
		f.t.Fatal(err)
	}
	n.Facts = json.RawMessage(`{"private":"` + Fact + `"}`)
	return n
}

// Nodes returns so many simulated nodes, which share a good token.
func (f *Fleet) Nodes(n int) []*simnode.Node {
	f.t.Helper()
	token := f.Token(nil)
	nodes := make([]*simnode.Node, n)
	for i := range nodes {
		var err error
		if nodes[i], err = simnode.New(fmt.Sprintf("node%d.example.net", i), token); err != nil {
			f.t.Fatal(err)
		}
	}
	return nodes
}

// Dial connects as a node with this token and closes when the test ends.
func (f *Fleet) Dial(token string) *nats.Conn {
	f.t.Helper()
	nc, err := simnode.Dial(f.URL(), token)
	if err != nil {
		f.t.Fatalf("connect: %v", err)
	}
	f.t.Cleanup(nc.Close)
	return nc
}

// Ask sends a node's enroll request over a connection of its own and returns
// the reply.
func (f *Fleet) Ask(n *simnode.Node) *wire.Reply {
	f.t.Helper()
	nc := f.Dial(n.Token)
	defer nc.Close()
	r, err := simnode.Enroll(f.Context(), nc, n.Request())
	if err != nil {
		f.t.Fatalf("enroll %s: %v", n.Identity, err)
	}
	return r
}

// Enroll enrolls a node and fails the test if it is refused.
func (f *Fleet) Enroll(n *simnode.Node) *wire.Enrolled {
	f.t.Helper()
	r := f.Ask(n)
	if r.Refusal != nil {
		f.t.Fatalf("enroll %s: refused: %s: %s", n.Identity, r.Refusal.Code, f.Cause(n.Identity))
	}
	return r.Enrolled
}

// Refused sends a node's enroll request and returns the true code under which
// it was refused, or fails the test if it was not.
func (f *Fleet) Refused(n *simnode.Node) wire.Code {
	f.t.Helper()
	before := len(f.Events())
	r := f.Ask(n)
	if r.Refusal == nil {
		f.t.Fatalf("enroll %s: not refused", n.Identity)
	}
	for _, e := range f.Events()[before:] {
		if e.Code != "" && e.Node == n.Identity || e.Node == "" && e.Code == r.Refusal.Code {
			if e.Code.ToldAs() != r.Refusal.Code {
				f.t.Errorf("refusal %s is told as %s, want %s", e.Code, r.Refusal.Code, e.Code.ToldAs())
			}
			return e.Code
		}
	}
	for _, e := range slices.Backward(f.Events()[:before]) { // who waits on is told of once in a while
		waits := e.Code == wire.CodeApprovalPending || e.Code == wire.CodeDeferred || e.Code == wire.CodeIdentityTaken
		if e.Node == n.Identity && waits && e.Code.ToldAs() == r.Refusal.Code {
			return e.Code
		}
	}
	f.t.Fatalf("refusal of %s with %s has no event", n.Identity, r.Refusal.Code)
	return ""
}

// Apply confirms what a node was given and returns the reply.
func (f *Fleet) Apply(n *simnode.Node, e *wire.Enrolled) *wire.Reply {
	f.t.Helper()
	a, err := n.Confirm(e)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.Send(n, a)
}

// Send sends a confirmation as it is and returns the reply.
func (f *Fleet) Send(n *simnode.Node, a *wire.Applied) *wire.Reply {
	f.t.Helper()
	nc := f.Dial(n.Token)
	defer nc.Close()
	r, err := simnode.Apply(f.Context(), nc, a)
	if err != nil {
		f.t.Fatalf("applied %s: %v", n.Identity, err)
	}
	return r
}

// Record returns the newest record of an identity, nil if there is none.
func (f *Fleet) Record(identity string) *provisioner.Record {
	f.t.Helper()
	r, _, err := f.daemon.Store().Record(f.Context(), wire.Identity(identity))
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// PutRecord writes a record over the newest one, as an operator's command would.
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

// Revisions returns how many revisions the record of an identity has.
func (f *Fleet) Revisions(identity string) int {
	f.t.Helper()
	n := 0
	err := f.daemon.Store().Revisions(f.Context(), wire.Identity(identity), func(*provisioner.Record, provisioner.Revision) error { n++; return nil })
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

func (f *Fleet) emit(e provisioner.Event) {
	defer f.checkEmitted(e) // after the lock is free: who waits for the event need not wait for this
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, e)
}

// Events returns what has happened so far.
func (f *Fleet) Events() []provisioner.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

// Cause returns why an identity was last refused, for people.
func (f *Fleet) Cause(identity string) string {
	for _, e := range slices.Backward(f.Events()) {
		if e.Node == identity && e.Code != "" {
			return fmt.Sprintf("%s: %s", e.Code, e.Cause)
		}
	}
	return "no refusal"
}

// Log returns all that has been logged, JSON lines at debug level.
func (f *Fleet) Log() string { return f.log.String() }

// Eventually waits until the condition holds, or fails the test with what.
func (f *Fleet) Eventually(what string, condition func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		if time.Now().After(deadline) {
			f.t.Fatalf("not within %v: %s", patience, what)
		}
		<-tick.C
	}
}

// Facts returns facts as JSON.
func Facts(t testing.TB, facts any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(facts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
