package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	"muster/provisioner/trust"
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

	// StoreSize returns what the store in dir may take now, and what of its disk
	// it may ever take, for tests of a store that is full on a disk that is not.
	// Nil asks the file system.
	StoreSize func(dir string) (limit, capacity int64, err error)

	// Webhooks are what tests change of every webhook: how soon things happen.
	Webhooks webhook.Config

	// StoreTime is what a test's clock says when that of a store outside of the process says t. Nil is t.
	StoreTime func(t time.Time) time.Time

	// Emit also gets every event; it must not block. Nil for none.
	Emit func(events.Event)

	// WrapJournal stands between the provisioner and its journal, to inject faults
	// in tests. Nil for none.
	WrapJournal func(trust.Journal) trust.Journal

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
	if o.StoreSize == nil {
		o.StoreSize = storeSize
	}
	return o
}

// A Daemon is a provisioner with its own broker, or with those of others. Make one with [Load] or [New]
// and start it with Run, once.
type Daemon struct {
	*base
	id       string // of this process, for other provisioners
	broker   *link
	reports  *reports
	budget   *provisioner.Budget // of the gate and of every provisioner
	gate     *gate
	rechecks *rechecker
	keeper   *keeper
	webhooks *webhook.Set
	activity *activity
	inHand   *atomic.Int64 // requests that are being worked on
	failed   chan error    // has room for the first failed write; see Run
}

// Load makes a Daemon from the configuration file at path. The error has a line
// for everything wrong: with the file, or else with the files that it names.
func Load(path string, opts Options) (*Daemon, error) { return LoadWith(path, opts, nil) }

// LoadWith is [Load] with a last change to the configuration, for callers that
// start a daemon of their own on some other port or quota than the file says.
func LoadWith(path string, opts Options, edit func(*Config)) (*Daemon, error) {
	cfg, err := readForm(path)
	if err != nil {
		return nil, err
	}
	if edit != nil {
		edit(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		return nil, conffile.Prefix(path, err)
	}
	return New(cfg, opts)
}

// New makes a Daemon from a valid configuration: it reads every file that cfg
// names, compiles the policy and runs its tests, and reports everything wrong at
// once. It starts nothing and opens no connection.
func New(cfg Config, opts Options) (*Daemon, error) {
	opts = opts.complete()
	parts, err := loadParts(cfg, opts)
	if err != nil {
		return nil, err
	}
	var d *Daemon
	alarms := events.NewAlarms(events.AlarmConfig{
		Name: cfg.Name,
		Emit: func(e events.Event) { d.reports.report(e) },
		Log:  opts.Log,
		Now:  opts.Now,
	})
	d = &Daemon{
		base:   &base{cfg: cfg, opts: opts, parts: parts, alarms: alarms},
		id:     wire.NewID(),
		budget: provisioner.NewBudget(cfg.Quotas.VerificationsPerSource, opts.Now),
		inHand: new(atomic.Int64),
		failed: make(chan error, 1),
	}
	if d.reports, err = newReports(d.base); err != nil {
		return nil, err
	}
	if d.webhooks, err = webhook.New(parts.webhooks, alarms); err != nil {
		return nil, err
	}
	d.reports.metrics = metrics.New(opts.Version, status{d}.state)
	d.activity = newActivity(d.reports.metrics)
	d.gate = &gate{
		base:     d.base,
		budget:   d.budget,
		activity: d.activity,
		reports:  d.reports,
	}
	if d.broker, err = newLink(d.base, d.gate, func() { d.rechecks.all() }); err != nil {
		return nil, err
	}
	d.rechecks = newRechecker(d.broker, opts.Log)
	d.keeper = newKeeper(d.broker, d.fail)
	return d, nil
}

// BrokerURL is where the broker listens, nats://host:port; empty unless it
// runs. Of brokers that are others', it is what broker.url says.
func (d *Daemon) BrokerURL() string { return d.broker.URL() }

// WebSocketURL is where the broker takes nodes by WebSocket, wss://host:port or
// ws://host:port; empty unless it runs and does, or if the broker is others'.
func (d *Daemon) WebSocketURL() string {
	if d.broker.embedded == nil {
		return ""
	}
	return d.broker.embedded.WebSocketURL()
}

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
	if d.broker.external == nil {
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
		err = errors.Join(err, d.stopBroker(ctx))
		d.opts.Log.InfoContext(ctx, "provisioner stopped")
	}()
	conn, err := d.broker.Connect("provisioner")
	if err != nil {
		return err
	}
	defer conn.Close()
	d.live.conn.Store(conn)
	// What machines send, without a bound on how much, waits at the broker in the order in which it came, and
	// on one connection the store's acknowledgements would wait behind it.
	requests, err := d.broker.Connect("provisioner requests")
	if err != nil {
		return err
	}
	defer requests.Close()
	d.live.requests.Store(requests)
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
	err = d.serve(ctx, service, ready)
	d.logWritten(ctx)
	d.closeStore(ctx)
	return err
}

// stopBroker stops the broker, also once ctx is done.
func (d *Daemon) stopBroker(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return d.broker.Stop(ctx)
}

// serve answers requests until ctx is done, and then those in hand, while all tasks run.
func (d *Daemon) serve(ctx context.Context, service *natsapi.Service, ready func()) error {
	tasks, err := d.tasks(ctx)
	if err != nil {
		return err
	}
	d.warnOfStrangers(ctx)
	if err := d.Usable(); err != nil {
		d.opts.Log.ErrorContext(ctx, "no certificate is issued", "code", wire.CodeAuthorityExpired, "err", err)
	}
	// The service stops by itself when ctx is done; the rest must outlive it,
	// since requests in hand still need them.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, background := errgroup.WithContext(background)
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
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
		if d.broker.external != nil {
			select {
			case <-d.broker.asked:
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
	return errors.Join(err, g.Wait())
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
	if d.broker.embedded == nil {
		return func() {}
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		if err := d.broker.embedded.Watch(watching, func(err error) { d.keeper.stall(watching, err) }); err != nil {
			d.fail(err)
		}
	}()
	return stop
}

// tasks are what goes on in the background while requests are served, by names for errors.
func (d *Daemon) tasks(ctx context.Context) (map[string]func(context.Context) error, error) {
	nodes := fleet.NewIndex(d.Store(), d.opts.Log, d.cfg.Fleet.Facts)
	d.live.nodes.Store(nodes)
	register := d.newRegister(ctx)
	pages, err := d.console(nodes, register) //nolint:contextcheck // its handlers have the contexts of requests
	if err != nil {
		return nil, err
	}
	operators, err := d.operators(nodes, register, pages)
	if err != nil {
		return nil, err
	}
	return map[string]func(context.Context) error{
		"policy":               d.parts.policy.Run,
		"connections of nodes": d.rechecks.run,
		"roll-over":            d.watchAuthorities,
		"clock":                d.live.clock.Load().Run,
		"states":               d.keeper.keepStates,
		"store":                d.keeper.keepStore,
		"space":                d.keeper.keepSpace,
		"inputs":               d.reports.record,
		"shadow policy":        d.reports.runShadow,
		"orders":               d.Store().Run,
		"broker certificate":   func(ctx context.Context) error { return d.parts.certificate.run(ctx, d.broker.show) },
		"connections":          d.broker.authenticate,
		"webhooks":             func(ctx context.Context) error { return d.webhooks.Run(ctx, d.Store().Subscriptions) },
		"API certificate":      d.parts.api.run,
		"list of nodes":        nodes.Run,
		"components":           register.run,
		"operators":            operators.Run,
		"console":              pages.Run,
	}, nil
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
	if d.broker.embedded != nil { // or what cannot be read would be missed anew
		if err := broker.RebuildIndexes(d.cfg.StoreDir()); err != nil {
			return err
		}
	}
	starting, cancel := context.WithTimeout(ctx, storeComesUp)
	defer cancel()
	if err := d.broker.Start(starting); err != nil {
		return startError(err)
	}
	defer func() { err = errors.Join(err, d.stopBroker(ctx)) }()
	conn, err := d.broker.Connect(name)
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(d.storeConfig(conn, 0))
}

// NeedsOperator reports whether what [Daemon.Run] has returned is not cured by another start.
func NeedsOperator(err error) bool {
	for _, fixed := range []error{broker.ErrStoreDamaged, backup.ErrJournalDamaged, backup.ErrJournalForeign, store.ErrInstallation, store.ErrHalfRestored, store.ErrLost, store.ErrDamaged} {
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
	most, err := d.broker.storeCapacity()
	if err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	cfg := d.storeConfig(conn, most)
	// An empty cluster is no new installation for a provisioner that has written to another, nor is a directory that
	// is gone, whose tokens would have all of their uses again.
	cfg.Installation = d.live.followers.Load().journal.Installation()
	s, err := d.broker.openStore(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if d.cfg.Broker.URL != "" && s.Replicas() == 1 {
		d.opts.Log.WarnContext(ctx, "each record is on one server only, whose log alone says if its disk has lost one: have three, and set store.replicas to 3")
	}
	if err := d.broker.syncStore(); err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	if err := d.live.followers.Load().journal.Begin(s.Installation().ID); err != nil {
		return nil, fmt.Errorf("revocations.journal: %w", err)
	}
	d.live.store.Store(s)
	d.live.clock.Store(trust.NewClock(d.broker.clockConfig(s)))
	own, err := d.provisionerConfig(d.opts.WrapStore)
	if err != nil {
		return nil, err
	}
	own.CRL.Listed = (&crlFile{path: d.cfg.crlPath(), log: d.opts.Log}).write
	p, err := d.provisionerOn(ctx, context.WithoutCancel(ctx), own)
	if err != nil {
		return nil, err
	}
	edge := natsapi.Config{
		Conn:         requests,
		Provisioner:  p,
		Installation: s.Installation().ID,
		Opener:       d.parts.opener,
		Budget:       d.budget,
		InHand:       d.inHand,
		Busy:         d.reports.metrics.Busy,
		Log:          d.opts.Log,
	}
	if d.broker.external != nil {
		edge.Fault = d.broker.ownFault
	}
	d.live.provisioner.Store(p)
	d.live.orders.Store(operate.New(operate.Config{Provisioner: p, Command: natsapi.NewCommander(conn).Command}))
	return natsapi.New(edge), nil
}

// storeConfig is the configuration of the store, which may take so many bytes at most.
func (d *Daemon) storeConfig(conn *nats.Conn, most int64) store.Config {
	return store.Config{
		Conn:           conn,
		CAFingerprint:  d.CAFingerprint(),
		Former:         d.parts.authority.PreviousFingerprints(),
		Capacity:       most,
		Replicas:       d.cfg.Store.Replicas,
		Watermarks:     d.cfg.Watermarks(),
		FirstWatermark: d.broker.external != nil,
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
	emit := func(e events.Event) { s.Emit(e); d.reports.observe(e) }
	var autosign func(context.Context, wire.Identity, []byte) error
	if d.parts.autosign != nil {
		autosign = d.parts.autosign.Approve
	}
	return provisioner.Config{
		Policy:       d.parts.policy,
		Authority:    d.parts.authority,
		Store:        records,
		Configurator: d.parts.configurator,
		Autosign:     autosign,
		Reserved:     d.parts.reserved.check,
		Clock:        d.live.clock.Load(),
		Kick:         func(id wire.Identity) { d.rechecks.add(id) },
		Quotas:       provisioner.Quotas{PerToken: d.cfg.Quotas.PerToken, PerSource: d.cfg.Quotas.PerSource},
		Budget:       d.budget,
		Now:          d.opts.Now,
		CRL:          provisioner.CRLConfig{Validity: time.Duration(d.cfg.CRL.Validity)},
		Facts:        provisioner.FactsConfig{Shown: d.cfg.Waiting.Facts, Kept: d.cfg.Fleet.Facts},
		Self:         provisioner.Self{Installation: s.Installation().ID, Site: d.parts.site, Version: d.opts.Version},
		Reports: provisioner.Reports{
			Observe: d.reports.observer(),
			Emit:    emit,
			Meter:   d.activity,
			Alarms:  d.alarms,
			Log:     d.opts.Log,
		},
	}, nil
}

// Inputs writes what decisions saw in the last age; see [store.Inputs.Read].
func (d *Daemon) Inputs(ctx context.Context, age time.Duration, started func(batches uint64), w io.Writer) error {
	s := d.Store()
	if s == nil {
		return errNotOpen
	}
	return s.Inputs.Read(ctx, age, started, w)
}

// Connect returns one more connection to the account of provisioners. Close it
// before Run returns.
func (d *Daemon) Connect(name string) (*nats.Conn, error) { return d.broker.Connect(name) }

// Admits reports whether the broker admits the certificate to the fleet now.
func (d *Daemon) Admits(ctx context.Context, id wire.Identity, serial string) error {
	return d.gate.admitNode(ctx, id, broker.Certificate{Serial: serial})
}
