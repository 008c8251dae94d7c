package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// ChoriaRenewConfig has Choria servers provisioned again before their certificates end: they have no renewal.
type ChoriaRenewConfig struct {
	// Before is the time before the end. 0: never.
	Before conffile.Span `yaml:"before"`

	// PerMinute bounds the servers that this provisioner orders back.
	PerMinute int `yaml:"per_minute"`

	// SecretFile has the shared secret of the servers' tokens.
	SecretFile string `yaml:"secret_file"`
}

const (
	defaultChoriaRenewals = 10
	choriaRenewalRounds   = 6 // a minute
)

func (c *Config) validateChoriaRenew(v *Mistakes) {
	r := &c.Choria.Renew
	within(v, "choria.renew.per_minute", r.PerMinute, 1, fleet.MaxLimit)
	if r.Before > 0 && (r.SecretFile == "" || c.Choria.Fleet.URL == "") {
		v.Bad("choria.renew.before", "set without choria.renew.secret_file or choria.fleet")
	}
}

// renewChoria orders back servers whose certificates end soon, some in each round. A server that is away is tried again
// in a later round.
func (d *Daemon) renewChoria(ctx context.Context) error {
	r := &d.cfg.Choria.Renew
	if r.Before == 0 || d.parts.choria == nil {
		return nil
	}
	for span.Sleep(ctx, time.Minute/choriaRenewalRounds) {
		if err := d.renewChoriaOnce(ctx); err != nil {
			d.opts.Log.WarnContext(ctx, "nodes not provisioned again before their certificates end", "err", err)
		}
	}
	return nil
}

func (d *Daemon) renewChoriaOnce(ctx context.Context) error {
	r := &d.cfg.Choria.Renew
	secret, err := keyfile.ReadLine(r.SecretFile, inputfile.Configured)
	if err != nil {
		return err
	}
	page, err := d.live.nodes.Load().List(ctx, fleet.Query{
		Filter: fleet.Filter{
			States:        []provisioner.State{provisioner.StateProvisioned},
			Protocol:      provisioner.ProtocolChoria.String(),
			ExpiresBefore: d.opts.Now().Add(time.Duration(r.Before)),
		},
		Sort:  fleet.ByExpiry,
		Limit: fleet.MaxLimit,
	})
	if err != nil {
		return err
	}
	var failed error
	left := max(1, r.PerMinute/choriaRenewalRounds)
	for _, i := range rand.Perm(len(page.Nodes)) {
		id := page.Nodes[i].Identity
		if left == 0 || d.live.provisioner.Load().Reprovisioned(id) {
			continue
		}
		left--
		_, err := d.live.orders.Load().Nodes.Command(ctx, id, operate.CommandOrder{
			Verb:   wire.VerbReprovision,
			Secret: wire.Secret(secret),
		}, trust.Cause{By: "muster", Why: "its certificate ends soon"})
		if err != nil {
			failed = fmt.Errorf("of %d: %w", len(page.Nodes), err)
		}
	}
	return failed
}
