package bench

import (
	"context"
	"fmt"
	"math"
	"time"
)

// idle is a fleet that is connected while something else is measured.
type idle struct {
	processes
	memory int64 // of the serving processes then
	writes int   // that it took to provision it
}

// idle provisions nodes and has them connect.
func (s *serving) idle(ctx context.Context, cfg *Config) (*idle, error) {
	w, drivers, err := s.fleet(ctx, cfg, Order{Nodes: cfg.Idle, Concurrency: cfg.Concurrency, Shared: true, FactsBytes: cfg.FactsBytes}, &Config{})
	if err != nil {
		return nil, err
	}
	i := &idle{processes: drivers}
	for _, o := range w.outcomes {
		i.writes += o.Enrolled + o.Provisioned
	}
	if i.memory, err = s.atRest(ctx); err != nil {
		i.end()
		return nil, err
	}
	return i, nil
}

// fleet provisions nodes as the order says and has them connect, and stay until
// the drivers are ended. All of them, or it is an error.
func (s *serving) fleet(ctx context.Context, cfg *Config, o Order, token *Config) (*wave, processes, error) {
	text, err := s.token(token)
	if err != nil {
		return nil, nil, err
	}
	o.Applied, o.Stay = true, true
	w, drivers, err := s.play(ctx, cfg, played{"provisioning the fleet", o}, text)
	for _, o := range outcomesOf(w) {
		if err == nil && o.Provisioned < o.Nodes {
			err = fmt.Errorf("provision the fleet: %d of %d nodes, %v", o.Provisioned, o.Nodes, o.Why)
		}
	}
	if err != nil {
		drivers.end()
		return nil, nil, err
	}
	return w, drivers, nil
}

// outcomesOf is what has become of a wave's nodes; nil of no wave.
func outcomesOf(w *wave) []*Outcome {
	if w == nil {
		return nil
	}
	return w.outcomes
}

// settling is how long the memory of processes must not have fallen to count as
// what they take at rest: a provisioner notices within 10 s that it rests
// (package daemon), and the system gets its memory back little by little.
const settling = 20 * time.Second

// atRest returns what the serving processes take when nothing more of it is
// given back, after a minute at most.
func (s *serving) atRest(ctx context.Context) (int64, error) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	least, since, start := int64(math.MaxInt64), time.Now(), time.Now()
	for {
		u, err := usageOf(s.pids)
		if err != nil {
			return 0, err
		}
		if u.memory < least {
			least, since = u.memory, time.Now()
		}
		if time.Since(since) >= settling || time.Since(start) >= time.Minute {
			return u.memory, nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
