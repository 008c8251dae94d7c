package server

import (
	"bufio"
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"muster/internal/disk"
	"muster/internal/inputfile"
	"muster/internal/wire"
)

// Config configures [New]. Every field is optional.
type Config struct {
	// TokenFile holds the provisioning token. The agent reads it for each attempt. Default: the first one of
	// [DefaultTokenFiles] that exists.
	TokenFile string

	// ConfFile is server.conf. Provisioning makes it a symbolic link into SSLDir. Default: [DefaultConfFile].
	ConfFile string

	// SSLDir is the directory of key, certificate and configuration. The agent does not touch other files in it.
	// Default: [DefaultSSLDir].
	SSLDir string

	// Identity overrides the name in server.conf and the machine's host name.
	Identity string

	// FactsFile holds the facts for enrollment, one object in JSON or YAML. It overrides the files that token and
	// server.conf name.
	FactsFile string

	// Socket is the path at which commands of this machine ask the running agent; "": none. See [DefaultSocket].
	Socket string

	// Resolver finds SRV records and addresses of brokers. Default: the system's.
	Resolver *net.Resolver

	// BackoffMin and BackoffMax bound the doubling wait between attempts. Default: 1s and 1m.
	BackoffMin, BackoffMax time.Duration

	// RequestTimeout bounds the wait for a reply. Default: 15s, since the store of a cluster that lost its leader
	// answers again within 12 s (measured).
	RequestTimeout time.Duration

	// AliveInterval overrides the one in server.conf.
	AliveInterval time.Duration

	// WatchInterval is how often the agent checks whether its files changed. Default: 2s.
	WatchInterval time.Duration

	// RefusedLimit is how long brokers refuse the certificate until the node enrolls again, if it may. It is also how
	// long a new configuration's brokers are unreachable until the agent tries the token's, and when an unanswered
	// reprovisioning ends. Default: 10m.
	RefusedLimit time.Duration

	// Version is the agent's version in requests and events. Default: "unknown".
	Version string

	// Log is the log; nil: none. Level, if not nil, is set to log_level of server.conf.
	Log   *slog.Logger
	Level *slog.LevelVar

	// Observe is called for each [Event] in Run's goroutine; it must not block for long.
	Observe func(Event)

	// Alive is called at least every minute, later only with slow name servers; it must not block.
	Alive func()

	// Now is the clock. Default: [time.Now].
	Now func() time.Time

	hooks hooks
}

// hooks replace parts of the system in tests.
type hooks struct {
	steps        func(name string)
	sync         func(dir string) error
	random       func() float64
	registration time.Duration
	ping, late   time.Duration
	machine      func() (string, error)
}

func (cfg Config) complete() (Config, error) {
	if cfg.Identity != "" {
		if _, err := wire.ParseName(cfg.Identity); err != nil {
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
	if cfg.Alive == nil {
		cfg.Alive = func() {}
	}
	if cfg.hooks.random == nil {
		cfg.hooks.random = rand.Float64
	}
	if cfg.hooks.sync == nil {
		cfg.hooks.sync = disk.SyncDir
	}
	if cfg.hooks.steps == nil {
		cfg.hooks.steps = func(string) {}
	}
	if cfg.hooks.machine == nil {
		cfg.hooks.machine = os.Hostname
	}
	return cfg, nil
}

// machineIdentity returns the host name if it has a domain, else its full name in /etc/hosts, else the bare name. It
// does not use DNS: the identity must not depend on whether DNS answers. It refuses localhost, the name before a
// machine is configured.
func machineIdentity(name string) (wire.Identity, error) {
	name = wire.FoldName(name)
	if !strings.Contains(name, ".") {
		if b, err := inputfile.ReadText(hostsFile, inputfile.Configured); err == nil {
			name = qualify(name, string(b))
		}
	}
	id, err := wire.ParseIdentity(name)
	if err == nil && (name == "localhost" || strings.HasPrefix(name, "localhost.")) {
		err = fmt.Errorf("the host name is %q: the machine has no name yet", name)
	}
	if err != nil {
		return "", fmt.Errorf("host name: %w: set `identity` in server.conf or use --identity", err)
	}
	return id, nil
}

// qualify returns the first name with a domain on a line of a hosts file that has the bare name; else name.
func qualify(name, hosts string) string {
	lines := bufio.NewScanner(strings.NewReader(hosts))
	for lines.Scan() {
		line, _, _ := strings.Cut(strings.ToLower(lines.Text()), "#")
		fields := strings.Fields(line)
		if len(fields) < 2 || !slices.Contains(fields[1:], name) {
			continue
		}
		for _, f := range fields[1:] {
			if strings.HasPrefix(f, name+".") {
				return strings.TrimSuffix(f, ".")
			}
		}
	}
	return name
}
