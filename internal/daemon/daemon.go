package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

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
	"muster/provisioner/services"
	"muster/provisioner/store"
	"muster/provisioner/trust"
	"muster/provisioner/webhook"
)

var errNotOpen = errors.New("the store is not open")

const stopTimeout = 30 * time.Second

// Options are what the caller adds to the configuration. The zero value is usable.
type Options struct {
	Version  string
	Log      *slog.Logger     // nil discards
	Now      func() time.Time // nil is time.Now
	Resolver *net.Resolver    // nil is the system's

	Keys keyfile.Ring

	// Alive is called every second unless a part hangs; it must not block. May be nil.
	Alive func()

	// For tests.
	Webhooks webhook.Config

	// For tests; may be nil.
	StoreTime func(t time.Time) time.Time

	// Must not block; may be nil.
	Emit func(events.Event)

	// For tests; may be nil.
	WrapStore func(provisioner.Store) provisioner.Store
}

func (o Options) complete() Options {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Alive == nil {
		o.Alive = func() {}
	}
	return o
}

// A Daemon is a provisioner with an embedded broker or external ones. Call Run once.
type Daemon struct {
	*base
	id       string // of this process
	broker   *link
	reports  *reports
	budget   *provisioner.Budget
	gate     *gate
	rechecks *rechecker
	monitor  *monitor
	webhooks *webhook.Set
	inHand   *atomic.Int64 // requests in progress
	failed   chan error    // capacity 1: the first failed write; see Run
}

// Load reads a configuration file. The error has a line per mistake.
func Load(path string, opts Options) (*Daemon, error) { return LoadWith(path, opts, nil) }

// LoadWith is Load, but edit first changes the configuration.
func LoadWith(path string, opts Options, edit func(*Config)) (*Daemon, error) {
	cfg, err := readConfig(path, edit)
	if err != nil {
		return nil, err
	}
	return New(cfg, opts)
}

// New reads all files of a valid configuration, tests the policy and reports all mistakes at once.
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
		base: &base{
			cfg:    cfg,
			opts:   opts,
			parts:  parts,
			alarms: alarms,
		},
		id:     wire.NewID(),
		budget: provisioner.NewBudget(cfg.Quotas.VerificationsPerSource, opts.Now),
		inHand: new(atomic.Int64),
		failed: make(chan error, 1),
	}
	parts.preview.Record = d.record
	if d.reports, err = newReports(d.base); err != nil {
		return nil, err
	}
	if d.webhooks, err = webhook.New(parts.webhooks, alarms); err != nil {
		return nil, err
	}
	d.reports.metrics = metrics.New(opts.Version, status{d}.state)
	d.gate = &gate{
		base:    d.base,
		budget:  d.budget,
		reports: d.reports,
	}
	if d.broker, err = newLink(d.base, d.gate, func() { d.rechecks.all() }); err != nil {
		return nil, err
	}
	d.rechecks = newRechecker(d.broker, opts.Log)
	d.monitor = newMonitor(d.broker, d.fail)
	return d, nil
}

// BrokerURL is the embedded broker's nats://host:port, or broker.url.
func (d *Daemon) BrokerURL() string { return d.broker.URL() }

// WebSocketURL is the embedded broker's URL for WebSocket, or "".
func (d *Daemon) WebSocketURL() string {
	if d.broker.embedded == nil {
		return ""
	}
	return d.broker.embedded.WebSocketURL()
}

// Run serves until ctx is done, then finishes requests in progress, closes the store and stops the broker. ready, if
// not nil, is called once requests are served.
//
// After a failed write of the store or journal it returns at once and stops nothing. Then end the process, so that
// nothing is served that is not on disk.
func (d *Daemon) Run(ctx context.Context, ready func()) error {
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx, ready) }()
	select {
	case err := <-ended:
		return err
	case err := <-d.failed:
		return fmt.Errorf("%w: the provisioner stops, so that it is restarted", err)
	}
}

func (d *Daemon) run(ctx context.Context, ready func()) (err error) {
	stopProbes, err := d.startProbes(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopProbes()) }()
	if err := d.startBroker(ctx); err != nil {
		return err
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
	// On a single connection, the store's acknowledgements would wait behind requests.
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
	defer d.watchStore(ctx)() // after its streams were created, or they would count as lost
	err = d.serve(ctx, service, ready)
	d.closeStore(ctx)
	return err
}

func (d *Daemon) startBroker(ctx context.Context) error {
	err := d.cfg.checkMounted()
	if err == nil && d.broker.external == nil {
		err = cmp.Or(checkRestored(d.cfg.StoreDir()), disk.NeedRoom(d.cfg.StoreDir(), broker.StartRoom))
	}
	if err == nil {
		err = startError(d.broker.Start(ctx))
	}
	return err
}

func (d *Daemon) stopBroker(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return d.broker.Stop(ctx)
}

func (d *Daemon) serve(ctx context.Context, service *natsapi.Service, ready func()) error {
	tasks, err := d.tasks(ctx)
	if err != nil {
		return err
	}
	d.warnOpenPolicy(ctx)
	if err := d.Usable(); err != nil {
		d.opts.Log.ErrorContext(ctx, "no certificate is issued", "code", wire.CodeAuthorityExpired, "err", err)
	}
	// Tasks outlive ctx, since requests in progress need them.
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
			case <-d.broker.ready:
			case <-serving.Done():
				return
			}
		}
		d.opts.Log.InfoContext(ctx, "provisioner is serving", "broker", d.BrokerURL(),
			"installation", d.Store().Installation().ID,
			"policy", d.parts.policy.Digest())
		d.live.serving.Store(true)
		if ready != nil {
			ready()
		}
	})
	stop()
	return errors.Join(err, g.Wait())
}

func (d *Daemon) closeStore(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := d.Store().Close(ctx); err != nil {
		d.opts.Log.WarnContext(ctx, "watermark not written at the stop; the next start uses an older one", "err", err)
	}
}

func (d *Daemon) watchStore(ctx context.Context) (stop func()) {
	if d.broker.embedded == nil {
		return func() {}
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		if err := d.broker.embedded.Watch(watching,
			func(err error) { d.monitor.setStalled(watching, err) }); err != nil {
			d.fail(err)
		}
	}()
	return stop
}

func (d *Daemon) tasks(ctx context.Context) (map[string]func(context.Context) error, error) {
	nodes := fleet.NewIndex(d.Store(), d.opts.Log, d.cfg.Fleet.Facts)
	d.live.nodes.Store(nodes)
	register := d.newComponentReporter(ctx)
	recent := events.NewRecent(d.Store(), d.opts.Log, d.opts.Now)
	edge := d.edge(nodes, recent)
	pages := d.console(edge, register) //nolint:contextcheck // its handlers have the contexts of requests
	if err := d.openPuppet(nodes); err != nil {
		return nil, err
	}
	operators, err := d.operators(edge, register, pages)
	if err != nil {
		return nil, err
	}
	tasks := map[string]func(context.Context) error{
		"choria renewals":      d.renewChoria,
		"policy":               d.parts.policy.Run,
		"connections of nodes": d.rechecks.run,
		"liveness":             func(ctx context.Context) error { return d.broker.Follow(ctx, nodes) },
		"roll-over":            d.watchAuthorities,
		"clock":                d.live.clock.Load().Run,
		"states":               d.monitor.watchStates,
		"store":                d.monitor.watchStore,
		"space":                d.monitor.watchSpace,
		"inputs":               d.reports.record,
		"shadow policy":        d.reports.runShadow,
		"orders":               d.Store().Run,
		"broker certificate":   d.parts.broker.run,
		"connections":          d.broker.authenticate,
		"webhooks":             func(ctx context.Context) error { return d.webhooks.Run(ctx, d.Store()) },
		"API certificate":      d.parts.api.run,
		"list of nodes":        nodes.Run,
		"service certificates": d.Services().Run,
		"components":           register.run,
		"operators":            operators.Run,
		"console":              pages.Run,
		"recent events":        recent.Run,
	}
	if g := d.live.choria.Load(); g != nil {
		tasks["choria"] = g.Run
	}
	if s := d.live.puppet.Load(); s != nil {
		tasks["puppet"], tasks["puppet certificate"] = s.Run, d.parts.puppet.certificate.run
	}
	return tasks, nil
}

func (d *Daemon) fail(err error) {
	select {
	case d.failed <- err:
	default:
	}
}

// RunDuring runs the provisioner while play runs, and returns the first error of both. The provisioner outlives ctx
// until play returns.
func (d *Daemon) RunDuring(ctx context.Context, play func(context.Context) error) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, inner := errgroup.WithContext(ctx)
	ready := make(chan struct{})
	g.Go(func() error { return d.Run(serving, func() { close(ready) }) })
	g.Go(func() error {
		defer stop()
		select {
		case <-ready:
			return play(inner)
		case <-inner.Done():
			return ctx.Err() // nil: the provisioner did not start, and its error says why
		}
	})
	return g.Wait()
}

// WithStore starts the broker for do, and stops it. It is called once, instead of Run.
func (d *Daemon) WithStore(ctx context.Context, name string, do func(store.Config) error) (err error) {
	starting, cancel := context.WithTimeout(ctx, storeStartTimeout)
	defer cancel()
	if err := d.startBroker(starting); err != nil {
		return err
	}
	if d.broker.external != nil {
		defer d.broker.reportWait(ctx)()
	}
	defer func() { err = errors.Join(err, d.stopBroker(ctx)) }()
	conn, err := d.broker.Connect(name)
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(d.storeConfig(conn, 0))
}

// NeedsOperator reports whether a restart cannot cure the error of [Daemon.Run].
func NeedsOperator(err error) bool {
	lasting := []error{broker.ErrStoreDamaged, backup.ErrJournalDamaged, backup.ErrJournalForeign,
		store.ErrInstallation, store.ErrHalfRestored, store.ErrDamaged}
	return slices.ContainsFunc(lasting, func(e error) bool { return errors.Is(err, e) })
}

func startError(err error) error {
	if errors.Is(err, broker.ErrStoreInUse) {
		return fmt.Errorf("%w: stop the other process, or give this provisioner a data_dir of its own", err)
	}
	key := "broker.listen"
	if err != nil && strings.Contains(err.Error(), "websocket connections") { // by text, as nats-server reports it
		key = "broker.websocket.listen"
	}
	return listenError(err, key)
}

func (d *Daemon) warnOpenPolicy(ctx context.Context) {
	decision, err := d.parts.policy.Decide(ctx, &policies.Input{
		Identity: "stranger.invalid",
		Proof:    policies.ProofToken,
		Node:     policies.Node{State: string(provisioner.StateNone), Reason: string(provisioner.ReasonNew)},
		CSR:      policies.CSR{CommonName: "stranger.invalid", DNSNames: []string{"stranger.invalid"}},
		Time:     d.opts.Now().UTC(),
	})
	if err == nil && decision.Verdict() == policies.VerdictAllow {
		d.opts.Log.WarnContext(ctx, "policy admits unknown names: any token holder can enroll under any free name")
	}
}

func (d *Daemon) assemble(ctx context.Context, conn, requests *nats.Conn) (*natsapi.Service, error) {
	most, err := d.broker.storeCapacity()
	if err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	cfg := d.storeConfig(conn, most)
	// With a journal, an empty store is a lost one, not a new installation: tokens would have all uses again.
	cfg.Installation = d.live.followers.Load().journal.Installation()
	s, err := d.broker.openStore(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if d.cfg.Broker.URL != "" && s.Replicas() == 1 {
		d.opts.Log.WarnContext(ctx, "each record is on one server only and is lost with its disk: run three servers "+
			"and set store.replicas to 3")
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
	own.CRL.Listed = d.writeCRLs
	p, err := d.provisionerOn(ctx, context.WithoutCancel(ctx), own)
	if err != nil {
		return nil, err
	}
	d.live.services.Store(services.New(services.Config{Provisioner: p, Store: s, Issuing: &s.Issuing}))
	edge := natsapi.Config{
		Conn:         requests,
		Provisioner:  p,
		Certificates: d.Services(),
		Installation: s.Installation().ID,
		Sign:         d.parts.replies.sign,
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
	d.startChoria(p, requests)
	orders := operate.Config{Provisioner: p, Command: natsapi.NewCommander(conn).Command}
	if g := d.live.choria.Load(); g != nil {
		orders.Choria = g
	}
	d.live.orders.Store(operate.New(orders))
	return natsapi.New(edge), nil
}

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

// Provisioner runs one more provisioner on the open store until life is done. wrap may be nil.
func (d *Daemon) Provisioner(life context.Context,
	wrap func(provisioner.Store) provisioner.Store) (*provisioner.Provisioner, error) {
	cfg, err := d.provisionerConfig(wrap)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return d.provisionerOn(ctx, life, cfg)
}

func (d *Daemon) record(ctx context.Context, id wire.Identity) (*provisioner.Record, error) {
	s := d.Store()
	if s == nil {
		return nil, errNotOpen
	}
	r, _, err := s.Record(ctx, id)
	return r, err
}

func (d *Daemon) provisionerConfig(wrap func(provisioner.Store) provisioner.Store) (provisioner.Config, error) {
	s := d.Store()
	if s == nil {
		return provisioner.Config{}, errNotOpen
	}
	var records provisioner.Store = s
	if wrap != nil {
		records = wrap(s)
	}
	var autosign func(context.Context, wire.Identity, netip.Prefix, []byte) error
	if d.parts.autosign != nil {
		autosign = d.parts.autosign.Approve
	}
	return provisioner.Config{
		Policy:       d.parts.policy,
		Authority:    d.parts.authority,
		Store:        records,
		Configurator: d.parts.configurator,
		Autosign:     autosign,
		Reserved:     d.parts.reserved.Check,
		FaultOf:      d.faultOf,
		Clock:        d.live.clock.Load(),
		Kick:         func(id wire.Identity) { d.rechecks.add(id) },
		Quotas:       provisioner.Quotas{PerToken: d.cfg.Quotas.PerToken, PerSource: d.cfg.Quotas.PerSource},
		Budget:       d.budget,
		Now:          d.opts.Now,
		CRL:          provisioner.CRLConfig{Validity: time.Duration(d.cfg.CRL.Validity)},
		Facts:        provisioner.FactsConfig{Shown: d.cfg.Waiting.Facts, Kept: d.cfg.Fleet.Facts},
		Self:         provisioner.Self{Installation: s.Installation().ID, Site: d.parts.site, Version: d.opts.Version},
		Reports: provisioner.Reports{
			Observe: d.reports.decided,
			Emit:    d.reports.report,
			Meter:   d.reports.metrics,
			Alarms:  d.alarms,
			Log:     d.opts.Log,
		},
	}, nil
}

// Inputs writes the policy inputs that are no older than age; see [store.Store.ReadInputs].
func (d *Daemon) Inputs(ctx context.Context, age time.Duration, started func(batches uint64), w io.Writer) error {
	s := d.Store()
	if s == nil {
		return errNotOpen
	}
	return s.ReadInputs(ctx, age, started, w)
}

// Connect returns another connection. Close it before Run returns.
func (d *Daemon) Connect(name string) (*nats.Conn, error) { return d.broker.Connect(name) }

// Admits returns nil if the broker would admit the certificate to the fleet.
func (d *Daemon) Admits(ctx context.Context, id wire.Identity, serial string) error {
	return d.gate.admitNode(ctx, id, broker.Certificate{Serial: serial})
}
