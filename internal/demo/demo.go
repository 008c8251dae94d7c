// Package demo is `muster demo`: a provisioner with its broker and a fleet of real agents in one process, each with
// its own directory and TCP connection on loopback.
package demo

import (
	"context"
	"fmt"
	"math"
	"time"
)

// MaxNodes is the largest fleet. Each node uses two connections with both ends in this process, which can have about
// 20,000 descriptors.
const MaxNodes = 3000

// Config configures [Run] and [Stay].
type Config struct {
	Nodes   int    // 1 to [MaxNodes]; at least [MinStay] for Stay
	Dir     string // missing or empty directory
	Version string

	// Progress is called at the start of a phase with a label and the number of nodes. It returns a function to call
	// for each node, and a function to call at the end of the phase. Required.
	Progress func(label string, nodes int) (one, end func())
}

// ten times what two slow cores need
func (c Config) timeout() time.Duration {
	return time.Minute + time.Duration(c.Nodes)*50*time.Millisecond
}

// A Result is the outcome of a demo, and the output of -o json.
type Result struct {
	Nodes          int      `json:"nodes"`            // agents started
	Provisioned    int      `json:"provisioned"`      // agents that joined the fleet with their certificate
	NodesPerMinute float64  `json:"nodes_per_minute"` // until the last one joined
	Seconds        float64  `json:"seconds"`
	Dir            string   `json:"dir"`
	Example        string   `json:"example"` // directory of one node
	Missing        []string `json:"missing"` // expectations that failed
}

// Run starts a fleet and checks it; Result.Missing lists failed expectations. An error means that the demo could not
// run. The files stay in cfg.Dir.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	in, err := install(cfg, true) //nolint:contextcheck // bounded by the time-out of the policy's tests
	if err != nil {
		return nil, err
	}
	r := &Result{Nodes: cfg.Nodes, Dir: cfg.Dir, Missing: []string{}}
	return r, in.daemon.RunDuring(ctx, func(ctx context.Context) error { return in.provision(ctx, r) })
}

func identity(i int) string { return fmt.Sprintf("node%04d.demo.muster", i+1) }

// provision runs the agents until all have joined the fleet or the time is up.
func (in *installation) provision(ctx context.Context, r *Result) error {
	if err := in.issue("provisioning"); err != nil {
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
