package server

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"muster/internal/wire"
	"muster/server/files"
)

// Where the token is looked for if no flag says.
var defaultTokenFiles = []string{"/etc/provisioning.jwt", "/etc/choria/provisioning.jwt"}

// Default places of the files that the agent keeps.
const (
	DefaultConfFile = "/etc/muster/server.conf"
	DefaultSSLDir   = "/etc/muster/ssl"
)

// Config configures [New]. The zero value is an agent with the default paths.
type Config struct {
	// TokenFile is the provisioning token. Optional; defaults to the first that
	// exists of /etc/provisioning.jwt and /etc/choria/provisioning.jwt. It is read
	// again for each attempt.
	TokenFile string

	// ConfFile is server.conf, which provisioning makes a symbolic link into
	// SSLDir. Optional; defaults to [DefaultConfFile].
	ConfFile string

	// SSLDir is the directory of the certificate and all that belongs to it. It
	// may hold other files, which the agent leaves alone. Optional; defaults to
	// [DefaultSSLDir].
	SSLDir string

	// Identity is the node's name, in place of the one in server.conf and of
	// the machine's own. Optional.
	Identity string

	// FactsFile is a JSON object that is sent when enrolling, in place of the
	// file that token or server.conf name. Optional.
	FactsFile string

	// Resolvers are the name servers to ask for SRV records, as address and
	// port. Optional; defaults to those of /etc/resolv.conf.
	Resolvers []string

	// BackoffMin and BackoffMax bound the wait between attempts, which doubles
	// from one to the other. Optional; default 1s and 1m.
	BackoffMin, BackoffMax time.Duration

	// RequestTimeout is how long an answer is waited for. Optional; default
	// 15s: after the loss of a cluster's leader its store answers again within
	// 12 s (measured).
	RequestTimeout time.Duration

	// AliveInterval is used in place of the one in server.conf. Optional.
	AliveInterval time.Duration

	// WatchInterval is how often files are looked at whose change is worth
	// another attempt, or changes the mode. Optional; default 2s.
	WatchInterval time.Duration

	// RefusedLimit is for how long brokers may refuse this node's certificate, or
	// a new configuration's brokers be out of reach, before the node enrolls again
	// where it is allowed to; and for how long it tries to reprovision without an
	// answer before it goes back to the fleet. Optional; default 10m.
	RefusedLimit time.Duration

	// Version is the agent's version, told to provisioners and in events.
	// Optional; default "unknown".
	Version string

	// Log receives a line per change. Optional; discards by default. Level, if
	// not nil, is set to the log_level of server.conf.
	Log   *slog.Logger
	Level *slog.LevelVar

	// Observe is called by Run's goroutine for each [Event], and must not
	// block for long. Optional.
	Observe func(Event)

	// Now is the clock. Optional; defaults to [time.Now].
	Now func() time.Time

	hooks hooks
}

// hooks are what tests put in the place of the system.
type hooks struct {
	steps        func(name string)      // called after each step on disk
	sync         func(dir string) error // makes the names in a directory durable
	random       func() float64         // in [0,1), by which waits are spread
	registration time.Duration          // in place of the interval in server.conf
	ping, late   time.Duration          // see link.Config
	resolver     *net.Resolver          // of brokers' names
	machine      func() (string, error) // host name
}

// complete checks cfg and fills in defaults.
func (cfg Config) complete() (Config, error) {
	if cfg.Identity != "" {
		if _, err := wire.ParseIdentity(cfg.Identity); err != nil {
			return Config{}, fmt.Errorf("server: identity: %w", err)
		}
	}
	cfg.BackoffMin = cmp.Or(cfg.BackoffMin, time.Second)
	cfg.BackoffMax = cmp.Or(cfg.BackoffMax, max(time.Minute, cfg.BackoffMin))
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, 15*time.Second)
	cfg.WatchInterval = cmp.Or(cfg.WatchInterval, 2*time.Second)
	cfg.RefusedLimit = cmp.Or(cfg.RefusedLimit, 10*time.Minute)
	cfg.ConfFile = cmp.Or(cfg.ConfFile, DefaultConfFile)
	cfg.SSLDir = cmp.Or(cfg.SSLDir, DefaultSSLDir)
	cfg.Version = cmp.Or(cfg.Version, "unknown")
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.hooks.random == nil {
		cfg.hooks.random = rand.Float64
	}
	if cfg.hooks.sync == nil {
		cfg.hooks.sync = files.SyncDir
	}
	if cfg.hooks.steps == nil {
		cfg.hooks.steps = func(string) {}
	}
	if cfg.hooks.machine == nil {
		cfg.hooks.machine = os.Hostname
	}
	return cfg, nil
}
