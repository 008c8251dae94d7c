package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/singleflight"

	"muster/internal/wire"
)

// ErrLocked means that another agent works on the same directory. Two would
// enroll with two keys and overwrite each other's.
var ErrLocked = errors.New("another agent is running")

// A Server is the agent of one node. Make one with [New]; a second one for the
// same directory cannot run.
type Server struct {
	cfg      Config // set by New, then read-only
	at       places // set by New, then read-only
	build    compiledIn
	boot     string // random per agent, so that restarts can be told apart
	exchange func(a, b string) error
	sync     func(dir string) error // makes the names in a directory durable
	level    slog.Level             // of Config.Level at first; set by New

	// Only touched by the goroutine of Run.
	lock     *lock
	seen     time.Time     // latest time known to have passed, zero for none; see passed
	seenAt   time.Time     // by the process's clock: when that was
	saved    time.Time     // what is on disk, zero for nothing
	proven   time.Time     // when the certificate in force begins, zero for none
	name     wire.Identity // of the set that was last found to be usable, empty for none; see nodeIdentity
	started  bool          // the startup event is out
	announce bool          // the provisioned event is due
	begun    time.Time     // when it began to enroll or renew; zero if it has not
	renewNot time.Time     // by the process's clock: no renewal before it; see doubtClock
	again    error         // why the certificate on disk is no good; nil: it may be
	told     time.Time     // by the process's clock: when again was set
	// By the process's clock, and zero for neither: since when no broker of the
	// configuration takes the node, and since when each attempt ends with its certificate refused. A
	// file that changes meanwhile has the node look again, and is no reason to begin anew:
	// what renews tokens may do so more often than either lasts.
	unreached, refused time.Time
	orders             orders   // as on disk
	stays              *pending // is confirmed, and could not be removed from the set in force; nil for none
	unsynced           []string // directories with names that are perhaps not on disk; see names.go

	nextRecheck deadline  // see recheck.go; zero: not chosen yet
	complained  complaint // zero for none

	// The file that the last attempt failed for, and how it was then; a change
	// of it ends a wait. Empty if it failed for something else.
	awaited, awaitedPrint string

	once    notices
	contact contact
	looks   singleflight.Group // see outside
}

// New returns an agent that is not yet running, or an error that lists what is
// wrong with cfg. It touches no file beyond creating the directories that the
// agent's files go to.
func New(cfg Config) (*Server, error) {
	cfg, build, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	at, err := newPlaces(cfg.ConfFile, cfg.SSLDir)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return newServer(cfg, build, at), nil
}

func newServer(cfg Config, build compiledIn, at places) *Server {
	s := &Server{cfg: cfg, at: at, build: build, boot: wire.NewID(), exchange: exchange, sync: syncDir}
	if cfg.exchange != nil {
		s.exchange = cfg.exchange
	}
	if cfg.sync != nil {
		s.sync = cfg.sync
	}
	if cfg.Level != nil {
		s.level = cfg.Level.Level()
	}
	return s
}

// Run works until ctx is done, and then returns nil after a shutdown event. It
// also returns nil if a policy or a command asked the agent to stop. What a
// network, a broker, a provisioner or a full disk does never ends it. After
// [ErrRestart] a new agent is to be run in its place.
//
// It returns an error at the start, if another agent runs ([ErrLocked]), or if
// the node's files allow no mode ([ErrMode]): those need a person. Once it
// works, such things are logged, and it waits for them to be mended.
//
// Run owns every goroutine of the package. One can outlive it: who looks at a file
// whose file system does not answer.
func (s *Server) Run(ctx context.Context) error {
	held, err := lockFile(s.at.lock)
	if err != nil {
		return fmt.Errorf("server: %w", mayNot(err))
	}
	defer held.release()
	s.lock = held
	said := s.sayStopping(ctx)
	s.unsynced = s.at.holders()
	s.saved = loadClock(s.at.clock)
	s.saw(s.saved)
	s.saveClock(ctx)
	defer s.saveClock(context.WithoutCancel(ctx))
	if err := s.recover(); err != nil {
		// Normal mode works all the same; enrolling tries it again.
		s.cfg.Log.ErrorContext(ctx, "leftovers not cleared away", "err", err, "remedy", remedyOf(explain(err, peer{})))
	}
	if err = s.resume(ctx); err == nil {
		err = s.supervise(ctx)
	}
	said()
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

// sayStopping logs when ctx ends. The function that it returns ends that, or
// waits until the line is out.
func (s *Server) sayStopping(ctx context.Context) (said func()) {
	done := make(chan struct{})
	say := func() {
		defer close(done)
		s.cfg.Log.InfoContext(ctx, "agent stopping", "reason", context.Cause(ctx).Error())
	}
	cancel := context.AfterFunc(ctx, say)
	return func() {
		switch {
		case !cancel():
			<-done
		case ctx.Err() != nil:
			say() // ended a moment ago: not yet said, and now not to be
		}
	}
}

// supervise runs one mode after the other.
func (s *Server) supervise(ctx context.Context) error {
	wait, again := s.newBackoff(), s.newBackoff()
	mode, enrolled := Mode(0), false // enrolled: just now
	for ctx.Err() == nil {
		files := s.fingerprints()
		view, err := s.look()
		if err == nil && view.mode == ModeProvisioning && s.lock.removed() {
			// It could make nothing in a directory that is gone, and keeps no other agent out of one that
			// was made anew; and where a service manager gives it the one it may write to, only a new process
			// gets another. Not so with a disk that is away for a moment.
			s.cfg.Log.WarnContext(ctx, "agent's files were removed, another one begins anew", "node", view.identity, "path", s.at.parent)
			return ErrRestart
		}
		if err != nil { // nothing else is left to it
			if v := s.withoutSaved(ctx, view, nil); v != nil {
				view, err = v, nil
			}
		}
		switch {
		case err != nil && mode == 0:
			return advised(err)
		case err != nil:
			pause := wait.next()
			s.once.problem(ctx, s.cfg.Log, slog.LevelError, "no mode possible", err, "retry_in", rounded(pause))
			s.pause(ctx, pause, files)
			continue
		}
		wait.reset()
		if v := view.renamed; v != nil {
			s.once.problem(ctx, s.cfg.Log, slog.LevelWarn, msgRenamed, v, "node", view.identity)
		} else {
			s.once.solved(msgRenamed)
		}
		if s.cfg.Level != nil && view.conf != nil {
			level := s.level
			if view.conf.logLevel != nil {
				level = *view.conf.logLevel
			}
			s.cfg.Level.Set(level)
		}
		if view.mode != mode {
			mode = view.mode
			level := slog.LevelInfo
			if mode == ModeProvisioning && view.damaged {
				level = slog.LevelWarn // a configuration was there, and is about to be replaced
			}
			s.cfg.Log.Log(ctx, level, "mode entered", "node", view.identity, "mode", mode.String(), "reason", view.reason)
			s.observe(Event{Kind: EventMode, Mode: mode})
		}
		if mode == ModeProvisioning && enrolled {
			// What was put in force says to enroll, which a reply that was checked does
			// not. Whatever it is, it must not cost a certificate as often as can be.
			pause := again.next()
			s.once.problem(ctx, s.cfg.Log, slog.LevelError, "enrolled, and to be enrolled again", errors.New(view.reason), "node", view.identity, "retry_in", rounded(pause))
			s.pause(ctx, pause, files)
			enrolled = false
			continue
		}
		if mode == ModeProvisioning {
			enrolled, err = s.enroll(ctx, view.identity)
		} else {
			again.reset()
			enrolled = false
			s.forgetFailure(ctx)
			err = s.serve(ctx, view)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (s *Server) newBackoff() *backoff {
	return &backoff{min: s.cfg.BackoffMin, max: s.cfg.BackoffMax, random: s.cfg.Rand}
}

// step tells tests that something is now on disk.
func (s *Server) step(name string) {
	if s.cfg.steps != nil {
		s.cfg.steps(name)
	}
}
