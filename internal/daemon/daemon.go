package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"muster/internal/conffile"
	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/broker"
	"muster/provisioner/natsapi"
	"muster/provisioner/store"
)

// stopTimeout bounds each step of stopping.
const stopTimeout = 30 * time.Second

// Options are what the caller brings besides the configuration. The zero value
// is good.
type Options struct {
	Version string
	Log     *slog.Logger     // nil discards
	Now     func() time.Time // nil is time.Now

	// Resolvers are DNS servers, host:port, for the names that SRV domains in
	// tokens reserve. Empty takes the system's.
	Resolvers []string

	// Emit also gets every event; it must not block. Nil for none.
	Emit func(provisioner.Event)

	// WrapStore stands between the provisioner and its store, to inject faults
	// in tests. Nil for none.
	WrapStore func(provisioner.Store) provisioner.Store
}

// A Daemon is a provisioner with its own broker. Make one with [Load] or [New]
// and start it with Run, once.
type Daemon struct {
	// Set by New, then read-only.
	cfg    Config
	opts   Options
	parts  *parts
	broker *broker.Broker

	// Set once by Run. Until then nodes of the fleet are told to come back.
	provisioner atomic.Pointer[provisioner.Provisioner]
	store       atomic.Pointer[store.Store]
}

// Load makes a Daemon from the configuration file at path. The error has a line
// for everything wrong: with the file, or else with the files that it names.
func Load(path string, opts Options) (*Daemon, error) { return LoadWith(path, opts, nil) }

// LoadWith is [Load] with a last change to the configuration, for callers that
// start a daemon of their own on some other port or quota than the file says.
func LoadWith(path string, opts Options, edit func(*Config)) (*Daemon, error) {
	form := form(DefaultConfig())
	if err := conffile.LoadYAML(path, &form); err != nil {
		return nil, err
	}
	cfg := Config(form)
	cfg.resolve(filepath.Dir(path))
	if edit != nil {
		edit(&cfg)
	}
	var errs []error
	if err := cfg.Validate(); err != nil {
		for line := range strings.Lines(err.Error()) {
			errs = append(errs, fmt.Errorf("%s: %s", path, strings.TrimSuffix(line, "\n")))
		}
		// What the values that are there lead to is worth knowing, too.
		_, err := loadParts(cfg, opts)
		return nil, errors.Join(append(errs, err)...)
	}
	return New(cfg, opts)
}

// form is a configuration of which only the form is checked while it is read:
// what its values are worth comes after.
type form Config

// Validate accepts every value.
func (*form) Validate() error { return nil }

// New makes a Daemon from a valid configuration: it reads every file that cfg
// names, compiles the policy and runs its tests, and reports everything wrong at
// once. It starts nothing and opens no connection.
func New(cfg Config, opts Options) (*Daemon, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	d := &Daemon{cfg: cfg, opts: opts}
	var err error
	if d.parts, err = loadParts(cfg, opts); err != nil {
		return nil, err
	}
	d.broker, err = broker.New(broker.Config{
		Listen: cfg.Broker.Listen, StoreDir: filepath.Join(cfg.DataDir, "broker"), MaxConnections: cfg.Broker.MaxConnections,
		Certificate: d.parts.shown, ClientCAs: d.parts.authority.Roots(),
		Gate: broker.GateConfig{
			TrustDomain: cfg.TrustDomain, VerifyToken: d.verifyToken, AdmitNode: d.admitNode, Now: opts.Now,
		},
		Refused: d.connectionRefused, Log: opts.Log,
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// BrokerURL is where the broker listens, nats://host:port; empty unless it
// runs.
func (d *Daemon) BrokerURL() string { return d.broker.URL() }

// Store returns the open store, or nil before Run has opened it.
func (d *Daemon) Store() *store.Store { return d.store.Load() }

// CAFingerprint returns what tokens pin as their `ca`.
func (d *Daemon) CAFingerprint() string { return d.parts.authority.Fingerprint() }

// RootsPEM returns the installation's root certificates.
func (d *Daemon) RootsPEM() string { return d.parts.authority.RootsPEM() }

// Run serves until ctx is done and then stops in this order: take no further
// request, finish those in hand and flush their replies, close the store, stop
// the broker. It returns nil after that, and any other error if a part could
// not start or gave up. ready, if not nil, is called once requests are being
// served.
func (d *Daemon) Run(ctx context.Context, ready func()) (err error) {
	if err := d.broker.Start(ctx); err != nil {
		return startError(err)
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, d.broker.Stop(stop))
		d.opts.Log.InfoContext(stop, "provisioner stopped")
	}()
	conn, err := d.broker.Connect("provisioner")
	if err != nil {
		return fmt.Errorf("connect to our own broker: %w", err)
	}
	defer conn.Close()
	service, err := d.assemble(ctx, conn)
	if err != nil {
		return err
	}
	// The service stops by itself when ctx is done; the rest must outlive it,
	// since requests in hand still need them.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, background := errgroup.WithContext(background)
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	d.warnOfStrangers(ctx)
	for name, run := range map[string]func(context.Context) error{
		"policy": d.parts.policy.Run, "allow-list": d.parts.allow.run,
		"broker certificate": func(ctx context.Context) error { return d.parts.certificate.run(ctx, d.broker.SetCertificate) },
	} {
		g.Go(func() error {
			if err := run(background); err != nil && background.Err() == nil {
				cancel()
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	err = service.Run(serving, func() {
		d.opts.Log.InfoContext(ctx, "provisioner is serving", "broker", d.BrokerURL(), "installation", d.Store().Installation().ID,
			"policy", d.parts.policy.Digest())
		if ready != nil {
			ready()
		}
	})
	stop()
	return errors.Join(err, g.Wait())
}

// startError adds what to do about the commonest reasons why a broker does not
// start.
func startError(err error) error {
	switch {
	case errors.Is(err, broker.ErrStoreInUse):
		return fmt.Errorf("%w: stop it, or give this provisioner a data_dir of its own", err)
	case strings.Contains(err.Error(), "address already in use"): // nats-server reports it as text
		return fmt.Errorf("%w: stop what listens there, or change broker.listen", err)
	default:
		return err
	}
}

// warnOfStrangers says so, at each start, if the policy lets in a name that was
// never seen and that no allow-list covers.
func (d *Daemon) warnOfStrangers(ctx context.Context) {
	decision, err := d.parts.policy.Decide(ctx, &policies.Input{
		Identity: "stranger.invalid", Node: policies.Node{State: string(provisioner.StateNone), Reason: string(provisioner.ReasonNew)},
		CSR: policies.CSR{CommonName: "stranger.invalid", DNSNames: []string{"stranger.invalid"}}, Time: d.opts.Now().UTC(),
	})
	if err == nil && decision.Verdict() == policies.VerdictAllow {
		d.opts.Log.WarnContext(ctx, "policy lets in names that were never seen: whoever holds a token can take any free one")
	}
}

// assemble opens the store over the connection and returns the service that
// answers requests with it.
func (d *Daemon) assemble(ctx context.Context, conn *nats.Conn) (*natsapi.Service, error) {
	s, err := store.Open(ctx, store.Config{Conn: conn, CAFingerprint: d.CAFingerprint(), Log: d.opts.Log, Now: d.opts.Now})
	if err != nil {
		return nil, err
	}
	d.store.Store(s)
	p, err := d.Provisioner(d.opts.WrapStore)
	if err != nil {
		return nil, err
	}
	service, err := natsapi.New(natsapi.Config{
		Conn: conn, Provisioner: p, Installation: s.Installation().ID, Log: d.opts.Log, Now: d.opts.Now,
	})
	if err != nil {
		return nil, err
	}
	d.provisioner.Store(p)
	return service, nil
}

// Provisioner makes one more provisioner on the open store, as another process
// would be; wrap, if not nil, stands between it and the store.
func (d *Daemon) Provisioner(wrap func(provisioner.Store) provisioner.Store) (*provisioner.Provisioner, error) {
	s := d.Store()
	if s == nil {
		return nil, errors.New("the store is not open")
	}
	var records provisioner.Store = s
	if wrap != nil {
		records = wrap(s)
	}
	emit := s.Emit
	if d.opts.Emit != nil {
		emit = func(e provisioner.Event) { s.Emit(e); d.opts.Emit(e) }
	}
	return provisioner.New(provisioner.Config{
		Tokens: d.parts.tokens, Policy: d.parts.policy, Authority: d.parts.authority, Store: records,
		Configurator: d.parts.configurator, Allow: d.parts.allow.match, Reserved: d.parts.reserved.check, Emit: emit,
		Site: d.parts.site, Version: d.opts.Version,
		Quotas: provisioner.Quotas{PerToken: d.cfg.Quotas.PerToken, PerSource: d.cfg.Quotas.PerSource},
		Log:    d.opts.Log, Now: d.opts.Now,
	})
}

// verifyToken lets the broker check tokens of connections.
func (d *Daemon) verifyToken(text string) (time.Time, error) {
	v, err := d.parts.tokens.Verify(text)
	if err != nil {
		return time.Time{}, &broker.Denied{Code: provisioner.TokenCode(err), Err: err}
	}
	return v.Expiry(), nil
}

// admitNode lets the broker ask for the certificates on record.
func (d *Daemon) admitNode(ctx context.Context, id wire.Identity, serial string) error {
	p := d.provisioner.Load()
	if p == nil {
		return &broker.Denied{Code: wire.CodeUnavailable, Err: errors.New("the store is not open yet")}
	}
	if err := p.AdmitNode(ctx, id, serial); err != nil {
		return &broker.Denied{Code: provisioner.CodeOf(err), Err: err}
	}
	return nil
}

// connectionRefused reports a connection that the broker did not admit.
func (d *Daemon) connectionRefused(_ context.Context, p broker.Presented, denied *broker.Denied) {
	e := provisioner.RefusalEvent(&provisioner.Refusal{Code: denied.Code, Err: denied.Err}, d.opts.Now().UTC(), p.Address)
	e.Type = provisioner.EventAttempt
	if s := d.Store(); s != nil {
		s.Emit(e)
	}
	if d.opts.Emit != nil {
		d.opts.Emit(e)
	}
}

// Connect returns one more connection to the account of provisioners. Close it
// before Run returns.
func (d *Daemon) Connect(name string) (*nats.Conn, error) { return d.broker.Connect(name) }

// Admits reports whether the broker admits the certificate to the fleet now.
func (d *Daemon) Admits(ctx context.Context, id wire.Identity, serial string) error {
	return d.admitNode(ctx, id, serial)
}
