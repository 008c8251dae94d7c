package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"muster/internal/disk"
	"muster/internal/inputfile"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/certificates"
	"muster/server/link"
	"muster/server/orders"
)

// ErrLocked means that another agent uses the same directory: both would enroll, with different keys.
var ErrLocked = errors.New("another agent is running")

// ErrRestart means that a command asks for a restart: the service manager has to start a new agent.
var ErrRestart = errors.New("restart ordered: the service manager has to start the agent again")

// errStopped means that a policy or a command asked the agent to stop.
var errStopped = errors.New("asked to stop")

// A Server is the agent of one node. Make one with [New].
type Server struct {
	*agent
	level slog.Level
}

type agent struct {
	cfg      Config
	boot     string // random at each start, so that the fleet sees restarts
	sets     *sets
	clock    *clock
	orders   *orders.Orders
	dialer   *link.Dialer
	problems *problemLog
	state    *state
	services *certificates.Manager

	startupSent         bool
	announceProvisioned bool
	attemptStart        time.Time
	noRenewalBefore     time.Time

	faults   faults
	factsDue bool // the last request did not have the machine's facts, and they can be sent now
}

// New returns an agent that is not yet running. The error lists every mistake in cfg. New creates the directories of
// the agent's files and nothing else.
func New(cfg Config) (*Server, error) {
	a, err := newAgent(cfg)
	if err != nil {
		return nil, err
	}
	if err := a.sets.checkSafe(); err != nil {
		return nil, fmt.Errorf("server: %w", advice.InText(err))
	}
	if err := a.sets.dir.Make(); err != nil {
		return nil, fmt.Errorf("server: %w", advice.InText(link.Explain(err, link.Peer{})))
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
		cfg:      cfg,
		boot:     wire.NewID(),
		sets:     sets,
		clock:    loadClock(sets.own(clockFile), cfg.Now),
		orders:   orders.New(sets.own(ordersFile), cfg.hooks.sync, cfg.hooks.steps),
		problems: &problemLog{log: cfg.Log, logged: make(map[string]loggedProblem)},
		dialer: link.New(link.Config{
			Resolver: cfg.Resolver,
			Timeout:  cfg.RequestTimeout,
			Ping:     cfg.hooks.ping,
			Late:     cfg.hooks.late,
			Log:      cfg.Log,
			Step:     cfg.hooks.steps,
		}),
	}
	a.state = &state{cfg: cfg, sets: sets, clock: a.clock, orders: a.orders}
	a.services = a.newServices()
	return a, nil
}

// Run returns nil once ctx is done, or if a policy or a command asks the agent to stop. After [ErrRestart] the caller
// has to run a new agent. It returns an error at the start if another agent runs ([ErrLocked]) or if the files allow no
// mode ([ErrMode]). Later it logs problems and waits for their repair.
func (s *Server) Run(ctx context.Context) error {
	release, err := lockFile(s.sets.own(lockName))
	if err != nil {
		return fmt.Errorf("server: %w", advice.InText(link.Explain(err, link.Peer{})))
	}
	defer release()
	stop := context.AfterFunc(ctx, func() {
		s.cfg.Log.InfoContext(ctx, "agent stopping", "reason", context.Cause(ctx).Error())
	})
	defer stop()
	if err := s.sets.dir.Clean(); err != nil {
		// Normal mode works without this, and the next switch tries again.
		s.cfg.Log.ErrorContext(ctx, "old sets of files not removed", "err", err)
	}
	if err := s.orders.Load(); err != nil {
		s.cfg.Log.WarnContext(ctx, "accepted commands could not be read and are dropped", "err", err)
	}
	beside, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.runServices(beside)
	}()
	err = s.supervise(ctx)
	end()
	<-ended
	switch {
	case errors.Is(err, ErrRestart) && ctx.Err() == nil:
		s.cfg.Log.InfoContext(ctx, "agent stopped for a restart")
		return ErrRestart
	case errors.Is(err, errStopped), ctx.Err() != nil:
		s.cfg.Log.InfoContext(ctx, "agent stopped")
		return nil
	case err != nil:
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

func (s *Server) supervise(ctx context.Context) error {
	wait, again := s.newBackoff(), s.newBackoff()
	mode, enrolled := Mode(0), false // enrolled: by the previous mode
	for ctx.Err() == nil {
		v, err := s.state.inspect()
		switch {
		case err != nil && mode == 0:
			return advice.InText(err)
		case err != nil:
			pause := wait.Next()
			s.problems.problem(ctx, slog.LevelError, "agent cannot choose a mode", err, "retry_in", rounded(pause))
			s.waitFor(ctx, pause, s.state.watched(nil))
			continue
		}
		wait.Reset()
		s.setLevel(v)
		if v.conf == nil || v.conf.Faults == nil {
			s.problems.solved(msgSettings)
		} else {
			s.problems.problem(ctx, slog.LevelWarn, msgSettings,
				advice.New(link.OneLine(v.conf.Faults), remedySettings), "node", v.identity, "path", s.sets.conf)
		}
		if err := v.unsafe(&s.cfg, s.sets.conf); err != nil {
			s.problems.problem(ctx, slog.LevelWarn, msgUnsafe, link.OneLine(err))
		}
		if v.mode != mode {
			mode = v.mode
			s.enter(ctx, v)
		}
		if mode == ModeNormal {
			again.Reset()
			enrolled = false
			err = s.serve(ctx, v)
		} else {
			if enrolled {
				// checkReply refuses configurations that lead here. If one does, the loop must not use up certificates.
				pause := again.Next()
				s.problems.problem(ctx, slog.LevelError, "node has to enroll again right after it enrolled",
					errors.New(v.reason), "node", v.identity, "retry_in", rounded(pause))
				s.waitFor(ctx, pause, v.watched)
			}
			enrolled, err = (&enroller{agent: s.agent}).run(ctx, v.identity)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (s *Server) enter(ctx context.Context, v *inspection) {
	level := slog.LevelInfo
	if v.mode == ModeProvisioning && errors.Is(v.Conf, ErrUnusable) {
		level = slog.LevelWarn // provisioning replaces an existing configuration
	}
	s.cfg.Log.Log(ctx, level, "mode entered", "node", v.identity, "mode", v.mode.String(), "reason", v.reason)
	s.observe(Event{Kind: EventMode, Mode: v.mode})
}

func (s *Server) setLevel(v *inspection) {
	if s.cfg.Level == nil || v.conf == nil {
		return
	}
	level := s.level
	if v.conf.LogLevel != nil {
		level = *v.conf.LogLevel
	}
	s.cfg.Level.Set(level)
}

func (a *agent) newBackoff() *link.Backoff {
	return &link.Backoff{Min: a.cfg.BackoffMin, Max: a.cfg.BackoffMax, Random: a.cfg.hooks.random}
}

func (a *agent) elapsed() time.Duration {
	if a.attemptStart.IsZero() {
		return 0
	}
	return a.cfg.Now().Sub(a.attemptStart)
}

// waitFor waits for d, until ctx is done, or until one of the files changes.
func (a *agent) waitFor(ctx context.Context, d time.Duration, files ...watched) {
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
			a.cfg.Alive()
			if slices.ContainsFunc(files, watched.changed) {
				return
			}
		}
	}
}

type watched struct {
	paths []string
	seen  string
}

func watch(paths ...string) watched { return watched{paths, fingerprint(paths)} }

func (w watched) changed() bool { return fingerprint(w.paths) != w.seen }

// fingerprint identifies a version of a file. It includes the inode: programs that replace a file often keep its time,
// and a signer's tokens have the same length.
func fingerprint(paths []string) string {
	var b strings.Builder
	for _, path := range paths {
		if fi, err := os.Stat(path); err == nil {
			fmt.Fprint(&b, fi.Size(), fi.ModTime().UnixNano(), fi.Mode(), inode(fi))
		}
		b.WriteByte('|')
	}
	return b.String()
}

// lockFile creates path and takes an exclusive lock on it. The kernel releases the lock when the process ends. The
// file is not removed: two processes could then lock two files of the same name.
func lockFile(path string) (release func(), err error) {
	f, err := inputfile.OpenState(path, 0)
	if err != nil {
		// A node with a certificate continues if its disk becomes read-only.
		reads, rerr := inputfile.Open(path, inputfile.Configured)
		if rerr != nil {
			return nil, err
		}
		f = reads
	}
	locked, err := disk.TryLock(f)
	switch {
	case err != nil:
		err = fmt.Errorf("lock %s: %w", path, err)
	case !locked:
		err = fmt.Errorf("%w: %s is locked: stop the other agent, or use another --ssl-dir and --config",
			ErrLocked, path)
	default:
		return func() {
			disk.Unlock(f)
			_ = f.Close() // nothing was written to it
		}, nil
	}
	return nil, errors.Join(err, f.Close())
}

func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}
