// Package demo is `muster demo`: a provisioner with its broker and a fleet of
// real agents in one process, each with a directory and a TCP connection of its
// own, on loopback. It shows what muster does and checks that it did.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/daemon"
	"muster/provisioner"
	"muster/server"
)

// MaxNodes bounds a demo: each node takes two connections, and one process has
// about 20,000 descriptors for both of their ends.
const MaxNodes = 3000

// Config configures [Run].
type Config struct {
	Nodes   int    // real agents, 1 to [MaxNodes]
	Dir     string // where everything goes; missing or empty
	Version string

	// Progress is called at the beginning of each phase, with what it does and
	// for how many nodes. It returns what is called for each node that is done,
	// perhaps concurrently, and what is called at the phase's end. Optional.
	Progress func(label string, nodes int) (one, end func())

	// Timeout bounds the enrollment of all. Optional; default 1 minute and
	// 50 ms a node, ten times what two slow cores need.
	Timeout time.Duration
}

// A Result is what a demo came to: also its form with --json.
type Result struct {
	Nodes          int       `json:"nodes"`            // agents started
	Provisioned    int       `json:"provisioned"`      // of them: certificate and configuration on disk, confirmed, on record
	Verified       int       `json:"verified"`         // of them: certificate chains to the CA and belongs to the node's own key
	Connected      int       `json:"connected"`        // of them: reconnected over mutual TLS with what is on their disk
	Refused        int       `json:"refused"`          // of the nodes that must be
	NodesPerMinute float64   `json:"nodes_per_minute"` // from the first start to the last confirmation
	P50            float64   `json:"p50_ms"`           // from an agent's start to its confirmation
	P99            float64   `json:"p99_ms"`
	Seconds        float64   `json:"seconds"`
	Dir            string    `json:"dir"`
	Example        string    `json:"example"` // directory of one node
	Refusals       []Refusal `json:"refusals"`
	Missing        []string  `json:"missing"` // everything that should have been and was not
}

// Refusal is one node that had to be refused.
type Refusal struct {
	Node     string `json:"node"`
	What     string `json:"what"`           // what is wrong with it
	Code     string `json:"code"`           // why it was refused
	Told     string `json:"told,omitempty"` // what the node was told, if that is not all
	Cause    string `json:"cause"`          // for the operator
	Expected string `json:"expected"`       // the code that it should be
}

// policy is added to the open policy, so that something is denied by it.
const policy = `# Added by the demo: a reason to deny beside those of open.rego.
package muster.enroll

deny contains "machines in quarantine stay out" if input.facts.quarantine == true
`

// Run makes a fleet and returns what became of it. Result.Missing is empty if
// everything is as it should be. An error means that the demo itself could not
// run. The files are left in cfg.Dir.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if cfg.Nodes < 1 || cfg.Nodes > MaxNodes {
		return nil, fmt.Errorf("%d nodes, want 1 to %d", cfg.Nodes, MaxNodes)
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string, int) (one, end func()) { return func() {}, func() {} }
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute+time.Duration(cfg.Nodes)*50*time.Millisecond)
	f := &fleet{cfg: cfg, result: &Result{Nodes: cfg.Nodes, Dir: cfg.Dir, Refusals: []Refusal{}, Missing: []string{}}}
	if err := f.setUp(); err != nil { //nolint:contextcheck // bounded by the time-out of the policy's tests
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	ready := make(chan struct{})
	g.Go(func() error { return f.daemon.Run(ctx, func() { close(ready) }) })
	g.Go(func() error {
		defer stop()
		select {
		case <-ready:
			return f.run(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	err := errors.Join(g.Wait(), f.logs.close())
	if err != nil {
		return nil, err
	}
	return f.result, nil
}

// fleet is one demo.
type fleet struct {
	cfg    Config
	daemon *daemon.Daemon
	result *Result
	logs   logs
	agent  *slog.Logger
	token  string // text
	file   string // where the token lies

	mu      sync.Mutex
	events  []provisioner.Event // guarded by mu: refusals
	elapsed []time.Duration     // guarded by mu: one of each provisioned node
	last    time.Time           // guarded by mu: the last confirmation
}

// setUp makes the installation as an operator would.
func (f *fleet) setUp() error {
	home := filepath.Join(f.cfg.Dir, "provisioner")
	if err := emptyDir(f.cfg.Dir); err != nil {
		return err
	}
	err := daemon.Init(home, daemon.Setup{
		Name: "provisioner.demo.muster", TrustDomain: "demo.muster", Listen: "127.0.0.1:0",
		BrokerNames: []string{"localhost"}, TrustFirstUse: true,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(home, "policy", "quarantine.rego"), []byte(policy), 0o644); err != nil {
		return err
	}
	log, err := f.logs.open(filepath.Join(f.cfg.Dir, "provisioner.log"))
	if err != nil {
		return err
	}
	if f.agent, err = f.logs.open(filepath.Join(f.cfg.Dir, "agents.log")); err != nil {
		return err
	}
	f.daemon, err = daemon.LoadWith(filepath.Join(home, "provisioner.yaml"), daemon.Options{Version: f.cfg.Version, Log: log, Emit: f.emit},
		func(c *daemon.Config) {
			// One machine plays all of them: no quota by address fits.
			c.Quotas.PerSource = 0
		})
	return err
}

func (f *fleet) emit(e provisioner.Event) {
	if e.Code == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, e)
}

// url is the broker as tokens name it.
func (f *fleet) url() string { return urlOf(f.daemon) }

func urlOf(d *daemon.Daemon) string {
	return strings.Replace(d.BrokerURL(), "127.0.0.1", "localhost", 1)
}

// run plays the whole demo against the running provisioner.
func (f *fleet) run(ctx context.Context) error {
	if err := f.sign(); err != nil {
		return err
	}
	if err := f.provision(ctx); err != nil {
		return err
	}
	if err := f.refuse(ctx); err != nil {
		return err
	}
	slices.Sort(f.result.Missing)
	return nil
}

// missing notes something that should have been.
func (f *fleet) missing(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result.Missing = append(f.result.Missing, fmt.Sprintf(format, args...))
}

// provision runs the agents until all are provisioned and connected, or the
// time is up, then checks what is on their disks, and stops them.
func (f *fleet) provision(ctx context.Context) error {
	agents, stop := context.WithCancel(ctx)
	defer stop()
	limit, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	var g errgroup.Group
	var waiting sync.WaitGroup
	start := time.Now()
	one, end := f.cfg.Progress("enrolling", f.cfg.Nodes)
	for i := range f.cfg.Nodes {
		a, done, err := f.newAgent(i, one)
		if err != nil {
			return err
		}
		waiting.Go(func() {
			select {
			case <-done:
			case <-limit.Done():
			}
		})
		g.Go(func() error {
			for {
				if err := a.Run(agents); !errors.Is(err, server.ErrRestart) {
					return err
				}
			}
		})
	}
	waiting.Wait()
	end()
	f.measure(start)
	f.check(ctx)
	stop()
	return errors.Join(g.Wait(), ctx.Err())
}

// newAgent makes one agent. Once it is provisioned, one is called and the
// channel closed.
func (f *fleet) newAgent(i int, one func()) (*server.Server, <-chan struct{}, error) {
	done := make(chan struct{})
	var once sync.Once // a node that enrolls again confirms again
	dir := f.dir(i)
	facts := filepath.Join(f.cfg.Dir, "facts.json")
	a, err := server.New(server.Config{
		TokenFile: f.file, SSLDir: dir, ConfFile: filepath.Join(dir, "server.conf"), FactsFile: facts,
		Identity: identity(i), Version: f.cfg.Version, Log: f.agent.With("agent", identity(i)),
		Observe: func(e server.Event) {
			if e.Kind != server.EventConfirmed {
				return
			}
			once.Do(func() {
				f.mu.Lock()
				f.elapsed = append(f.elapsed, e.Elapsed)
				f.last = time.Now()
				f.mu.Unlock()
				one()
				close(done)
			})
		},
	})
	return a, done, err
}

// identity is the name of a demo's node.
func identity(i int) string { return fmt.Sprintf("node%04d.demo.muster", i+1) }

// dir is where the node's files are.
func (f *fleet) dir(i int) string { return filepath.Join(f.cfg.Dir, "nodes", identity(i)) }

// measure says how fast it went.
func (f *fleet) measure(start time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.result
	r.Provisioned = len(f.elapsed)
	if r.Provisioned == 0 {
		return
	}
	slices.Sort(f.elapsed)
	at := func(q float64) float64 {
		return float64(f.elapsed[int(q*float64(len(f.elapsed)-1))].Microseconds()) / 1000
	}
	r.P50, r.P99 = at(0.50), at(0.99)
	took := f.last.Sub(start)
	r.Seconds = float64(took.Milliseconds()) / 1000
	r.NodesPerMinute = math.Round(float64(r.Provisioned) / took.Minutes())
}
