package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/disk"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/provisioner/broker"
	"muster/provisioner/store"
	"muster/provisioner/trust"
)

// MaxReplicas is JetStream's own limit.
const MaxReplicas = 5

// brokers is where nodes connect, and where the store is: our own broker, or a
// cluster of others'. What only one of them can do, it is asked by name.
type brokers interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Connect(name string, opts ...nats.Option) (*nats.Conn, error)
	URL() string
	Recheck(ctx context.Context, ids ...wire.Identity) error
	RecheckAll(ctx context.Context) error
}

// ExternalConfig is how brokers outside of the process are reached. All of its
// files are secrets and the same for every provisioner of an installation, as
// `muster provisioner init --broker-urls` makes them.
type ExternalConfig struct {
	// Credentials and SystemCredentials log in to the accounts MUSTER and SYS:
	// files with the seed of a user nkey, on one line.
	// Required with url.
	Credentials       string `yaml:"credentials"`
	SystemCredentials string `yaml:"system_credentials"`

	// Callout is how the servers ask who may connect.
	Callout struct {
		// Issuer is a file with the seed of the account nkey that signs the
		// answers, on one line. Required with url.
		Issuer string `yaml:"issuer"`

		// XKey is a file with the seed of the xkey to which questions are
		// encrypted, on one line. Required with url.
		XKey string `yaml:"xkey"`
	} `yaml:"callout"`
}

// paths returns all paths in c.
func (c *ExternalConfig) paths() []*string {
	return []*string{&c.Credentials, &c.SystemCredentials, &c.Callout.Issuer, &c.Callout.XKey}
}

func (c *Config) validateExternal(v *Mistakes) {
	e := &c.Broker.External
	if c.Broker.Listen != "" {
		v.Bad("broker.listen", "set together with broker.url: the broker is in this process, or it is not")
	}
	v.Required("broker.credentials", e.Credentials)
	v.Required("broker.system_credentials", e.SystemCredentials)
	v.Required("broker.callout.issuer", e.Callout.Issuer)
	v.Required("broker.callout.xkey", e.Callout.XKey)
	if c.Broker.WebSocket.Listen != "" {
		v.Bad("broker.websocket.listen", "set together with broker.url: it is for the servers' own configuration")
	}
	if c.Broker.MaxConnections != 0 {
		v.Bad("broker.max_connections", "set together with broker.url: it is for the servers' own configuration")
	}
}

// A link is where nodes connect and where the store is, with what only one kind of broker needs.
type link struct {
	brokers
	*base
	embedded *broker.Broker   // brokers, if it is our own, else nil
	external *broker.External // brokers, if it is others', else nil

	shown   atomic.Pointer[tls.Certificate] // to brokers of others; see show
	asked   chan struct{}                   // closed once brokers of others ask us who may connect
	unasked atomic.Pointer[error]           // why brokers of others do not ask, nil once they do
}

// newLink makes the broker that the configuration is about, or the connection to others. appeared is called when a
// server of others has appeared.
func newLink(b *base, g *gate, appeared func()) (*link, error) {
	l := &link{base: b, asked: make(chan struct{})}
	l.shown.Store(&b.parts.shown)
	config := broker.GateConfig{
		TrustDomain:    b.cfg.TrustDomain,
		VerifyToken:    g.verifyToken,
		AdmitNode:      g.admitNode,
		AdmitReturning: g.admitReturning,
		Now:            b.opts.Now,
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

// embed makes a broker inside of the process.
func (l *link) embed(gate broker.GateConfig, refused func(context.Context, broker.Presented, *broker.Denied)) error {
	limit, _, err := l.opts.StoreSize(l.cfg.StoreDir())
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
		Certificate:    l.parts.shown,
		ClientCAs:      l.parts.authority.Roots(),
		Gate:           gate,
		Refused:        refused,
		Log:            l.opts.Log,
	})
	l.brokers = l.embedded
	return err
}

// LoadBrokerKeys reads the secrets that provisioners share to serve brokers
// outside of their processes.
func LoadBrokerKeys(c *ExternalConfig) (broker.Keys, error) {
	var k broker.Keys
	var errs []error
	for _, f := range []struct {
		path string
		dst  *wire.Secret
	}{{c.Credentials, &k.Provisioner}, {c.SystemCredentials, &k.System}, {c.Callout.Issuer, &k.Issuer}, {c.Callout.XKey, &k.XKey}} {
		line, err := keyfile.ReadLine(f.path)
		if err != nil {
			errs = append(errs, err)
		}
		*f.dst = wire.Secret(line)
	}
	return k, errors.Join(errs...)
}

// brokerTLS returns what brokers of others are spoken to with: nil for no TLS.
func (l *link) brokerTLS() *tls.Config {
	if !strings.Contains(l.cfg.Broker.URL, "tls://") {
		return nil
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		Time:                 l.opts.Now,
		RootCAs:              l.parts.authority.Roots(),
		VerifyConnection:     l.verifyBroker,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return l.shown.Load(), nil },
	}
}

// verifyBroker refuses everybody's certificate but a broker's: nodes have some
// of the same authority. TLS has verified the rest.
func (l *link) verifyBroker(state tls.ConnectionState) error {
	role, name, err := wire.RoleOf(state.PeerCertificates[0], l.cfg.TrustDomain)
	if err == nil && role != wire.RoleBroker {
		err = fmt.Errorf("certificate of %s %.100q is not a broker's", role, name)
	}
	return err
}

// show shows another certificate from now on.
func (l *link) show(c tls.Certificate) {
	if l.embedded != nil {
		l.embedded.SetCertificate(c)
		return
	}
	l.shown.Store(&c)
}

// authenticate has brokers that are not ours ask about connections, until ctx
// is done. One that does not answer to us now is tried again: nodes ask other
// provisioners meanwhile.
func (l *link) authenticate(ctx context.Context) error {
	if l.external == nil {
		return nil
	}
	asked := sync.OnceFunc(func() { close(l.asked) })
	for {
		err := l.external.Authenticate(ctx, func() {
			l.unasked.Store(nil)
			asked()
		})
		if ctx.Err() != nil {
			return nil
		}
		l.unasked.Store(&err)
		l.opts.Log.WarnContext(ctx, "brokers do not ask who may connect, trying again", "err", err)
		sleep(ctx, time.Second)
	}
}

// misconfigured returns why questions of brokers of others cannot be read, nil if they can.
func (l *link) misconfigured() error {
	if l.external == nil {
		return nil
	}
	return l.external.CalloutError()
}

// storeComesUp is how long the store of a cluster may take to be of use after a
// server has answered: it elects a leader for each stream, in 4 to 9 s measured.
const storeComesUp = time.Minute

// openStore opens the store. A cluster's is tried again for a while.
func (l *link) openStore(ctx context.Context, cfg store.Config) (*store.Store, error) {
	if l.external == nil {
		return store.Open(ctx, cfg)
	}
	open := func(ctx context.Context) (*store.Store, error) { return store.Open(ctx, cfg) }
	return Persist(ctx, l.opts.Log, open, store.ErrInstallation, store.ErrNoWatermark)
}

// Persist calls use each second until it succeeds or fails with one of the final errors, or the store has had the time
// to come up.
func Persist[T any](
	ctx context.Context, log *slog.Logger, use func(context.Context) (T, error), final ...error,
) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, storeComesUp)
	defer cancel()
	for {
		v, err := use(ctx)
		if err == nil || slices.ContainsFunc(final, func(f error) bool { return errors.Is(err, f) }) {
			return v, err
		}
		log.WarnContext(ctx, "the store is not of use yet, trying again", "err", err)
		if !sleep(ctx, time.Second) {
			return v, err
		}
	}
}

// storeCapacity is what of its disk the store may ever take, 0 if that is not
// ours to know.
func (l *link) storeCapacity() (int64, error) {
	if l.external != nil {
		return 0, nil
	}
	_, most, err := l.opts.StoreSize(l.cfg.StoreDir())
	return most, err
}

// syncStore brings streams that were made to the disk, where it is ours.
func (l *link) syncStore() error {
	if l.external != nil {
		return nil
	}
	l.embedded.StageBatches(store.Batched)
	return disk.Sync(l.cfg.StoreDir())
}

// storeSize is what the file system of dir has for the store.
func storeSize(dir string) (limit, most int64, err error) {
	if limit, err = disk.StoreLimit(dir); err != nil {
		return 0, 0, err
	}
	most, err = disk.StoreCapacity(dir)
	return limit, most, err
}

// ownFault returns why this provisioner must not answer nodes and brokers, nil if it may: its clock is wrong, or it
// cannot read what brokers ask. It is for brokers outside of the process, which have other provisioners to ask.
func (l *link) ownFault() error {
	clock := l.live.clock.Load()
	return cmp.Or(clock.Check(), clock.Differs(), l.external.CalloutError())
}

// clockConfig has the clock compared with that of a store on other machines.
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
