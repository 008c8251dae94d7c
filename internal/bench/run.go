package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"time"
)

// Run measures what cfg says and returns the result. Whatever it started or
// made is gone when it returns, also if ctx ends meanwhile. An error means that
// the measuring itself could not be done; nodes that did not get through are in
// the result.
func Run(ctx context.Context, cfg Config) (result *Result, err error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("processes are measured by what Linux counts of them (/proc): run it on Linux")
	}
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if cfg.Server == nil {
		cfg.Server = cfg.Program
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string, int) (func(int), func()) { return func(int) {}, func() {} }
	}
	if err := reachable(ctx, cfg.URL); err != nil {
		return nil, err
	}
	s := &serving{url: cfg.URL, pids: cfg.PIDs}
	result = newResult(&cfg)
	if result.Speed, err = speed(); err != nil {
		return nil, err
	}
	if cfg.URL != "" {
		for _, kind := range cfg.Waves {
			w, err := s.wave(ctx, &cfg, cfg.played(kind), cfg.Token)
			if err != nil {
				return nil, err
			}
			result.add(kind, w)
		}
		return result, nil
	}
	if s, err = install(&cfg); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if cfg.Kick > 0 {
		return result, s.kick(ctx, &cfg, result)
	}
	if cfg.Stored > 0 {
		return result, s.many(ctx, &cfg, result)
	}
	for i, kind := range cfg.Waves {
		if err := s.served(ctx, &cfg, kind, i == len(cfg.Waves)-1, result); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// reachable reports whether a broker that was named is there before anything is
// prepared: nodes would try for minutes, as they do in a storm.
func reachable(ctx context.Context, broker string) error {
	if broker == "" {
		return nil
	}
	u, err := url.Parse(broker)
	if err != nil {
		return err
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return fmt.Errorf("--url: no broker is there: %w: start it, or leave --url out to have one started", err)
	}
	return conn.Close()
}

// turns is how often each wave with many records stored is played, by turns with the same at an
// empty store: a machine that is a guest is not as fast from one minute to the next,
// by more than what is to be seen here. Chosen.
const turns = 2

// many plays the waves with many records stored. In a closed loop each follows the same
// wave at an empty store.
func (s *serving) many(ctx context.Context, cfg *Config, result *Result) (err error) {
	if err := s.fill(ctx, cfg); err != nil {
		return err
	}
	times := turns
	var empty *serving
	without := *cfg
	without.Stored, without.Idle, without.Profile, without.DriverProfile = 0, 0, "", ""
	if cfg.Rate > 0 {
		times = 1 // its rate is what it was told
	} else {
		if empty, err = install(&without); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, empty.stop()) }()
	}
	for i, kind := range cfg.Waves {
		for turn := range times {
			beside := newResult(&without)
			if empty != nil {
				if err := empty.served(ctx, &without, kind, false, beside); err != nil {
					return err
				}
			}
			if err := s.served(ctx, cfg, kind, i == len(cfg.Waves)-1 && turn == times-1, result); err != nil {
				return err
			}
			if empty != nil {
				result.compare(kind, beside)
			}
		}
	}
	return nil
}

// listed waits until the provisioner has listed all nodes, which a busy one puts off,
// so that what that takes of memory counts as well.
func (s *serving) listed(ctx context.Context, result *Result, w *wave) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	took, err := s.servers[len(s.servers)-1].wait(ctx, nodesListed)
	if err != nil {
		return fmt.Errorf("wait for the list of nodes: %w", err)
	}
	d, err := time.ParseDuration(took)
	if err != nil {
		return fmt.Errorf("wait for the list of nodes: %w", err)
	}
	u, err := usageOf(s.pids)
	if err != nil {
		return err
	}
	result.ListedMS, w.after.peak = rounded(d.Seconds()*1000, 1), u.peak
	return nil
}

// served plays one wave at a process of its own on the one store, so that each
// is measured from a fresh start. The last one is profiled, with idle nodes
// beside it.
func (s *serving) served(ctx context.Context, cfg *Config, kind Wave, last bool, result *Result) (err error) {
	profile := ""
	if last {
		profile = cfg.Profile
	}
	if err := s.start(ctx, cfg, profile); err != nil {
		return err
	}
	defer func() { _, _ = s.halt() }() // below, unless something fails
	u, err := usageOf(s.pids)
	if err != nil {
		return err
	}
	result.StartMS, result.StartMemory = rounded(s.opened.Seconds()*1000, 10), u.memory
	others := 0 // writes that are not of the wave's nodes
	if last && cfg.Idle > 0 {
		idle, err := s.idle(ctx, cfg)
		if err != nil {
			return err
		}
		defer idle.end()
		result.Idle, result.IdleMemory = cfg.Idle, idle.memory
		others = idle.writes
	}
	token, err := s.token(cfg)
	if err != nil {
		return err
	}
	w, err := s.wave(ctx, cfg, cfg.played(kind), token)
	if err != nil {
		return err
	}
	if last && cfg.Stored > 0 {
		if err := s.listed(ctx, result, w); err != nil {
			return err
		}
	}
	before := s.written
	if s.written, err = s.halt(); err != nil {
		return err
	}
	w.writes = s.written - before - int64(others)
	result.add(kind, w)
	return nil
}
