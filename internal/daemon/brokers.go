package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/conffile"
	"muster/internal/disk"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/provisioner/broker"
	"muster/provisioner/store"
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
// `muster provisioner init --cluster` makes them.
type ExternalConfig struct {
	// Credentials and SystemCredentials log in to the accounts MUSTER and SYS:
	// files with the seed of a user nkey, or user:password, on one line.
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

	// TLS is for servers whose certificates are of another authority.
	TLS struct {
		// CA is a file with the roots of the servers' certificates, PEM.
		// Defaults to the installation's own, and the servers are brokers of its
		// then.
		CA string `yaml:"ca"`

		// Certificate and Key are files with what the provisioner shows, PEM.
		// Without them it issues itself a certificate, and keeps it in memory.
		Certificate string `yaml:"certificate"`
		Key         string `yaml:"key"`
	} `yaml:"tls"`
}

// paths returns all paths in c.
func (c *ExternalConfig) paths() []*string {
	return []*string{&c.Credentials, &c.SystemCredentials, &c.Callout.Issuer, &c.Callout.XKey, &c.TLS.CA, &c.TLS.Certificate, &c.TLS.Key}
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
	if (e.TLS.Certificate == "") != (e.TLS.Key == "") {
		v.Bad("broker.tls", "has one of certificate and key, want both or neither")
	}
	if c.Broker.WebSocket.Listen != "" {
		v.Bad("broker.websocket.listen", "set together with broker.url: it is for the servers' own configuration")
	}
	if c.Broker.MaxConnections != 0 {
		v.Bad("broker.max_connections", "set together with broker.url: it is for the servers' own configuration")
	}
}

// makeBroker makes the broker that the configuration is about.
func (d *Daemon) makeBroker() error {
	gate := broker.GateConfig{
		TrustDomain: d.cfg.TrustDomain, VerifyToken: d.verifyToken, AdmitNode: d.admitNode, AdmitReturning: d.admitReturning, Now: d.opts.Now,
	}
	if d.cfg.Broker.URL != "" {
		return d.makeExternal(gate)
	}
	limit, err := d.storeLimit()
	if err != nil {
		return fmt.Errorf("data_dir: %w", err)
	}
	b, err := broker.New(broker.Config{
		Listen:         d.cfg.Broker.Listen,
		StoreDir:       d.cfg.StoreDir(),
		MaxStoreBytes:  limit,
		MaxConnections: d.cfg.Broker.MaxConnections,
		WebSocket:      broker.WebSocketConfig{Listen: d.cfg.Broker.WebSocket.Listen, Plain: d.cfg.Broker.WebSocket.Plain},
		Certificate:    d.parts.shown,
		ClientCAs:      d.parts.authority.Roots(),
		Gate:           gate,
		Refused:        d.connectionRefused,
		Log:            d.opts.Log,
	})
	if err != nil {
		return err
	}
	d.broker, d.embedded = b, b
	return nil
}

func (d *Daemon) makeExternal(gate broker.GateConfig) error {
	config, err := d.brokerTLS()
	if err != nil {
		return fmt.Errorf("broker.tls: %w", err)
	}
	e, err := broker.NewExternal(broker.ExternalConfig{
		URLs: d.cfg.Broker.URL, TLS: config, Keys: d.parts.brokerKeys, Gate: gate, Refused: d.connectionRefused, Log: d.opts.Log,
		Appeared: func() { d.rechecks.all() }, Withdrawn: d.withdrawn.now,
	})
	if err != nil {
		return err
	}
	d.broker, d.external = e, e
	return nil
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
		if f.path == "" {
			continue // said already
		}
		line, err := keyfile.ReadLine(f.path)
		if err != nil {
			errs = append(errs, err)
		}
		*f.dst = wire.Secret(line)
	}
	return k, errors.Join(errs...)
}

// brokerTLS returns what brokers of others are spoken to with: nil for no TLS.
func (d *Daemon) brokerTLS() (*tls.Config, error) {
	c := d.cfg.Broker.External.TLS
	if c.CA == "" && c.Certificate == "" && !strings.Contains(d.cfg.Broker.URL, "tls://") {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Time: d.opts.Now, GetClientCertificate: d.shownToBroker}
	if c.Certificate != "" {
		// Read for each connection, so that it can be renewed while we run.
		read := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			certificate, err := keyPair(c.Certificate, c.Key)
			return &certificate, err
		}
		if _, err := read(nil); err != nil {
			return nil, err
		}
		config.GetClientCertificate = read
	}
	if c.CA == "" {
		config.RootCAs = d.parts.authority.Roots()
		config.VerifyConnection = d.verifyBroker
		return config, nil
	}
	b, err := conffile.ReadFile(c.CA)
	if err != nil {
		return nil, err
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s: no certificate in it", c.CA)
	}
	return config, nil
}

// shownToBroker returns the certificate of this provisioner.
func (d *Daemon) shownToBroker(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return d.shown.Load(), nil
}

// verifyBroker refuses everybody's certificate but a broker's: nodes have some
// of the same authority. TLS has verified the rest.
func (d *Daemon) verifyBroker(state tls.ConnectionState) error {
	role, name, err := wire.RoleOf(state.PeerCertificates[0], d.cfg.TrustDomain)
	if err == nil && role != wire.RoleBroker {
		err = fmt.Errorf("certificate of %s %.100q is not a broker's", role, name)
	}
	return err
}

// show shows another certificate from now on.
func (d *Daemon) show(c tls.Certificate) error {
	if d.embedded != nil {
		return d.embedded.SetCertificate(c)
	}
	d.shown.Store(&c)
	return nil
}

// authenticate has brokers that are not ours ask about connections, until ctx
// is done. One that does not answer to us now is tried again: nodes ask other
// provisioners meanwhile.
func (d *Daemon) authenticate(ctx context.Context) error {
	if d.external == nil {
		return nil
	}
	again := time.NewTicker(time.Second)
	defer again.Stop()
	var once sync.Once
	for {
		err := d.external.Authenticate(ctx, func() {
			d.unasked.Store(nil)
			once.Do(func() { close(d.asked) })
		})
		if ctx.Err() != nil {
			return nil
		}
		d.unasked.Store(&err)
		d.opts.Log.WarnContext(ctx, "brokers do not ask who may connect, trying again", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

// misconfigured returns why questions of brokers of others cannot be read, nil if they can.
func (d *Daemon) misconfigured() error {
	if d.external == nil {
		return nil
	}
	return d.external.Unread()
}

// storeComesUp is how long the store of a cluster may take to be of use after a
// server has answered: it elects a leader for each stream, in 4 to 9 s measured.
const storeComesUp = time.Minute

// openStore opens the store. A cluster's is tried again for a while.
func (d *Daemon) openStore(ctx context.Context, cfg store.Config) (*store.Store, error) {
	if d.external == nil {
		return store.Open(ctx, cfg)
	}
	ctx, cancel := context.WithTimeout(ctx, storeComesUp)
	defer cancel()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		s, err := store.Open(ctx, cfg)
		if err == nil || errors.Is(err, store.ErrInstallation) || errors.Is(err, store.ErrNoWatermark) || ctx.Err() != nil {
			return s, err
		}
		d.opts.Log.WarnContext(ctx, "the store is not of use yet, trying again", "err", err)
		select {
		case <-ctx.Done():
			return nil, err
		case <-again.C:
		}
	}
}

// expected is the installation whose store has to be there: an empty cluster is no
// new one for a provisioner that has written to another, nor is a directory that is
// gone, whose tokens would have all of their uses again. Empty for none.
func (d *Daemon) expected() string { return d.followers.Load().journal.Installation() }

// storeLimit is what JetStream may take, as the disk is now.
func (d *Daemon) storeLimit() (int64, error) {
	limit, _, err := d.opts.StoreSize(d.cfg.StoreDir())
	return limit, err
}

// storeCapacity is what of its disk the store may ever take, 0 if that is not
// ours to know.
func (d *Daemon) storeCapacity() (int64, error) {
	if d.external != nil {
		return 0, nil
	}
	_, most, err := d.opts.StoreSize(d.cfg.StoreDir())
	return most, err
}

// syncStore brings streams that were made to the disk, where it is ours.
func (d *Daemon) syncStore() error {
	if d.external != nil {
		return nil
	}
	return disk.Sync(d.cfg.StoreDir())
}

// storeSize is what the file system of dir has for the store.
func storeSize(dir string) (limit, most int64, err error) {
	if limit, err = disk.StoreLimit(dir); err != nil {
		return 0, 0, err
	}
	most, err = disk.StoreCapacity(dir)
	return limit, most, err
}
