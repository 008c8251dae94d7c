package daemon

import (
	"context"
	"crypto/tls"
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
	"muster/internal/disk"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/backup"
	"muster/provisioner/broker"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/metrics"
	"muster/provisioner/natsapi"
	"muster/provisioner/operate"
	"muster/provisioner/store"
	"muster/provisioner/webhook"
)

// errNotOpen says that Run has not come so far.
var errNotOpen = errors.New("the store is not open")

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

	// Keys finds the passphrase of encrypted keys. Its File, if set, comes
	// before keys.passphrase_file.
	Keys keyfile.Ring

	// RolloverCheck is how often the provisioner looks whether a previous
	// certificate authority is still needed. 0 is every hour.
	RolloverCheck time.Duration

	// StoreSize returns what the store in dir may take now, and what of its disk
	// it may ever take, for tests of a store that is full on a disk that is not.
	// Nil asks the file system.
	StoreSize func(dir string) (limit, capacity int64, err error)

	// MaxCRL is how many bytes a CRL may have, for tests without a million certificates.
	// Optional; default [trust.MaxCRLBytes].
	MaxCRL int

	// Compiled shares policies with other daemons that have it, for tests with many of
	// them. Nil for none.
	Compiled *policies.Cache

	// Webhooks are what tests change of every webhook: how soon things happen.
	Webhooks webhook.Config

	// Emit also gets every event; it must not block. Nil for none.
	Emit func(events.Event)

	// WrapJournal stands between the provisioner and its journal, to inject faults
	// in tests. Nil for none.
	WrapJournal func(provisioner.Journal) provisioner.Journal

	// WrapStore stands between the provisioner and its store, to inject faults
	// in tests. Nil for none.
	WrapStore func(provisioner.Store) provisioner.Store
}

// complete returns o with defaults for what is not set.
func (o Options) complete() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.RolloverCheck == 0 {
		o.RolloverCheck = time.Hour
	}
	if o.StoreSize == nil {
		o.StoreSize = storeSize
	}
	return o
}

// A Daemon is a provisioner with its own broker, or with those of others. Make one with [Load] or [New]
// and start it with Run, once.
type Daemon struct {
	// Set by New, then read-only.
	id        string // of this process, for other provisioners
	cfg       Config
	opts      Options
	parts     *parts
	broker    brokers
	embedded  *broker.Broker      // broker, if it is our own, else nil
	external  *broker.External    // broker, if it is others', else nil
	budget    *provisioner.Budget // of the gate and of every provisioner
	attempts  *events.Attempts
	rechecks  *rechecker
	alarms    *events.Alarms
	keeper    *keeper
	failed    chan error      // has room for the first failed write; see Run
	recorder  *store.Recorder // nil if inputs are not recorded
	shadow    *shadow         // nil if there is no shadow policy
	metrics   *metrics.Metrics
	webhooks  *webhook.Set
	activity  *activity
	withdrawn *withdrawal
	inHand    *atomic.Int64 // requests that are being worked on

	// shown is the certificate that brokers of others are shown; see show.
	shown atomic.Pointer[tls.Certificate]

	// asked is closed once brokers of others ask us who may connect.
	asked chan struct{}

	// Set once by Run. Until then nodes of the fleet are told to come back.
	provisioner atomic.Pointer[provisioner.Provisioner]
	orders      atomic.Pointer[operate.Orders]
	nodes       atomic.Pointer[fleet.Index]
	store       atomic.Pointer[store.Store]
	followers   atomic.Pointer[followers]
	clock       atomic.Pointer[provisioner.Clock]
	apiURL      atomic.Value // of string
	conn        atomic.Pointer[nats.Conn]
	requests    atomic.Pointer[nats.Conn] // by which machines' requests come

	// unasked is why brokers of others do not ask, nil once they do.
	unasked atomic.Pointer[error]

	eventsLost, inputsLost losses // only touched by the register

	crlUnwritten bool // only touched by writeCRLs
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
		_, err := loadParts(cfg.otherwise(), opts.complete())
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
	opts = opts.complete()
	d := &Daemon{id: wire.NewID(), cfg: cfg, opts: opts, asked: make(chan struct{}), failed: make(chan error, 1), inHand: new(atomic.Int64), attempts: events.NewAttempts(), budget: provisioner.NewBudget(cfg.Quotas.VerificationsPerSource, opts.Now)}
	var err error
	if d.parts, err = loadParts(cfg, opts); err != nil {
		return nil, err
	}
	d.alarms = events.NewAlarms(events.AlarmConfig{Name: cfg.Name, Emit: opts.Emit, Log: opts.Log, Now: opts.Now})
	if cfg.Inputs.Enabled {
		if d.recorder, err = store.NewRecorder(opts.Log); err != nil {
			return nil, err
		}
	}
	if d.parts.shadow != nil {
		d.shadow = newShadow(d.parts.shadow, d.report, opts.Log)
	}
	d.keeper = d.newKeeper()
	if d.webhooks, err = webhook.New(d.parts.webhooks, d.alarms); err != nil {
		return nil, err
	}
	d.metrics = metrics.New(opts.Version, d.state)
	d.activity = newActivity(d.metrics)
	d.withdrawn = newWithdrawal(d.ownFault, opts.Log)
	d.shown.Store(&d.parts.shown)
	if err := d.makeBroker(); err != nil {
		return nil, err
	}
	later := time.Duration(0)
	if d.external != nil {
		later = broker.AdmissionInFlight
	}
	d.rechecks = newRechecker(d.broker, later, opts.Log)
	return d, nil
}

// BrokerURL is where the broker listens, nats://host:port; empty unless it
// runs. Of brokers that are others', it is what broker.url says.
func (d *Daemon) BrokerURL() string { return d.broker.URL() }

// WebSocketURL is where the broker takes nodes by WebSocket, wss://host:port or
// ws://host:port; empty unless it runs and does, or if the broker is others'.
func (d *Daemon) WebSocketURL() string {
	if d.embedded == nil {
		return ""
	}
	return d.embedded.WebSocketURL()
}

// Store returns the open store, or nil before Run has opened it.
func (d *Daemon) Store() *store.Store { return d.store.Load() }

// CAFingerprint returns what tokens pin as their `ca`.
func (d *Daemon) CAFingerprint() string { return d.parts.authority.Fingerprint() }

// Usable reports why the certificate authority cannot issue now, or nil. A
// daemon whose authority cannot runs all the same: it takes confirmations and
// revocations, and says to every other request what ails it. The error wraps
// [ca.ErrAuthority].
func (d *Daemon) Usable() error { return d.parts.authority.Usable() }

// RootsPEM returns the installation's root certificates.
func (d *Daemon) RootsPEM() string { return d.parts.authority.RootsPEM() }

// Run serves until ctx is done and then stops in this order: take no further
// request, finish those in hand and flush their replies, close the store, stop
// the broker. It returns nil after that, and any other error if a part could
// not start or gave up. ready, if not nil, is called once requests are being
// served.
//
// If the store or the journal has failed a write, Run returns at once, with an error that wraps
// [broker.ErrStoreFailed] or [backup.ErrJournalFailed], and stops nothing: end the process. What is not
// on disk must not be served, nor written to an index.
func (d *Daemon) Run(ctx context.Context, ready func()) error {
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx, ready) }()
	select {
	case err := <-ended:
		return err
	case err := <-d.failed:
		return fmt.Errorf("%w: the provisioner ends, to be started again", err)
	}
}

// run does the work of Run.
func (d *Daemon) run(ctx context.Context, ready func()) (err error) {
	if err := d.cfg.checkMounted(); err != nil {
		return err
	}
	if d.external == nil {
		if err := halfRestored(d.cfg.StoreDir()); err != nil {
			return err
		}
		if err := disk.NeedRoom(d.cfg.StoreDir(), startRoom); err != nil {
			return err
		}
	}
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
		return err
	}
	defer conn.Close()
	d.conn.Store(conn)
	// What machines send, without a bound on how much, waits at the broker in the order in which it came, and
	// on one connection the store's acknowledgements would wait behind it.
	requests, err := d.broker.Connect("provisioner requests")
	if err != nil {
		return err
	}
	defer requests.Close()
	d.requests.Store(requests)
	stopFollowers, err := d.startFollowers(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopFollowers()) }()
	service, err := d.assemble(ctx, conn, requests)
	if err != nil {
		return err
	}
	defer d.watchStore(ctx)() // now that its streams are made, none of which counts as lost
	// The service stops by itself when ctx is done; the rest must outlive it,
	// since requests in hand still need them.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, background := errgroup.WithContext(background)
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	nodes := fleet.NewIndex(d.Store(), d.opts.Log, d.cfg.Fleet.Facts)
	d.nodes.Store(nodes)
	register := d.newRegister(ctx)
	pages, err := d.console(nodes, register)
	if err != nil {
		return err
	}
	operators, err := d.operators(nodes, register, pages)
	if err != nil {
		return err
	}
	d.warnOfStrangers(ctx)
	if err := d.Usable(); err != nil {
		d.opts.Log.ErrorContext(ctx, "no certificate is issued", "code", wire.CodeAuthorityExpired, "err", err)
	}
	tasks := d.tasks()
	tasks["list of nodes"], tasks["components"] = nodes.Run, register.run
	tasks["operators"], tasks["console"] = operators.Run, pages.Run
	for name, run := range tasks {
		g.Go(func() error {
			if err := run(background); err != nil && background.Err() == nil {
				cancel()
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	err = service.Run(serving, func() {
		if d.external != nil {
			select {
			case <-d.asked:
			case <-serving.Done():
				return
			}
		}
		d.opts.Log.InfoContext(ctx, "provisioner is serving", "broker", d.BrokerURL(), "installation", d.Store().Installation().ID,
			"policy", d.parts.policy.Digest())
		if ready != nil {
			ready()
		}
	})
	stop()
	err = errors.Join(err, g.Wait())
	d.logWritten(ctx)
	d.closeStore(ctx)
	return err
}

// closeStore writes the watermark of the store, to which nothing is written any more.
func (d *Daemon) closeStore(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := d.Store().Close(ctx); err != nil {
		d.opts.Log.WarnContext(ctx, "watermark not written at the end, the next start has an older one", "err", err)
	}
}

// watchStore ends the process once the broker's own store has failed a write, until stop is called.
func (d *Daemon) watchStore(ctx context.Context) (stop func()) {
	if d.embedded == nil {
		return func() {}
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		if err := d.embedded.Watch(watching, func(err error) { d.keeper.stall(watching, err) }); err != nil {
			d.fail(err)
		}
	}()
	return stop
}

// tasks are what goes on in the background while requests are served, by names for errors.
func (d *Daemon) tasks() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"policy":               d.parts.policy.Run,
		"allow-list":           d.parts.allow.run,
		"connections of nodes": d.rechecks.run,
		"roll-over":            d.watchAuthorities,
		"clock":                d.clock.Load().Run,
		"states":               d.keeper.keepStates,
		"store":                d.keeper.keepStore,
		"space":                d.keeper.keepSpace,
		"inputs":               d.record,
		"shadow policy":        d.runShadow,
		"orders":               d.Store().Run,
		"broker certificate":   func(ctx context.Context) error { return d.parts.certificate.run(ctx, d.show) },
		"connections":          d.authenticate,
		"queue groups":         d.withdrawn.run,
		"webhooks":             d.deliverEvents,
		"API certificate":      d.parts.api.run,
	}
}

// fail has Run return err, if it is the first.
func (d *Daemon) fail(err error) {
	select {
	case d.failed <- err:
	default:
	}
}

// WithStore starts the broker and calls do with the configuration of the store, on a connection of this name, and
// stops the broker. It is for what is done to a store that no provisioner serves, in place of Run, once.
func (d *Daemon) WithStore(ctx context.Context, name string, do func(store.Config) error) (err error) {
	if err := d.cfg.checkMounted(); err != nil {
		return err
	}
	if d.embedded != nil { // or what cannot be read would be missed anew
		if err := broker.ReadAnew(d.cfg.StoreDir()); err != nil {
			return err
		}
	}
	starting, cancel := context.WithTimeout(ctx, storeComesUp)
	defer cancel()
	if err := d.broker.Start(starting); err != nil {
		return startError(err)
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, d.broker.Stop(stop))
	}()
	conn, err := d.broker.Connect(name)
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(d.storeConfig(conn, 0))
}

// NeedsOperator reports whether what [Daemon.Run] has returned is not cured by another start.
func NeedsOperator(err error) bool {
	for _, fixed := range []error{broker.ErrStoreDamaged, backup.ErrJournalDamaged, store.ErrInstallation, store.ErrHalfRestored, store.ErrLost, store.ErrDamaged} {
		if errors.Is(err, fixed) {
			return true
		}
	}
	return false
}

// logWritten says at the end how much has been written: `muster bench` reads it.
func (d *Daemon) logWritten(ctx context.Context) {
	const enough = 2 * time.Second // a store that does not answer must not keep us
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), enough)
	defer cancel()
	if n, err := d.Store().Written(ctx); err == nil { // else the broker has said what ails it
		d.opts.Log.InfoContext(ctx, "store is complete", "writes", n)
	}
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

// assemble opens the store over a connection and returns the service that answers, with it, what
// comes in over the other one.
func (d *Daemon) assemble(ctx context.Context, conn, requests *nats.Conn) (*natsapi.Service, error) {
	most, err := d.storeCapacity()
	if err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	cfg := d.storeConfig(conn, most)
	cfg.Installation = d.expected()
	s, err := d.openStore(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if d.cfg.Broker.URL != "" && s.Replicas() == 1 {
		d.opts.Log.WarnContext(ctx, "each record is on one server only, whose log alone says if its disk has lost one: have three, and set store.replicas to 3")
	}
	if err := d.syncStore(); err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	if err := d.followers.Load().journal.Begin(s.Installation().ID); err != nil {
		return nil, fmt.Errorf("revocations.journal: %w", err)
	}
	d.store.Store(s)
	clock, err := provisioner.OpenClock(ctx, provisioner.ClockConfig{Store: s, Alarms: d.alarms, Log: d.opts.Log, Now: d.opts.Now})
	if err != nil {
		return nil, err
	}
	d.clock.Store(clock)
	own, err := d.provisionerConfig(d.opts.WrapStore)
	if err != nil {
		return nil, err
	}
	own.Listed, own.MaxCRL = d.writeCRLs, d.opts.MaxCRL
	p, err := d.provisionerOn(ctx, context.WithoutCancel(ctx), own)
	if err != nil {
		return nil, err
	}
	service, err := natsapi.New(natsapi.Config{
		Conn: requests, Provisioner: p, Installation: s.Installation().ID, Opener: d.parts.opener, Budget: d.budget,
		InHand: d.inHand, Withdrawn: d.withdrawn.now, Busy: d.metrics.Busy, Log: d.opts.Log,
	})
	if err != nil {
		return nil, err
	}
	d.provisioner.Store(p)
	d.orders.Store(operate.New(operate.Config{Provisioner: p, Command: natsapi.NewCommander(conn).Command}))
	d.withdrawn.look(ctx) // before the first request is taken
	return service, nil
}

// storeConfig is the configuration of the store, which may take so many bytes at most.
func (d *Daemon) storeConfig(conn *nats.Conn, most int64) store.Config {
	return store.Config{
		Conn:           conn,
		CAFingerprint:  d.CAFingerprint(),
		Former:         d.parts.authority.Former(),
		Capacity:       most,
		Replicas:       d.cfg.Store.Replicas,
		Watermarks:     d.cfg.Watermarks(),
		FirstWatermark: d.external != nil,
		InHand:         d.inHand,
		InputBytes:     d.cfg.inputBytes(),
		Log:            d.opts.Log,
		Now:            d.opts.Now,
	}
}

// Provisioner makes one more provisioner on the open store, as another process
// would be, and runs it until life is done or this one stops; wrap, if not nil, stands
// between it and the store.
func (d *Daemon) Provisioner(life context.Context, wrap func(provisioner.Store) provisioner.Store) (*provisioner.Provisioner, error) {
	cfg, err := d.provisionerConfig(wrap)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return d.provisionerOn(ctx, life, cfg)
}

// provisionerConfig is all of a provisioner's configuration but for whom it
// trusts.
func (d *Daemon) provisionerConfig(wrap func(provisioner.Store) provisioner.Store) (provisioner.Config, error) {
	s := d.Store()
	if s == nil {
		return provisioner.Config{}, errNotOpen
	}
	var records provisioner.Store = s
	if wrap != nil {
		records = wrap(s)
	}
	emit := func(e events.Event) { s.Emit(e); d.observe(e) }
	var autosign func(context.Context, wire.Identity, []byte) error
	if d.parts.autosign != nil {
		autosign = d.parts.autosign.Approve
	}
	return provisioner.Config{
		Autosign: autosign, Policy: d.parts.policy, Authority: d.parts.authority, Store: records,
		Configurator: d.parts.configurator, Observe: d.observer(), Allow: d.parts.allow.match, AllowsAll: d.parts.allow.everything,
		ShownFacts: d.cfg.Waiting.Facts, KeptFacts: d.cfg.Fleet.Facts, Reserved: d.parts.reserved.check, Emit: emit, Meter: d.activity, Attempts: d.attempts,
		Alarms: d.alarms, Clock: d.clock.Load(),
		Kick:       func(_ context.Context, ids ...wire.Identity) { d.rechecks.add(ids...) },
		Superseded: func(id wire.Identity) { d.rechecks.add(id) },
		Site:       d.parts.site, Version: d.opts.Version,
		Quotas: provisioner.Quotas{PerToken: d.cfg.Quotas.PerToken, PerSource: d.cfg.Quotas.PerSource}, Budget: d.budget,
		Log: d.opts.Log, Now: d.opts.Now,
	}, nil
}

// told is a refusal of which only the cause is said.
type told struct{ *provisioner.Refusal }

// Error implements error.
func (t told) Error() string { return t.Err.Error() }

// Unwrap returns the refusal.
func (t told) Unwrap() error { return t.Refusal }

// denied is a refusal in the broker's words, which name code and node already.
func denied(err error) *broker.Denied {
	var r *provisioner.Refusal
	if errors.As(err, &r) && r.Err != nil {
		return &broker.Denied{Code: r.Code, Err: told{r}}
	}
	return &broker.Denied{Code: provisioner.CodeOf(err), Err: err}
}

// connectionRefused reports a connection that the broker did not admit.
func (d *Daemon) connectionRefused(_ context.Context, p broker.Presented, denied *broker.Denied) {
	d.activity.ConnectionRefused(denied.Code)
	e := provisioner.RefusalEvent(&provisioner.Refusal{Code: denied.Code, Err: denied.Err}, d.opts.Now().UTC(), p.Address)
	e.Type = events.Attempt
	if n := (*broker.NotAdmitted)(nil); errors.As(denied.Err, &n) {
		e.Node, e.Serial = string(n.Node), n.Serial // asking about that node finds it
	}
	e.OfSource = d.attempts.Count(&e)
	var ok bool
	if e.LeftOut, ok = d.budget.Report(p.Address); !ok {
		return // the broker's own lines are limited likewise
	}
	if s := d.Store(); s != nil {
		s.Emit(e)
	}
	d.observe(e)
}

// connected reports whether the connections of the store and of requests are there.
func (d *Daemon) connected() bool {
	for _, c := range []*nats.Conn{d.conn.Load(), d.requests.Load()} {
		if c == nil || !c.IsConnected() {
			return false
		}
	}
	return true
}

// Connect returns one more connection to the account of provisioners. Close it
// before Run returns.
func (d *Daemon) Connect(name string) (*nats.Conn, error) { return d.broker.Connect(name) }

// Admits reports whether the broker admits the certificate to the fleet now.
func (d *Daemon) Admits(ctx context.Context, id wire.Identity, serial string) error {
	return d.admitNode(ctx, id, broker.Certificate{Serial: serial})
}
