package daemon

import (
	"context"
	"math/rand/v2"
	"slices"
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

const defaultChoriaRenewals = 10

func (c *Config) validateChoriaRenew(v *Mistakes) {
	r := &c.Choria.Renew
	within(v, "choria.renew.per_minute", r.PerMinute, 1, fleet.MaxLimit)
	if r.Before > 0 && (r.SecretFile == "" || c.Choria.Fleet.URL == "") {
		v.Bad("choria.renew.before", "set without choria.renew.secret_file or choria.fleet")
	}
}

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
		Sort:  fleet.ByExpiry,
		Limit: fleet.MaxLimit,
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
