package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"syscall"
	"time"

	"muster/server/orders"

	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/link"
)

// ErrLocked means that another agent works on the same directory. Two would
// enroll with two keys and overwrite each other's.
var ErrLocked = errors.New("another agent is running")

// ErrRestart means that a command asks for another agent in place of this one,
// which the service manager starts.
var ErrRestart = errors.New("told to restart: the service manager starts the agent again")

// errStopped means that a policy, or a command, asked the agent to end.
var errStopped = errors.New("asked to stop")

// A Server is the agent of one node. Make one with [New]; a second one for the
// same directory cannot run.
type Server struct {
	*agent
	level slog.Level // of Config.Level at first
}

// An agent is what its modes share.
type agent struct {
	cfg     Config
	boot    string // random per agent, so that restarts can be told apart
	sets    *sets
	clock   *clock
	orders  *orders.Orders
	dialer  *link.Dialer
	notices *notices
	state   *state

	started  bool      // the startup event is out
	announce bool      // the provisioned event is due
	begun    time.Time // when it began to enroll or renew; zero if it has not
	renewNot time.Time // no renewal before it
}

// New returns an agent that is not yet running, or an error that lists what is
// wrong with cfg. It touches no file beyond creating the directories that the
// agent's files go to.
func New(cfg Config) (*Server, error) {
	a, err := newAgent(cfg)
	if err != nil {
		return nil, err
	}
	if err := a.sets.dir.Make(); err != nil {
		return nil, fmt.Errorf("server: %w", adviseWritable(err))
	}
	s := &Server{agent: a}
	if cfg.Level != nil {
		s.level = cfg.Level.Level()
	}
	return s, nil
}

func newAgent(cfg Config) (*agent, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	sets, err := newSets(cfg)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	a := &agent{
		cfg:     cfg,
		boot:    wire.NewID(),
		sets:    sets,
		clock:   loadClock(sets.own(clockFile), cfg.Now),
		orders:  orders.New(sets.own(ordersFile), cfg.hooks.sync, cfg.hooks.steps),
		notices: &notices{log: cfg.Log, told: make(map[string]notice)},
		dialer: link.New(link.Config{
			Resolvers: cfg.Resolvers,
			Resolver:  cfg.hooks.resolver,
			Timeout:   cfg.RequestTimeout,
			Ping:      cfg.hooks.ping,
			Late:      cfg.hooks.late,
			Log:       cfg.Log,
			Step:      cfg.hooks.steps,
		}),
	}
	a.state = &state{cfg: cfg, sets: sets, clock: a.clock, orders: a.orders}
	return a, nil
}

// adviseWritable says with err what to do, if it is about permissions or a disk
// that is read-only.
func adviseWritable(err error) error {
	const elsewhere = "give it a --config and an --ssl-dir in directories that "
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: run the agent as root, or "+elsewhere+"its user may write", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: have the agent write there, or "+elsewhere+"can be written and outlast a restart", err)
	}
	return err
}

// Run works until ctx is done, and then returns nil after a shutdown event. It
// also returns nil if a policy or a command asked the agent to stop. What a
// network, a broker, a provisioner or a full disk does never ends it. After
// [ErrRestart] a new agent is to be run in its place.
//
// It returns an error at the start, if another agent runs ([ErrLocked]), or if
// the node's files allow no mode ([ErrMode]): those need a person. Once it
// works, such things are logged, and it waits for them to be mended.
func (s *Server) Run(ctx context.Context) error {
	release, err := lockFile(s.sets.own(lockName))
	if err != nil {
		return fmt.Errorf("server: %w", adviseWritable(err))
	}
	defer release()
	stop := context.AfterFunc(ctx, func() {
		s.cfg.Log.InfoContext(ctx, "agent stopping", "reason", context.Cause(ctx).Error())
	})
	defer stop()
	if err := s.sets.dir.Clean(); err != nil {
		// Normal mode works all the same; the next switch tries it again.
		s.cfg.Log.ErrorContext(ctx, "leftovers not cleared away", "err", err)
	}
	if err := s.orders.Load(); err != nil {
		s.cfg.Log.WarnContext(ctx, "orders not read, and dropped", "err", err)
	}
	err = s.supervise(ctx)
	switch {
	case errors.Is(err, ErrRestart) && ctx.Err() == nil: // a signal that was taken does not come again
		s.cfg.Log.InfoContext(ctx, "agent ends, to be started again")
		return ErrRestart
	case errors.Is(err, errStopped), ctx.Err() != nil:
		s.cfg.Log.InfoContext(ctx, "agent stopped")
		return nil
	case err != nil:
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

// supervise runs one mode after the other.
func (s *Server) supervise(ctx context.Context) error {
	wait, again := s.newBackoff(), s.newBackoff()
	mode, enrolled := Mode(0), false // enrolled: just now
	for ctx.Err() == nil {
		v, err := s.state.look()
		switch {
		case err != nil && mode == 0:
			return advice.InText(err)
		case err != nil:
			pause := wait.next()
			s.notices.problem(ctx, slog.LevelError, "no mode possible", err, "retry_in", rounded(pause))
			s.pause(ctx, pause, s.state.watched(nil))
			continue
		}
		wait.reset()
		s.setLevel(v)
		if v.mode != mode {
			mode = v.mode
			s.enter(ctx, v)
		}
		if mode == ModeNormal {
			again.reset()
			enrolled = false
			err = s.serve(ctx, v)
		} else {
			if enrolled {
				// What was put in force says to enroll, which a checked reply does not.
				// Whatever it is, it must not cost a certificate each time.
				pause := again.next()
				s.notices.problem(ctx, slog.LevelError, "enrolled, and to be enrolled again", errors.New(v.reason),
					"node", v.identity, "retry_in", rounded(pause))
				s.pause(ctx, pause, v.watched)
			}
			enrolled, err = (&enroller{agent: s.agent}).run(ctx, v.identity)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// enter logs that a mode is entered.
func (s *Server) enter(ctx context.Context, v *view) {
	level := slog.LevelInfo
	if v.mode == ModeProvisioning && errors.Is(v.Conf, ErrUnusable) {
		level = slog.LevelWarn // a configuration was there, and is about to be replaced
	}
	s.cfg.Log.Log(ctx, level, "mode entered", "node", v.identity, "mode", v.mode.String(), "reason", v.reason)
	s.observe(Event{Kind: EventMode, Mode: v.mode})
}

// setLevel sets the level of the log to that in server.conf.
func (s *Server) setLevel(v *view) {
	if s.cfg.Level == nil || v.conf == nil {
		return
	}
	level := s.level
	if v.conf.logLevel != nil {
		level = *v.conf.logLevel
	}
	s.cfg.Level.Set(level)
}

func (a *agent) newBackoff() *backoff {
	return &backoff{min: a.cfg.BackoffMin, max: a.cfg.BackoffMax, random: a.cfg.hooks.random}
}

// elapsed returns the time since the agent began to enroll or renew, or 0 if it has not.
func (a *agent) elapsed() time.Duration {
	if a.begun.IsZero() {
		return 0
	}
	return a.cfg.Now().Sub(a.begun)
}

// pause waits for d, or until ctx is done, or until one of the files is not any
// more as it was when they were fingerprinted.
func (a *agent) pause(ctx context.Context, d time.Duration, files ...watched) {
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(a.cfg.WatchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-end.C:
			return
		case <-tick.C:
			if slices.ContainsFunc(files, watched.changed) {
				return
			}
		}
	}
}
