package daemon

import (
	"context"
	"slices"
	"time"

	"muster/internal/span"
	"muster/provisioner"
	"muster/provisioner/trust"
)

const rolloverInterval = 24 * time.Hour

// watchAuthorities tells operators when to remove a previous authority.
func (d *Daemon) watchAuthorities(ctx context.Context) error {
	if len(d.cfg.CA.Previous) == 0 {
		return nil
	}
	return span.Every(ctx, rolloverInterval, func(ctx context.Context) {
		live, err := d.liveByIssuer(ctx)
		if err != nil {
			if ctx.Err() == nil {
				d.opts.Log.WarnContext(ctx, "live certificates not counted", "err", err)
			}
			return
		}
		root := ""
		for _, c := range d.parts.authority.Certificates() {
			if c.What == "root" {
				root = c.Fingerprint
			}
			if c.Authority == "present" || c.What != "issuing" {
				continue
			}
			if n := live[c.KeyID]; n > 0 {
				d.opts.Log.InfoContext(ctx, "previous certificate authority is still needed", "authority", c.Name,
					"issuer", c.KeyID, "live", n)
				continue
			}
			d.opts.Log.InfoContext(ctx, "previous certificate authority has no live certificate", "authority", c.Name,
				"issuer", c.KeyID,
				"remedy", "take its lines out of ca.previous once no token in use pins its root, sha256 "+root)
		}
	})
}

func (d *Daemon) liveByIssuer(ctx context.Context) (map[string]int, error) {
	now := d.opts.Now()
	live, err := d.Orders().Operators.Issuers(now)
	if err != nil {
		return nil, err
	}
	err = d.Store().Records(ctx, func(record *provisioner.Record, _ trust.Revision) error {
		serials := record.Live(now)
		for _, i := range []*provisioner.Issued{record.Current, record.Next} {
			if i != nil && slices.Contains(serials, i.Serial) {
				live[d.parts.authority.IssuerOf(i.DER)]++
			}
		}
		return nil
	})
	return live, err
}
