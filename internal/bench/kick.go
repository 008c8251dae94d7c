package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// A Kick is what came of sending a whole fleet back to be provisioned again, by
// one `muster node reprovision --all --wait`.
type Kick struct {
	Nodes       int     `json:"nodes"`
	Provisioned int     `json:"provisioned"` // again, each with the key that it had, checked
	Seconds     float64 `json:"seconds"`     // of the command: until the last confirmation is on record
	InFleet     float64 `json:"in_fleet_seconds"`
	ServingCPU  float64 `json:"serving_cpu_us_per_node"` // with the fleet's connections
	DriverCPU   float64 `json:"driver_cpu_us_per_node"`
	CommandCPU  float64 `json:"command_cpu_us_per_node"` // of the command itself
	PeakMemory  int64   `json:"peak_memory_bytes"`       // of the serving processes
}

// kickBatch is how many nodes the command has on their way at a time; chosen, as
// many as a driver has in hand.
const kickBatch = 256

// kick provisions a fleet, has it connect, and kicks it.
func (s *serving) kick(ctx context.Context, cfg *Config, result *Result) error {
	if err := s.start(ctx, cfg, cfg.Profile); err != nil {
		return err
	}
	w, drivers, err := s.fleet(ctx, cfg, Order{
		Nodes: cfg.Kick, Concurrency: cfg.Concurrency, Shared: cfg.Shared, TLS: cfg.TLS, FactsBytes: cfg.FactsBytes, Kick: true,
	}, cfg)
	if err != nil {
		return err
	}
	defer drivers.end()
	result.add(WaveApplied, w)
	if err := s.allListed(ctx, cfg); err != nil {
		return err
	}
	before, err := usageOf(s.pids)
	if err != nil {
		return err
	}
	k := &Kick{Nodes: cfg.Kick}
	began := time.Now()
	g, inHand := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := s.reprovision(inHand, cfg, k)
		if err != nil {
			drivers.end() // those who are not back will not come
		}
		return err
	})
	g.Go(func() error {
		err := await(func() {}, drivers, silent(), func(i int, r *Report) (int, bool) {
			return r.Back, r.Back == share(cfg.Kick, len(drivers), i)
		})
		k.InFleet = rounded(time.Since(began).Seconds(), 1000)
		return err
	})
	if err := g.Wait(); err != nil {
		return s.explain(ctx, err)
	}
	after, err := usageOf(s.pids)
	if err != nil {
		return err
	}
	perNode := func(cpu int64) float64 { return rounded(float64(cpu)/float64(cfg.Kick)/1000, 10) }
	k.ServingCPU, k.PeakMemory = perNode(after.cpu-before.cpu), after.peak
	outcomes, err := drivers.outcomes()
	if err != nil {
		return err
	}
	cpu := int64(0)
	for _, o := range outcomes {
		k.Provisioned += o.Provisioned
		result.Refused += o.Refused
		result.Failed += o.Failed
		result.Why = append(result.Why, o.Why...)
		cpu += o.CPU
	}
	k.DriverCPU = perNode(cpu)
	result.Kick = k
	_, err = s.halt()
	return err
}

// listEvery is how often it is asked whether all nodes are listed; chosen.
const listEvery = 100 * time.Millisecond

// allListed waits until the provisioner lists the whole fleet, from which --all chooses: lists
// follow the records within a second, and a small fleet is there sooner.
func (s *serving) allListed(ctx context.Context, cfg *Config) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	again := time.NewTicker(listEvery)
	defer again.Stop()
	for {
		cmd := cfg.Program("node", "list", "--limit", "1", "--json", "--config", filepath.Join(s.home(), "provisioner.yaml"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("muster node list: %w", err)
		}
		var list struct {
			Total int `json:"total"`
		}
		if err := json.Unmarshal(out, &list); err != nil {
			return fmt.Errorf("muster node list: %w", err)
		}
		if list.Total >= cfg.Kick {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the list of nodes, %d of %d: %w", list.Total, cfg.Kick, ctx.Err())
		case <-again.C:
		}
	}
}

// reprovision runs the command, which shows its own progress.
func (s *serving) reprovision(ctx context.Context, cfg *Config, k *Kick) error {
	cmd := cfg.Program("node", "reprovision", "--all", "--wait", "--yes", "--json", "--why", "muster bench --kick", "--batch", strconv.Itoa(kickBatch),
		"--max-failures", "0", "--config", filepath.Join(s.home(), "provisioner.yaml"), "--progress", filepath.Join(s.dir, "kick.progress"))
	var out, says bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &says
	if cfg.Terminal != nil {
		cmd.Stderr = cfg.Terminal
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start muster node reprovision: %w", err)
	}
	unhook := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	unhook()
	if err != nil {
		return fmt.Errorf("muster node reprovision: %w: %s", err, bytes.TrimSpace(says.Bytes()))
	}
	k.Seconds = rounded(time.Since(began).Seconds(), 1000)
	k.CommandCPU = rounded(float64((cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()).Nanoseconds())/float64(cfg.Kick)/1000, 10)
	var r struct {
		Done int `json:"done"`
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return fmt.Errorf("muster node reprovision: %w", err)
	}
	if r.Done != cfg.Kick {
		return fmt.Errorf("muster node reprovision: %d of %d nodes", r.Done, cfg.Kick)
	}
	return nil
}

// outcomes ends the listening of nodes that were kicked and returns what became of
// each driver's.
func (all processes) outcomes() ([]*Outcome, error) {
	for _, p := range all {
		if err := p.start(); err != nil { // a line of any content
			return nil, err
		}
	}
	outcomes := make([]*Outcome, len(all))
	return outcomes, await(func() {}, all, silent(), func(i int, r *Report) (int, bool) {
		outcomes[i] = r.Outcome // each its own
		return 0, r.Outcome != nil
	})
}
