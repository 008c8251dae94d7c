package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"muster/internal/inputfile"
	"muster/internal/span"
	"muster/jwt"
	"muster/provisioner/choria"
)

// Run measures and returns the result. It removes its files and processes, also if ctx ends. An error means that it
// could not measure; failed nodes are in the result.
func Run(ctx context.Context, cfg Config) (result *Result, err error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("muster bench reads CPU and memory of processes from Linux's /proc: run it on Linux")
	}
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	result = newResult(&cfg)
	if cfg.Token.File != "" || cfg.Puppet.URL != "" {
		return result, runElsewhere(ctx, &cfg, result)
	}
	s, err := install(&cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	if cfg.Stored > 0 {
		if err := s.fill(ctx, &cfg); err != nil {
			return nil, err
		}
	}
	for i, kind := range cfg.Waves {
		if err := s.runWave(ctx, &cfg, kind, i == len(cfg.Waves)-1, result); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// runElsewhere runs a wave at the first broker that the token names, or at a Puppet authority.
func runElsewhere(ctx context.Context, cfg *Config, result *Result) error {
	s, kind := &serving{puppet: cfg.Puppet.URL, login: cfg.Puppet.Login}, WaveEnroll
	if cfg.Token.File != "" {
		kind = WaveApplied
		text, err := inputfile.ReadLine(cfg.Token.File, inputfile.Typed, inputfile.MaxBytes, "a token")
		if err != nil {
			return err
		}
		claims, err := jwt.Peek(text)
		if err != nil {
			return fmt.Errorf("%s: %w", cfg.Token.File, err)
		}
		if len(claims.URLs()) == 0 {
			return fmt.Errorf("%s: the token names no brokers", cfg.Token.File)
		}
		if cfg.Choria = choria.V1; claims.ProtocolV2 {
			cfg.Choria = choria.V2
		}
		s.url, s.given = "nats://"+strings.TrimPrefix(claims.URLs()[0], "nats://"), text
	}
	return s.runOne(ctx, cfg, kind, false, result)
}

// runWave runs one wave with new serving processes. During the last wave the idle nodes are connected.
func (s *serving) runWave(ctx context.Context, cfg *Config, kind Wave, last bool, result *Result) (err error) {
	ctx, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	defer func() {
		cause := context.Cause(ctx)
		if stopped := s.halt(); err == nil {
			err = stopped
		} else if cause != nil {
			err = cause
		}
	}()
	if err := s.start(ctx, cfg, ended); err != nil {
		return err
	}
	if cfg.Puppet.Enabled {
		if err := s.addOperator(cfg); err != nil {
			return err
		}
	}
	u, err := usageOf(s.pids)
	if err != nil {
		return err
	}
	result.StartMS, result.StartMemory = rounded(s.opened.Seconds()*1000, 10), u.memory
	if cfg.Services {
		return s.services(ctx, cfg, result)
	}
	if last && cfg.Idle > 0 {
		idle, err := s.idle(ctx, cfg, result)
		if err != nil {
			return err
		}
		defer idle.closeLinks()
	}
	return s.runOne(ctx, cfg, kind, last && cfg.Stored > 0, result)
}

// runOne runs a wave with the serving processes that run. If listed, it waits until all nodes are listed.
func (s *serving) runOne(ctx context.Context, cfg *Config, kind Wave, listed bool, result *Result) error {
	f, err := s.wave(ctx, cfg, kind, result)
	if err != nil {
		return err
	}
	if listed {
		if err := s.waitListed(ctx, f); err != nil {
			return err
		}
	}
	result.add(kind, f)
	if cfg.Puppet.Enabled {
		return s.measurePuppet(ctx, f, result)
	}
	return nil
}

// wave runs a wave. Its failures are added to result.
func (s *serving) wave(ctx context.Context, cfg *Config, kind Wave, result *Result) (*fleet, error) {
	f, err := s.newFleet(ctx, cfg, kind)
	if err != nil {
		return nil, err
	}
	f.count = &counts{failures: &result.failures}
	if err := s.measure(ctx, f); err != nil {
		return nil, err
	}
	return f, f.verify(ctx)
}

func (s *serving) measure(ctx context.Context, f *fleet) (err error) {
	runtime.GC() // each wave starts with a clean heap
	if f.before, err = usageOf(s.pids); err != nil {
		return err
	}
	f.start, f.cpu = time.Now(), -ownCPU()
	err = f.playAll(ctx, f.start)
	f.cpu += ownCPU()
	slices.Sort(f.count.latencies)
	after, uerr := usageOf(s.pids)
	f.after = after
	return errors.Join(err, uerr)
}

// settling is the time until an idle provisioner has returned its memory: package daemon detects idleness within 10 s,
// and the Go runtime returns memory slowly.
const settling = 30 * time.Second

// idle connects nodes to the fleet, and measures the serving processes.
func (s *serving) idle(ctx context.Context, cfg *Config, result *Result) (*fleet, error) {
	f, err := s.members(ctx, cfg, cfg.Idle)
	if err != nil {
		return nil, err
	}
	if !span.Sleep(ctx, settling) {
		return nil, ctx.Err()
	}
	u, err := usageOf(s.pids)
	result.Idle, result.IdleMemory = cfg.Idle, u.memory
	return f, err
}
