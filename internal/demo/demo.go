// Package demo is `muster demo`: a provisioner with its broker and a fleet of real agents in one process, each with a
// directory and a TCP connection of its own, on loopback. It shows what muster does and checks that it did.
package demo

import (
	"context"
	"fmt"
	"math"
	"time"
)

// MaxNodes bounds a demo: each node takes two connections, and one process has about 20,000 descriptors for both of
// their ends.
const MaxNodes = 3000

// Config configures [Run] and [Stay].
type Config struct {
	Nodes   int    // real agents, 1 to [MaxNodes]; [MinStay] at least that stay
	Dir     string // where everything goes; missing or empty
	Version string

	// Progress is called at the beginning of a phase with a label and a number of nodes. It returns what is called
	// for each node that is done, and what is called at the end of the phase. Required.
	Progress func(label string, nodes int) (one, end func())
}

// timeout bounds the enrollment of all: ten times what two slow cores need.
func (c Config) timeout() time.Duration {
	return time.Minute + time.Duration(c.Nodes)*50*time.Millisecond
}

// A Result is what became of a demo, also its form with --json.
type Result struct {
	Nodes          int      `json:"nodes"`            // agents started
	Provisioned    int      `json:"provisioned"`      // of them: in the fleet, over mutual TLS with what is on disk
	NodesPerMinute float64  `json:"nodes_per_minute"` // until the last of them was in the fleet
	Seconds        float64  `json:"seconds"`
	Dir            string   `json:"dir"`
	Example        string   `json:"example"` // directory of one node
	Missing        []string `json:"missing"` // everything that should have been and was not
}

// Run makes a fleet and returns what became of it. Result.Missing is empty if everything is as it should be. An error
// means that the demo itself could not run. The files are left in cfg.Dir.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	in, err := install(cfg, true) //nolint:contextcheck // bounded by the time-out of the policy's tests
	if err != nil {
		return nil, err
	}
	r := &Result{Nodes: cfg.Nodes, Dir: cfg.Dir, Missing: []string{}}
	return r, in.serve(ctx, func(ctx context.Context) error { return in.provision(ctx, r) })
}

// identity is the name of a node.
func identity(i int) string { return fmt.Sprintf("node%04d.demo.muster", i+1) }

// provision runs the agents until all are in the fleet, or the time is up, and stops them.
func (in *installation) provision(ctx context.Context, r *Result) error {
	if err := in.issue("provisioning", nil); err != nil {
		return err
	}
	agents, stop := context.WithCancel(ctx)
	defer in.agents.Wait()
	defer stop()
	all := make([]machine, r.Nodes)
	facts := map[string]any{"role": "web", "datacenter": "demo", "kernel": "linux", "cores": 2}
	for i := range all {
		all[i] = machine{identity(i), "provisioning", facts, true}
	}
	start := time.Now()
	r.Provisioned = in.enroll(agents, all)
	took := time.Since(start)
	r.Example = in.dir(identity(0))
	r.Seconds = float64(took.Milliseconds()) / 1000
	r.NodesPerMinute = math.Round(float64(r.Provisioned) / took.Minutes())
	if r.Provisioned < r.Nodes {
		r.Missing = append(r.Missing, fmt.Sprintf("%d of %d nodes are not provisioned", r.Nodes-r.Provisioned, r.Nodes))
	}
	return ctx.Err()
}
