package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/paging"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/broker"
	"muster/provisioner/choria"
	"muster/provisioner/fleet"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// ChoriaConfig configures the gateway for unmodified Choria servers. Without brokers there is none.
type ChoriaConfig struct {
	// Brokers are the fleet's, where servers go.
	Brokers []string `yaml:"brokers"`

	// CA has authorities of these brokers, beside muster's own.
	CA string `yaml:"ca"`

	Collectives []string `yaml:"collectives"`

	// Issuer is a chain issuer that signs server JWTs.
	Issuer choria.TokenFiles `yaml:"issuer"`

	// Fleet is a client's login at the broker of servers in their fleet, with a certificate or a token.
	Fleet choria.Login `yaml:"fleet"`

	ComeBack conffile.Span `yaml:"come_back"`

	Renew ChoriaRenewConfig `yaml:"renew"`
}

const defaultComeBack = conffile.Span(10 * time.Minute)

func (c *ChoriaConfig) paths() []*string {
	f := &c.Fleet
	return []*string{&c.CA, &c.Issuer.Token, &c.Issuer.Seed, &f.CA, &f.Certificate, &f.Key, &f.Token, &f.Seed,
		&c.Renew.SecretFile}
}

func (c *Config) validateChoria(v *Mistakes) {
	for i, b := range c.Choria.Brokers {
		v.Check(fmt.Sprintf("choria.brokers[%d]", i), choria.CheckBroker(b))
	}
	if len(c.Choria.Brokers) == 0 && (c.Choria.Issuer.Token != "" || len(c.Choria.Collectives) > 0) {
		v.Required("choria.brokers", "")
	}
	if (c.Choria.Issuer.Token == "") != (c.Choria.Issuer.Seed == "") {
		v.Bad("choria.issuer", "want both token and seed, or neither")
	}
	f := &c.Choria.Fleet
	byKey, byToken := f.Certificate != "" && f.Key != "", f.Token != "" && f.Seed != ""
	if f.URL != "" && byKey == byToken {
		v.Bad("choria.fleet", "want certificate and key, or token and seed")
	}
	r := &c.Choria.Renew
	within(v, "choria.renew.per_minute", r.PerMinute, 1, paging.MaxLimit)
	if r.Before > 0 && (r.SecretFile == "" || f.URL == "") {
		v.Bad("choria.renew.before", "set without choria.renew.secret_file or choria.fleet")
	}
}

// loadChoria returns nil without a gateway.
func (c *Config) loadChoria() (*choria.Settings, error) {
	if len(c.Choria.Brokers) == 0 {
		return nil, nil
	}
	s := &choria.Settings{
		Brokers:     c.Choria.Brokers,
		Collectives: c.Choria.Collectives,
		ComeBack:    time.Duration(c.Choria.ComeBack),
	}
	if c.Choria.CA != "" {
		b, err := inputfile.ReadText(c.Choria.CA, inputfile.Configured)
		if err != nil {
			return nil, conffile.Prefix("ca", err)
		}
		s.BrokerCA = string(b)
	}
	var err error
	if c.Choria.Issuer.Token != "" {
		if s.Issuer, err = c.Choria.Issuer.Load(); err == nil {
			err = s.Issuer.CheckIssuer()
		}
		if err != nil {
			return nil, conffile.Prefix("issuer", err)
		}
	}
	if c.Choria.Fleet.URL != "" {
		if s.Fleet, err = c.Choria.Fleet.Load(); err != nil {
			return nil, conffile.Prefix("fleet", err)
		}
	}
	return s, nil
}

// startChoria makes the gateway, if there is one, reachable for the gate.
func (d *Daemon) startChoria(p *provisioner.Provisioner, conn *nats.Conn) {
	if d.parts.choria == nil {
		return
	}
	d.live.choria.Store(choria.New(choria.Config{
		Conn:        conn,
		Provisioner: p,
		Leases:      d.Store(),
		Connected:   d.broker.Connected,
		Site:        d.parts.site,
		Connection:  broker.ChoriaConnection,
		Settings:    *d.parts.choria,
		Alarms:      d.alarms,
		Log:         d.opts.Log,
		Now:         d.opts.Now,
	}))
}

// ChoriaRenewConfig has Choria servers provisioned again before their certificates end: they have no renewal.
type ChoriaRenewConfig struct {
	// Before is the time before the end. 0: never.
	Before conffile.Span `yaml:"before"`

	// PerMinute bounds the servers that this provisioner orders back.
	PerMinute int `yaml:"per_minute"`

	// SecretFile has the shared secret of the servers' tokens.
	SecretFile string `yaml:"secret_file"`
}

const defaultChoriaRenewals = 10

// renewChoria orders back servers whose certificates end soon, one at a time in random order, so that a server that is
// away delays no other.
func (d *Daemon) renewChoria(ctx context.Context) error {
	r := &d.cfg.Choria.Renew
	if r.Before == 0 || d.parts.choria == nil {
		return nil
	}
	for span.Sleep(ctx, time.Minute/time.Duration(r.PerMinute)) {
		if err := d.renewOneChoria(ctx); err != nil {
			d.opts.Log.WarnContext(ctx, "server not provisioned again before its certificate ends", "err", err)
		}
	}
	return nil
}

func (d *Daemon) renewOneChoria(ctx context.Context) error {
	r := &d.cfg.Choria.Renew
	page, err := d.live.nodes.Load().List(ctx, fleet.Query{
		Filter: fleet.Filter{
			States:        []provisioner.State{provisioner.StateProvisioned},
			Protocol:      provisioner.ProtocolChoria.String(),
			ExpiresBefore: d.opts.Now().Add(time.Duration(r.Before)),
		},
		Query: paging.Query{Sort: paging.ByExpiry, Limit: paging.MaxLimit},
	})
	if err != nil {
		return err
	}
	due := slices.DeleteFunc(page.Nodes, func(n fleet.Node) bool {
		return d.live.provisioner.Load().Reprovisioned(n.Identity)
	})
	if len(due) == 0 {
		return nil
	}
	secret, err := keyfile.ReadLine(r.SecretFile, inputfile.Configured)
	if err != nil {
		return err
	}
	id := due[rand.IntN(len(due))].Identity //nolint:gosec // hides nothing
	_, err = d.live.orders.Load().Nodes.Command(ctx, id, operate.CommandOrder{
		Verb:   wire.VerbReprovision,
		Secret: wire.Secret(secret),
	}, trust.Cause{By: "muster", Why: "its certificate ends soon"})
	return err
}
