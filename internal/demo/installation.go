package demo

import (
	"context"
	"crypto"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"muster/internal/daemon"
	"muster/internal/setup"
	"muster/internal/wire"
	"muster/jwt"
	"muster/server"
)

// policy lets the demo show denied nodes.
const policy = `# Added by the demo: a reason to deny.
package muster.enroll

deny contains "machines in quarantine stay out" if input.facts.quarantine == true
`

// An installation is a demo's provisioner, files and agents.
type installation struct {
	cfg    Config
	url    string
	daemon *daemon.Daemon
	key    crypto.Signer

	agentLog *slog.Logger
	agents   sync.WaitGroup
}

func (in *installation) home() string { return filepath.Join(in.cfg.Dir, "provisioner") }

// install makes an installation as an operator would.
func install(cfg Config, trustFirstUse bool) (*installation, error) {
	if entries, err := os.ReadDir(cfg.Dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("%s: not empty (%s, ...): give a new directory", cfg.Dir, entries[0].Name())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	listen := l.Addr().String() // if another process takes the port, the broker fails to start
	_ = l.Close()
	in := &installation{cfg: cfg, url: strings.Replace(listen, "127.0.0.1", "localhost", 1)}
	err = setup.Init(in.home(), setup.Installation{
		Name:          "provisioner.demo.muster",
		TrustDomain:   "demo.muster",
		Listen:        listen,
		BrokerNames:   []string{"localhost"},
		TrustFirstUse: trustFirstUse,
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(in.home(), "policy", "quarantine.rego"), []byte(policy), 0o644); err != nil {
		return nil, err
	}
	for _, dir := range []string{"facts", "tokens", "operators"} {
		if err := os.Mkdir(filepath.Join(cfg.Dir, dir), 0o700); err != nil {
			return nil, err
		}
	}
	text, err := os.ReadFile(filepath.Join(in.home(), "signer-key.pem"))
	if err != nil {
		return nil, err
	}
	if in.key, err = jwt.ParsePrivateKey(text, nil); err != nil {
		return nil, err
	}
	log, err := in.log("provisioner.log")
	if err != nil {
		return nil, err
	}
	if in.agentLog, err = in.log("agents.log"); err != nil {
		return nil, err
	}
	options := daemon.Options{Version: cfg.Version, Log: log}
	in.daemon, err = daemon.LoadWith(filepath.Join(in.home(), "provisioner.yaml"), options, func(c *daemon.Config) {
		c.Quotas.PerSource = 0 // all nodes have one address
		c.API.Listen, c.API.Names, c.API.Addresses = "127.0.0.1:0", []string{"localhost"}, []string{"127.0.0.1"}
	})
	return in, err
}

func (in *installation) log(name string) (*slog.Logger, error) {
	file, err := os.OpenFile(filepath.Join(in.cfg.Dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return slog.New(slog.NewTextHandler(file, nil)), nil
}

// issue writes a token that is valid for 30 days to a file. Without identities it is for all nodes.
func (in *installation) issue(name string, identities ...wire.Pattern) error {
	now := time.Now().UTC().Truncate(time.Second)
	c := jwt.Claims{
		Token:        wire.Secret(rand.Text()),
		Brokers:      in.url,
		Default:      true,
		Organization: jwt.DefaultOrganization,
		Purpose:      jwt.Purpose,
		Subject:      jwt.Purpose,
		Issuer:       "muster demo",
		JTI:          jwt.NewJTI(),
		IssuedAt:     now,
		NotBefore:    now,
		ExpiresAt:    now.Add(30 * 24 * time.Hour),
	}
	l := jwt.Limits{Identities: identities, CA: in.daemon.CAFingerprint(), Seal: in.daemon.SealKey()}
	if err := c.SetLimits(l); err != nil {
		return err
	}
	text, err := jwt.Sign(in.key, c)
	if err != nil {
		return err
	}
	return os.WriteFile(in.tokenFile(name), []byte(text+"\n"), 0o600)
}

func (in *installation) tokenFile(name string) string {
	return filepath.Join(in.cfg.Dir, "tokens", name+".jwt")
}

// A machine is a simulated machine with one agent.
type machine struct {
	name   string
	token  string // name of its file
	facts  map[string]any
	member bool // expected to enroll
}

func (in *installation) dir(name string) string { return filepath.Join(in.cfg.Dir, "nodes", name) }

// enroll starts the agents of all machines; they end with ctx. It waits until all members have joined or the time is
// up, and returns how many have joined.
func (in *installation) enroll(ctx context.Context, all []machine) (joined int) {
	one, end := in.cfg.Progress("enrolling", len(all))
	defer end()
	members, joins := 0, make(chan struct{}, len(all))
	for _, m := range all {
		if m.member {
			members++
		}
		join := sync.OnceFunc(func() { joins <- struct{}{} })
		in.agents.Go(func() {
			err := in.runAgent(ctx, m, func(e server.Event) {
				if e.Kind == server.EventConnected && m.member {
					join()
				}
			})
			if err != nil {
				in.agentLog.ErrorContext(ctx, "agent has ended", "agent", m.name, "err", err)
			}
		})
	}
	limit := time.After(in.cfg.timeout())
	for ; joined < members; joined++ {
		select {
		case <-joins:
			one()
		case <-limit:
			return joined
		case <-ctx.Done():
			return joined
		}
	}
	return joined
}

// runAgent runs an agent until ctx is done; observe gets its events.
func (in *installation) runAgent(ctx context.Context, m machine, observe func(server.Event)) error {
	facts, err := json.Marshal(m.facts)
	if err != nil {
		return err
	}
	file := filepath.Join(in.cfg.Dir, "facts", m.name+".json")
	if err := os.WriteFile(file, append(facts, '\n'), 0o644); err != nil {
		return err
	}
	for {
		a, err := server.New(server.Config{
			TokenFile: in.tokenFile(m.token),
			SSLDir:    in.dir(m.name),
			ConfFile:  filepath.Join(in.dir(m.name), "server.conf"),
			FactsFile: file,
			Identity:  m.name,
			Version:   in.cfg.Version,
			Log:       in.agentLog.With("agent", m.name),
			Observe:   observe,
		})
		if err == nil {
			err = a.Run(ctx)
		}
		if !errors.Is(err, server.ErrRestart) {
			return err
		}
	}
}
