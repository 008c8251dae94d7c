package demo

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/daemon"
	"muster/internal/wire"
	"muster/provisioner"
)

// MinStay is the least of a fleet that stays: one machine of each part, and some
// that are just there.
const MinStay = 20

// startAtOnce is how many members are on their way at a time; chosen, as many as
// keep two cores busy without one waiting long for another.
const startAtOnce = 64

// StayConfig configures [Stay].
type StayConfig struct {
	Nodes   int    // machines, [MinStay] to [MaxNodes]
	Dir     string // where everything goes; missing or empty
	Version string

	// Progress is as in [Config]. Optional.
	Progress func(label string, nodes int) (one, end func())

	// Ready is called once everything is as it says. Optional.
	Ready func(*Place)

	// Timeout bounds the enrollment of the members. Optional; as in [Config].
	Timeout time.Duration
}

// A Place is an installation that stays, for whoever wants to operate it: also
// its form with --json.
type Place struct {
	Dir       string     `json:"dir"`
	Config    string     `json:"config"` // of the provisioner, for --config
	URL       string     `json:"url"`    // of API and console
	Operators []Operator `json:"operators"`
	Parts     []Part     `json:"parts"`
}

// An Operator is one that can be used at once.
type Operator struct {
	Name       string                   `json:"name"`
	Role       provisioner.OperatorRole `json:"role"`
	Credential string                   `json:"credential"` // file for --credential: key, certificate and roots
	TokenFile  string                   `json:"token_file"` // file for --token-file and the console; signed again before it ends
}

// A Part is a part of the fleet, and what becomes of it.
type Part struct {
	Name    string `json:"name"`
	What    string `json:"what"`
	Nodes   int    `json:"nodes"`
	Example string `json:"example"` // name of one of them
}

// Stay makes an installation with a fleet of real agents in which something has
// happened, and keeps it until ctx is done: it returns nil then, after all of it
// has stopped. Before, an error says what could not be made. The files are left in
// cfg.Dir.
func Stay(ctx context.Context, cfg StayConfig) error {
	if cfg.Nodes < MinStay || cfg.Nodes > MaxNodes {
		return fmt.Errorf("%d nodes, want %d to %d", cfg.Nodes, MinStay, MaxNodes)
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string, int) (one, end func()) { return func() {}, func() {} }
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute+time.Duration(cfg.Nodes)*50*time.Millisecond)
	s := &stay{cfg: cfg, all: machines(cfg.Nodes), stops: make(map[string]func())}
	if err := s.setUp(); err != nil { //nolint:contextcheck // bounded by the time-out of the policy's tests
		return errors.Join(err, s.logs.close())
	}
	g, inner := errgroup.WithContext(ctx)
	// Who serves the fleet ends after it, so that it ends in peace.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ready := make(chan struct{})
	g.Go(func() error { return s.pager.run(serving) })
	g.Go(func() error { return s.daemon.Run(serving, func() { close(ready) }) })
	g.Go(func() error {
		defer stop()
		select {
		case <-ready:
			return s.run(inner)
		case <-inner.Done():
			return nil // the other says why
		}
	})
	err := g.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // that is its end
	}
	return errors.Join(err, s.logs.close())
}

// stay is one installation with its fleet.
type stay struct {
	cfg    StayConfig
	all    []machine
	daemon *daemon.Daemon
	key    crypto.Signer // of tokens
	pager  *receiver
	logs   logs
	agents *slog.Logger

	mu    sync.Mutex
	stops map[string]func() // guarded by mu: switches a machine off, by its directory
}

// setUp makes the installation as an operator would.
func (s *stay) setUp() error {
	home := filepath.Join(s.cfg.Dir, "provisioner")
	if err := emptyDir(s.cfg.Dir); err != nil {
		return err
	}
	err := daemon.Init(home, daemon.Setup{
		Name: "provisioner.demo.muster", TrustDomain: "demo.muster", Site: site, Listen: "127.0.0.1:0", BrokerNames: []string{"localhost"},
	})
	if err != nil {
		return err
	}
	if s.pager, err = newReceiver(home, filepath.Join(s.cfg.Dir, "webhook.jsonl")); err != nil {
		return err
	}
	if err := s.writeSetup(home); err != nil {
		return err
	}
	if s.key, err = signerKey(home); err != nil {
		return err
	}
	for _, dir := range []string{"facts", "tokens", "operators"} {
		if err := os.Mkdir(filepath.Join(s.cfg.Dir, dir), 0o700); err != nil {
			return err
		}
	}
	log, err := s.logs.open(filepath.Join(s.cfg.Dir, "provisioner.log"))
	if err != nil {
		return err
	}
	if s.agents, err = s.logs.open(filepath.Join(s.cfg.Dir, "agents.log")); err != nil {
		return err
	}
	s.daemon, err = daemon.Load(s.config(), daemon.Options{Version: s.cfg.Version, Log: log})
	return err
}

func (s *stay) config() string { return filepath.Join(s.cfg.Dir, "provisioner", "provisioner.yaml") }

// run has the fleet come up, lets happen to it what happens to fleets, and keeps
// it until ctx is done.
func (s *stay) run(ctx context.Context) error {
	if err := s.signTokens(); err != nil {
		return err
	}
	operators, err := s.addOperators(ctx)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.keepSigned(ctx, operators) })
	g.Go(func() error {
		if err := s.muster(ctx, g); err != nil {
			return err
		}
		if s.cfg.Ready != nil {
			s.cfg.Ready(&Place{Dir: s.cfg.Dir, Config: s.config(), URL: s.daemon.APIURL(), Operators: operatorsOf(operators), Parts: s.parts()})
		}
		return s.rogue(ctx)
	})
	return g.Wait()
}

// by is who did what has happened to the fleet, and why.
func by(why string) provisioner.Cause { return provisioner.Cause{By: "demo", Why: why} }

// muster starts the fleet in g, and returns when all members are in and what is to
// happen to some of them has.
func (s *stay) muster(ctx context.Context, g *errgroup.Group) error {
	if err := s.enroll(ctx, g); err != nil {
		return err
	}
	p := s.daemon.Operator()
	for i := range s.all {
		m := &s.all[i]
		var err error
		switch m.part {
		case partRevoked:
			err = p.RevokeNode(ctx, wire.Identity(m.name), by("stolen from the rack"))
		case partRetired:
			s.switchOff(s.dir(m))
			err = p.RetireNode(ctx, wire.Identity(m.name), by("sold"))
		case partCloned:
			err = s.clone(ctx, g, m)
		case partHalf:
			err = s.half(ctx, m)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// what says what becomes of a part of the fleet, in the order in which it is
// listed.
var what = []struct{ part, text string }{
	{partMembers, "provisioned and connected"},
	{partWaiting, "wait for your approval: their names are not on the allow-list"},
	{partDenied, "denied by the policy: in quarantine"},
	{partDeferred, "put off by the policy: the burn-in test still runs"},
	{partLimited, "share a token that is good for two fewer of them"},
	{partExpired, "come with a token of last week"},
	{partForeign, "come with a token of another site"},
	{partHalf, "got a certificate and never confirmed it"},
	{partRevoked, "thrown out, and keep trying"},
	{partRetired, "switched off and retired: the name is free"},
	{partCloned, "copied with its disk: two machines use its key, noticed in two minutes"},
	{partRogue, "has stolen a token and signs others itself: tries every few seconds"},
}

// parts lists the parts of the fleet.
func (s *stay) parts() []Part {
	var parts []Part
	for _, w := range what {
		p := Part{Name: w.part, What: w.text}
		for i := range s.all {
			if s.all[i].part != w.part {
				continue
			}
			if p.Nodes++; p.Nodes == 1 {
				p.Example = s.all[i].name
			}
		}
		if w.part == partRogue {
			p.Nodes, p.Example = 1, rogueAddress
		}
		parts = append(parts, p)
	}
	return parts
}
