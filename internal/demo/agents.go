package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/simnode"
	"muster/server"
)

// cloneAlive is how often a machine that was copied says that it is alive: what
// gives the two away is that they speak in turn, for more than a minute.
const cloneAlive = 20 * time.Second

// enroll starts all machines in g that have an agent, and returns when the members
// are connected to the fleet. The others have asked by then, or do so soon.
func (s *stay) enroll(ctx context.Context, g *errgroup.Group) error {
	limit, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	members := 0
	for i := range s.all {
		if s.all[i].member() {
			members++
		}
	}
	one, end := s.cfg.Progress("enrolling", members)
	defer end()
	room := make(chan struct{}, startAtOnce) // has a place for each member that is on its way
	enter := func() error {
		select {
		case room <- struct{}{}:
			return nil
		case <-limit.Done():
			return s.late(ctx)
		}
	}
	for i := range s.all {
		m := &s.all[i]
		if err := s.writeFacts(m); err != nil {
			return err
		}
		switch {
		case m.part == partHalf: // has no agent
		case m.member():
			if err := enter(); err != nil {
				return err
			}
			s.start(ctx, g, m, s.dir(m), sync.OnceFunc(func() { <-room; one() }))
		default:
			s.start(ctx, g, m, s.dir(m), func() {})
		}
	}
	for range cap(room) { // all places are free once everybody is in
		if err := enter(); err != nil {
			return err
		}
	}
	return nil
}

// late is the error of members that did not get in.
func (s *stay) late(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("not all of the fleet is in after %v: see %s", s.cfg.Timeout, filepath.Join(s.cfg.Dir, "agents.log"))
}

// member reports whether the machine gets in when it asks.
func (m *machine) member() bool {
	switch m.part {
	case partMembers, partRevoked, partRetired, partCloned:
		return true
	}
	return false
}

// start runs an agent with its files in dir until ctx is done or the machine is
// switched off, by an operator's command or by [stay.switchOff]. One is called each
// time that it has connected to the fleet.
func (s *stay) start(ctx context.Context, g *errgroup.Group, m *machine, dir string, one func()) {
	ctx, off := context.WithCancel(ctx)
	s.mu.Lock()
	s.stops[dir] = off
	s.mu.Unlock()
	cfg := server.Config{
		TokenFile: s.tokenFile(m.token), SSLDir: dir, ConfFile: filepath.Join(dir, "server.conf"), FactsFile: s.factsFile(m),
		Identity: m.name, Version: s.cfg.Version, Log: s.agents.With("agent", m.name),
		Observe: func(e server.Event) {
			if e.Kind == server.EventConnected {
				one()
			}
		},
	}
	if m.part == partCloned {
		cfg.AliveInterval = cloneAlive
	}
	g.Go(func() error {
		defer off()
		for {
			a, err := server.New(cfg)
			if err == nil {
				err = a.Run(ctx)
			}
			switch {
			case errors.Is(err, server.ErrRestart):
				continue // as whoever looks after the process does
			case err != nil:
				s.agents.ErrorContext(ctx, "machine is off: its agent needs a person", "agent", m.name, "err", err)
			}
			return nil // the machine is off
		}
	})
}

// switchOff stops the agent whose files are in dir, as if somebody pulled the plug.
func (s *stay) switchOff(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops[dir]()
}

// clone starts another machine from a copy of this one's disk.
func (s *stay) clone(ctx context.Context, g *errgroup.Group, m *machine) error {
	dir := s.dir(m) + "-copy"
	err := os.CopyFS(dir, os.DirFS(s.dir(m)))
	for errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
		// A set that is new loses files: what was to be confirmed, and that it is untried.
		if err = os.RemoveAll(dir); err == nil {
			err = os.CopyFS(dir, os.DirFS(s.dir(m)))
		}
	}
	if err != nil {
		return err
	}
	for _, name := range []string{"private.pem", "server.conf"} { // which the copy made readable
		if err := os.Chmod(filepath.Join(dir, name), 0o600); err != nil {
			return err
		}
	}
	s.start(ctx, g, m, dir, func() {})
	return nil
}

// half lets a machine get its certificate and vanish.
func (s *stay) half(ctx context.Context, m *machine) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	token, err := os.ReadFile(s.tokenFile(m.token))
	if err != nil {
		return err
	}
	n, err := simnode.New(m.name, string(token[:len(token)-1]))
	if err != nil {
		return err
	}
	if n.Facts, err = m.factsJSON(); err != nil {
		return err
	}
	nc, err := simnode.Dial(s.url(), n.Token)
	if err != nil {
		return err
	}
	defer nc.Close()
	reply, err := simnode.Enroll(ctx, nc, n.Request())
	if err == nil && reply.Refusal != nil {
		err = fmt.Errorf("refused: %s", reply.Refusal.Code)
	}
	return err
}

// factsFile is where the machine's facts are.
func (s *stay) factsFile(m *machine) string {
	return filepath.Join(s.cfg.Dir, "facts", m.name+".json")
}

func (s *stay) writeFacts(m *machine) error {
	b, err := m.factsJSON()
	if err != nil {
		return err
	}
	return os.WriteFile(s.factsFile(m), b, 0o644)
}
