package testbed

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"muster/internal/wire"
	"muster/server"
)

// An Agent is a real agent with a directory of its own.
type Agent struct {
	Identity string
	Dir      string // holds private.pem, certificate.pem, ca.pem, server.conf
	Token    string

	f    *Fleet
	edit []func(*server.Config)
	stop context.CancelFunc
	done chan error
}

// Agent starts an agent with this token; edit changes its configuration at each start. The agent runs until Stop or the
// end of the test.
func (f *Fleet) Agent(identity, token string, edit ...func(*server.Config)) *Agent {
	f.t.Helper()
	a := f.newAgent(identity, token, edit...)
	f.mu.Lock()
	f.agents = append(f.agents, a)
	f.mu.Unlock()
	a.Start()
	return a
}

func (f *Fleet) newAgent(identity, token string, edit ...func(*server.Config)) *Agent {
	f.t.Helper()
	base := f.t.TempDir()
	a := &Agent{
		Identity: identity,
		Dir:      filepath.Join(base, "node"),
		Token:    filepath.Join(base, "provisioning.jwt"),
		f:        f,
		edit:     edit,
	}
	must(f.t, os.WriteFile(a.Token, []byte(token), 0o600))
	f.t.Cleanup(func() {
		if a.stop != nil {
			a.Stop()
		}
	})
	return a
}

// Start runs the agent in its own goroutine.
func (a *Agent) Start() {
	a.f.t.Helper()
	cfg := server.Config{
		TokenFile:  a.Token,
		ConfFile:   filepath.Join(a.Dir, "server.conf"),
		SSLDir:     a.Dir,
		Identity:   a.Identity,
		Version:    "test",
		BackoffMin: 20 * time.Millisecond, BackoffMax: time.Second, Resolver: a.f.opts.Resolver,
		AliveInterval: a.f.opts.Alive,
		Log:           a.f.log.logger().With("agent", a.Identity), Now: a.f.Clock.Now,
	}
	if a.f.opts.Agent != nil {
		a.f.opts.Agent(&cfg)
	}
	for _, edit := range a.edit {
		edit(&cfg)
	}
	s, err := server.New(cfg)
	must(a.f.t, err)
	ctx, stop := context.WithCancel(context.Background())
	a.stop, a.done = stop, make(chan error, 1)
	go func() {
		err := s.Run(ctx)
		for errors.Is(err, server.ErrRestart) {
			if s, err = server.New(cfg); err == nil {
				err = s.Run(ctx)
			}
		}
		a.done <- err
	}()
}

// Stop stops the agent and waits for its end.
func (a *Agent) Stop() {
	a.f.t.Helper()
	a.stop()
	a.stop = nil
	stopped(a.f.t, "agent "+a.Identity, a.done)
}

// Provisioned reports whether the agent's certificate is on its disk and current on record.
func (a *Agent) Provisioned() bool {
	r, _, err := a.f.daemon.Store().Record(a.f.Context(), wire.Identity(a.Identity))
	if err != nil || r == nil || r.Current == nil || r.Next != nil {
		return false
	}
	leaf, err := readCertificate(filepath.Join(a.Dir, "certificate.pem"))
	return err == nil && bytes.Equal(leaf.Raw, r.Current.DER)
}

// WaitProvisioned waits until the provisioner has every agent's confirmation.
func (f *Fleet) WaitProvisioned(agents ...*Agent) {
	f.t.Helper()
	for _, a := range agents {
		f.Eventually(a.Identity+" is provisioned ("+f.Cause(a.Identity)+")", a.Provisioned)
	}
}

// Clone starts another agent from a copy of the agent's disk, like a machine made from a provisioned machine's image.
func (a *Agent) Clone() *Agent {
	f := a.f
	f.t.Helper()
	token, err := os.ReadFile(a.Token)
	must(f.t, err)
	b := f.newAgent(a.Identity, string(token))
	// The agent removes an old set soon after a switch, so a copy may miss files.
	f.Eventually("a copy of the disk", func() bool {
		err := os.CopyFS(b.Dir, os.DirFS(a.Dir))
		if errors.Is(err, fs.ErrNotExist) {
			_ = os.RemoveAll(b.Dir) // if this fails, the next copy fails too
			return false
		}
		must(f.t, err)
		return true
	})
	for _, name := range []string{"private.pem", "server.conf"} {
		must(f.t, os.Chmod(filepath.Join(b.Dir, name), 0o600))
	}
	b.Start()
	return b
}
