// Package demo is `muster demo`: a provisioner with its broker and a fleet of real agents in one process, each with a
// directory and a TCP connection of its own, on loopback. It shows what muster does and checks that it did.
package demo

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"muster/provisioner/events"
	"muster/server"
)

// MaxNodes bounds a demo: each node takes two connections, and one process has about 20,000 descriptors for both of
// their ends.
const MaxNodes = 3000

// Config configures [Run] and [Stay].
type Config struct {
	Nodes   int    // real agents, 1 to [MaxNodes]; [MinStay] at least that stay
	Dir     string // where everything goes; missing or empty
	Version string

	// Progress is called at the beginning of each phase with a label and a number of nodes. It returns what is called
	// for each node that is done, perhaps concurrently, and what is called at the end of the phase. Required.
	Progress func(label string, nodes int) (one, end func())
}

// timeout bounds the enrollment of all: ten times what two slow cores need.
func (c Config) timeout() time.Duration {
	return time.Minute + time.Duration(c.Nodes)*50*time.Millisecond
}

// A Result is what became of a demo, also its form with --json.
type Result struct {
	Nodes          int       `json:"nodes"`            // agents started
	Provisioned    int       `json:"provisioned"`      // of them: files on disk, confirmed, on record
	Connected      int       `json:"connected"`        // of them: reconnected over mutual TLS with what is on disk
	Refused        int       `json:"refused"`          // of the nodes that must be
	NodesPerMinute float64   `json:"nodes_per_minute"` // from the first start to the last confirmation
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

// Run makes a fleet and returns what became of it. Result.Missing is empty if everything is as it should be. An error
// means that the demo itself could not run. The files are left in cfg.Dir.
func Run(ctx context.Context, cfg Config) (_ *Result, err error) {
	d := &run{result: &Result{Nodes: cfg.Nodes, Dir: cfg.Dir, Refusals: []Refusal{}, Missing: []string{}}}
	if d.installation, err = install(cfg, true, d.emit); err != nil { //nolint:contextcheck // bounded by the time-out of the policy's tests
		return nil, err
	}
	return d.result, d.serve(ctx, d.play)
}

// run is one demo that ends.
type run struct {
	*installation
	token string // the fleet's

	mu     sync.Mutex     // guards all that follows
	events []events.Event // refusals
	last   time.Time      // the last confirmation
	result *Result
}

func (d *run) emit(e events.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.Code != "" {
		d.events = append(d.events, e)
	}
}

// play plays the whole demo against the running provisioner.
func (d *run) play(ctx context.Context) (err error) {
	if d.token, err = d.issue("provisioning", nil); err != nil {
		return err
	}
	if err := d.provision(ctx); err != nil {
		return err
	}
	if err := d.refuse(ctx); err != nil {
		return err
	}
	slices.Sort(d.result.Missing)
	return nil
}

// missing notes something that should have been.
func (d *run) missing(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.result.Missing = append(d.result.Missing, fmt.Sprintf(format, args...))
}

// identity is the name of a node.
func identity(i int) string { return fmt.Sprintf("node%04d.demo.muster", i+1) }

// provision runs the agents until all are provisioned, or the time is up, then checks what is on their disks, and
// stops them.
func (d *run) provision(ctx context.Context) error {
	agents, stop := context.WithCancel(ctx)
	defer d.agents.Wait()
	defer stop()
	all := make([]machine, d.cfg.Nodes)
	facts := map[string]any{"role": "web", "datacenter": "demo", "kernel": "linux", "cores": 2}
	for i := range all {
		all[i] = machine{identity(i), "provisioning", facts, true}
	}
	start := time.Now()
	d.enroll(agents, all, server.EventConfirmed, func(server.Event) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.result.Provisioned++
		d.last = time.Now()
	})
	d.measure(start)
	d.check()
	return ctx.Err()
}

// measure fills in how fast it went.
func (d *run) measure(start time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.result
	if r.Example = d.dir(identity(0)); r.Provisioned == 0 {
		return
	}
	took := d.last.Sub(start)
	r.Seconds = float64(took.Milliseconds()) / 1000
	r.NodesPerMinute = math.Round(float64(r.Provisioned) / took.Minutes())
}
