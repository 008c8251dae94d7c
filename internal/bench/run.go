package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/inputfile"
	"muster/internal/span"
	"muster/internal/wire"
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
	if cfg.Token.File != "" {
		return result, runWithToken(ctx, &cfg, result)
	}
	if cfg.Puppet.URL != "" {
		return result, runWithURL(ctx, &cfg, result)
	}
	s, err := install(&cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
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

// runWithToken runs a wave at the first broker that the token names.
func runWithToken(ctx context.Context, cfg *Config, result *Result) error {
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
	s := &serving{url: "nats://" + strings.TrimPrefix(claims.URLs()[0], "nats://"), given: text}
	w, err := s.wave(ctx, cfg, WaveApplied)
	if err == nil {
		result.add(WaveApplied, w)
	}
	return err
}

// runWave runs one wave with new serving processes. During the last wave the idle nodes are connected.
func (s *serving) runWave(ctx context.Context, cfg *Config, kind Wave, last bool, result *Result) error {
	if err := s.start(ctx, cfg); err != nil {
		return err
	}
	defer func() { _ = s.halt() }()
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
		return errors.Join(s.services(ctx, cfg, result), s.halt())
	}
	if last && cfg.Idle > 0 {
		end, err := s.idle(ctx, cfg, result)
		if err != nil {
			return err
		}
		defer end()
	}
	w, err := s.wave(ctx, cfg, kind)
	if err != nil {
		return err
	}
	if last && cfg.Stored > 0 {
		if err := s.waitListed(ctx, w); err != nil {
			return err
		}
	}
	result.add(kind, w)
	if cfg.Puppet.Enabled {
		if err := s.measurePuppet(ctx, w, result); err != nil {
			return err
		}
	}
	return s.halt()
}

type wave struct {
	*fleet
	start  time.Time
	before usage
	after  usage
	cpu    int64
}

func (s *serving) wave(ctx context.Context, cfg *Config, kind Wave) (*wave, error) {
	ctx, cancel := s.whileServed(ctx)
	defer cancel()
	f, err := s.newFleet(ctx, cfg, kind)
	w := &wave{fleet: f}
	if err == nil {
		err = s.measure(ctx, w)
	}
	if err == nil {
		err = f.verify(ctx)
	}
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return w, nil
}

func (s *serving) measure(ctx context.Context, w *wave) (err error) {
	runtime.GC() // each wave starts with a clean heap
	defer lowerPriority()()
	if w.before, err = usageOf(s.pids); err != nil {
		return err
	}
	w.start, w.cpu = time.Now(), -ownCPU()
	err = w.playAll(ctx, w.start)
	w.cpu += ownCPU()
	after, uerr := usageOf(s.pids)
	w.after = after
	return errors.Join(err, uerr)
}

// settling is the time until an idle provisioner has returned its memory: package daemon detects idleness within 10 s,
// and the Go runtime returns memory slowly.
const settling = 30 * time.Second

// provision provisions muster's agents.
func (s *serving) provision(ctx context.Context, cfg *Config, nodes int) (*wave, error) {
	alone := *cfg
	alone.Nodes, alone.Rate, alone.Connection, alone.Token.Uses = nodes, 0, Connection{Shared: true}, 0
	alone.Choria = 0
	w, err := s.wave(ctx, &alone, WaveApplied)
	if err == nil && w.count.provisioned < nodes {
		err = fmt.Errorf("provision nodes: %d of %d, %v", w.count.provisioned, nodes, w.count.why)
	}
	return w, err
}

// idle provisions nodes, connects them to the fleet, and measures the serving processes. end disconnects the nodes.
func (s *serving) idle(ctx context.Context, cfg *Config, result *Result) (end func(), err error) {
	w, err := s.provision(ctx, cfg, cfg.Idle)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var conns []*nats.Conn
	end = func() {
		for _, nc := range conns {
			nc.Close()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	err = each(ctx, cfg.Idle, 2*runtime.GOMAXPROCS(0), func(i int) error {
		n := w.nodes[i]
		reply, err := wire.DecodeReply(n.offer.reply)
		if err != nil {
			return err
		}
		nc, err := n.DialFleet(s.url, reply.Enrolled)
		if err != nil {
			return fmt.Errorf("%s: connect to the fleet: %w", n.Identity, err)
		}
		mu.Lock()
		conns = append(conns, nc)
		mu.Unlock()
		_, err = nc.Subscribe(wire.CommandSubject(wire.Identity(n.Identity)), func(*nats.Msg) {})
		return err
	})
	if err != nil {
		return end, err
	}
	if !span.Sleep(ctx, settling) {
		return end, ctx.Err()
	}
	u, err := usageOf(s.pids)
	result.Idle, result.IdleMemory = cfg.Idle, u.memory
	return end, err
}
