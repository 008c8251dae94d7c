package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/disk"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner/broker"
	"muster/provisioner/store"
	"muster/provisioner/trust"
)

// MaxReplicas is JetStream's limit.
const MaxReplicas = 5

// brokers is the embedded broker or the external ones.
type brokers interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Connect(name string, opts ...nats.Option) (*nats.Conn, error)
	URL() string
	Recheck(ctx context.Context, ids ...wire.Identity) error
	RecheckAll(ctx context.Context) error
	Connected(ctx context.Context, user string) (bool, error)
	Follow(ctx context.Context, to broker.Connections) error
}

// ExternalConfig has the secrets for external brokers, from `muster provisioner init --broker-urls`.
type ExternalConfig struct {
	// Files with the seed of a user nkey, for the accounts MUSTER and SYS. Required with url.
	Credentials       string `yaml:"credentials"`
	SystemCredentials string `yaml:"system_credentials"`

	Callout struct {
		// Issuer is a file with the seed of the account nkey that signs answers.
		Issuer string `yaml:"issuer"`

		// XKey is a file with the seed of the xkey that requests are encrypted to.
		XKey string `yaml:"xkey"`
	} `yaml:"callout"`
}

func (c *ExternalConfig) paths() []*string {
	return []*string{&c.Credentials, &c.SystemCredentials, &c.Callout.Issuer, &c.Callout.XKey}
}

func (c *Config) validateExternal(v *Mistakes) {
	e := &c.Broker.External
	if c.Broker.Listen != "" {
		v.Bad("broker.listen", "set together with broker.url, which is for external brokers: remove one of them")
	}
	v.Required("broker.credentials", e.Credentials)
	v.Required("broker.system_credentials", e.SystemCredentials)
	v.Required("broker.callout.issuer", e.Callout.Issuer)
	v.Required("broker.callout.xkey", e.Callout.XKey)
	if c.Broker.WebSocket.Listen != "" {
		v.Bad("broker.websocket.listen", "set together with broker.url: set it in the external brokers' configuration")
	}
	if c.Broker.MaxConnections != 0 {
		v.Bad("broker.max_connections", "set together with broker.url: set it in the external brokers' configuration")
	}
}

// A link is the connection to brokers and store.
type link struct {
	brokers
	*base
	embedded *broker.Broker   // nil if external
	external *broker.External // nil if embedded

	ready        chan struct{}         // closed once the auth callout is served
	calloutError atomic.Pointer[error] // why the auth callout is not served, or nil
}

// newLink makes the link call appeared when an external server appears.
func newLink(b *base, g *gate, appeared func()) (*link, error) {
	l := &link{base: b, ready: make(chan struct{})}
	config := broker.GateConfig{
		TrustDomain:    b.cfg.TrustDomain,
		VerifyToken:    g.verifyToken,
		AdmitNode:      g.admitNode,
		AdmitReturning: g.admitReturning,
		Now:            b.opts.Now,
	}
	if b.parts.choria != nil {
		config.AdmitChoria = g.admitChoria
	}
	if b.cfg.Broker.URL == "" {
		return l, l.embed(config, g.connectionRefused)
	}
	var err error
	l.external, err = broker.NewExternal(broker.ExternalConfig{
		URLs:     b.cfg.Broker.URL,
		TLS:      l.brokerTLS(),
		Keys:     b.parts.brokerKeys,
		Gate:     config,
		Refused:  g.connectionRefused,
		Log:      b.opts.Log,
		Appeared: appeared,
		Fault:    l.ownFault,
	})
	l.brokers = l.external
	return l, err
}

func (l *link) embed(gate broker.GateConfig, refused func(context.Context, broker.Presented, *broker.Denied)) error {
	limit, _, err := disk.StoreSize(l.cfg.StoreDir())
	if err != nil {
		return fmt.Errorf("data_dir: %w", err)
	}
	c := &l.cfg.Broker
	l.embedded, err = broker.New(broker.Config{
		Listen:         c.Listen,
		StoreDir:       l.cfg.StoreDir(),
		MaxStoreBytes:  limit,
		MaxConnections: c.MaxConnections,
		WebSocket:      broker.WebSocketConfig{Listen: c.WebSocket.Listen, Plain: c.WebSocket.Plain},
		Certificate:    l.parts.broker.certificate,
		ClientCAs:      l.parts.authority.Roots(),
		Gate:           gate,
		Refused:        refused,
		Log:            l.opts.Log,
	})
	l.brokers = l.embedded
	return err
}

// LoadBrokerKeys reads the secrets for external brokers.
func LoadBrokerKeys(c *ExternalConfig) (broker.Keys, error) {
	var k broker.Keys
	var errs []error
	for _, f := range []struct {
		path string
		dst  *wire.Secret
	}{{c.Credentials, &k.Provisioner}, {c.SystemCredentials, &k.System}, {c.Callout.Issuer, &k.Issuer},
		{c.Callout.XKey, &k.XKey}} {
		line, err := keyfile.ReadLine(f.path, inputfile.Configured)
		errs = append(errs, err)
		*f.dst = wire.Secret(line)
	}
	return k, errors.Join(errs...)
}

func (l *link) brokerTLS() *tls.Config {
	if !strings.Contains(l.cfg.Broker.URL, "tls://") {
		return nil
	}
	return &tls.Config{
		MinVersion:       tls.VersionTLS12,
		Time:             l.opts.Now,
		RootCAs:          l.parts.authority.Roots(),
		VerifyConnection: l.verifyBroker,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return cmp.Or(l.parts.broker.shown.Load(), new(tls.Certificate)), nil
		},
	}
}

// verifyBroker refuses a node's certificate. TLS accepts it, since the same authority issued it.
func (l *link) verifyBroker(state tls.ConnectionState) error {
	role, name, err := wire.RoleOf(state.PeerCertificates[0], l.cfg.TrustDomain)
	if err == nil && role != wire.RoleBroker {
		err = fmt.Errorf("certificate of %s %.100q is not a broker's", role, name)
	}
	return err
}

// authenticate serves the auth callout until ctx is done. Other provisioners answer while this one retries.
func (l *link) authenticate(ctx context.Context) error {
	if l.external == nil {
		return nil
	}
	asked := sync.OnceFunc(func() { close(l.ready) })
	for {
		err := l.external.Authenticate(ctx, func() {
			l.calloutError.Store(nil)
			asked()
		})
		if ctx.Err() != nil {
			return nil
		}
		l.calloutError.Store(&err)
		l.opts.Log.WarnContext(ctx, "auth callout not served, retrying", "err", err)
		span.Sleep(ctx, time.Second)
	}
}

// A cluster elects a leader for each stream, in 4 to 9 s (measured).
const storeStartTimeout = time.Minute

func (l *link) openStore(ctx context.Context, cfg store.Config) (*store.Store, error) {
	if l.external == nil {
		return store.Open(ctx, cfg)
	}
	defer l.reportWait(ctx)()
	open := func(ctx context.Context) (*store.Store, error) {
		s, err := store.Open(ctx, cfg)
		if errors.Is(err, store.ErrDamaged) {
			l.opts.Log.WarnContext(ctx, "store not ready, retrying", "err", err)
		}
		return s, err
	}
	s, err := AwaitStore(ctx, open, store.ErrInstallation, store.ErrNoWatermark)
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, store.ErrDamaged) && ctx.Err() == nil {
		err = fmt.Errorf("the store did not answer within %v: most of its servers must run and reach each other: %s",
			storeStartTimeout, l.external.Answers(ctx))
	}
	return s, err
}

// reportWait logs what a wait for the store is about, after a second and then regularly until stop is called.
func (l *link) reportWait(ctx context.Context) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	go func() {
		for wait := time.Second; span.Sleep(ctx, wait); wait = broker.WaitingInterval {
			l.opts.Log.WarnContext(ctx, "waiting for the store: most of its servers must run and reach each other",
				"err", l.external.Answers(ctx))
		}
	}()
	return stop
}

// AwaitStore calls use each second until it succeeds, fails with a final error, or a minute has passed.
func AwaitStore[T any](ctx context.Context, use func(context.Context) (T, error), final ...error) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, storeStartTimeout)
	defer cancel()
	for {
		v, err := use(ctx)
		if err == nil || slices.ContainsFunc(final, func(f error) bool { return errors.Is(err, f) }) {
			return v, err
		}
		if !span.Sleep(ctx, time.Second) {
			return v, err
		}
	}
}

func (l *link) storeCapacity() (int64, error) {
	if l.external != nil {
		return 0, nil
	}
	_, most, err := disk.StoreSize(l.cfg.StoreDir())
	return most, err
}

func (l *link) syncStore() error {
	if l.external != nil {
		return nil
	}
	l.embedded.StageBatches(store.Batched)
	return disk.Sync(l.cfg.StoreDir())
}

// ownFault returns why other provisioners must answer external brokers, or nil.
func (l *link) ownFault() error {
	clock := l.live.clock.Load()
	return cmp.Or(clock.Check(), clock.Differs(), l.external.CalloutError())
}

func (l *link) clockConfig(s *store.Store) trust.ClockConfig {
	cfg := trust.ClockConfig{
		Marks:  s.Clock,
		Alarms: l.alarms,
		Log:    l.opts.Log,
		Now:    l.opts.Now,
	}
	if l.external != nil {
		cfg.StoreTime = func(ctx context.Context) (time.Time, error) {
			at, err := s.Time(ctx)
			if l.opts.StoreTime != nil {
				at = l.opts.StoreTime(at)
			}
			return at, err
		}
	}
	return cfg
}
