package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/trust"
)

// rollover trusts previous certificate authorities for as long as a live
// certificate is of them, of a node, an operator or a broker of others.
type rollover struct {
	authority *ca.Authority
	records   func(ctx context.Context, each func(*provisioner.Record) error) error // the newest of each identity
	operators func() (map[string]int, error)                                        // certificates of operators, by issuer
	brokers   func(ctx context.Context) (map[string][]byte, error)                  // what brokers of others show, by URL; nil if that is not of ours
	changed   func()                                                                // trust has changed
	now       func() time.Time
	log       *slog.Logger
}

// watchAuthorities looks at once, and then every so often, whether previous
// authorities are still needed, until ctx is done. A look that fails changes
// nothing.
func (l *link) watchAuthorities(ctx context.Context) error {
	if len(l.cfg.CA.Previous) == 0 {
		return nil
	}
	r := &rollover{
		authority: l.parts.authority, now: l.opts.Now, log: l.opts.Log,
		records: func(ctx context.Context, each func(*provisioner.Record) error) error {
			return l.Store().Records(ctx, func(r *provisioner.Record, _ trust.Revision) error { return each(r) })
		},
		operators: func() (map[string]int, error) { return l.live.orders.Load().Operators.Issuers(l.opts.Now()) },
		changed: func() {
			if l.embedded != nil { // others read a file, and are told by an operator
				l.embedded.SetClientCAs(l.parts.authority.Roots())
			}
			l.parts.certificate.wish()
			l.parts.api.wish()
		},
	}
	if l.external != nil && l.cfg.Broker.External.TLS.CA == "" {
		r.brokers = l.external.Shown
	}
	return every(ctx, l.opts.RolloverCheck, func() {
		if err := r.check(ctx); err != nil && !errors.Is(err, context.Canceled) {
			l.opts.Log.WarnContext(ctx, "live certificates not counted", "err", err)
		}
	})
}

// check counts live certificates by issuer and trusts what is needed: no less,
// should a certificate have come back to life with a clock that was set right,
// and no more. Repeating it is harmless.
func (r *rollover) check(ctx context.Context) error {
	live := map[string]int{}
	now := r.now()
	err := r.records(ctx, func(record *provisioner.Record) error {
		serials := record.Live(now)
		for _, i := range []*provisioner.Issued{record.Current, record.Next} {
			if i == nil {
				continue
			}
			if at := slices.Index(serials, i.Serial); at >= 0 {
				serials = slices.Delete(serials, at, at+1) // once, if it is both
				live[r.authority.IssuerOf(i.DER)]++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	// An operator has no other certificate to come with, and renews by another operator's
	// hand. Of whom it is not known whose certificate they have, it may be any one's.
	operators, err := r.operators()
	if err != nil {
		return err
	}
	for issuer, n := range operators {
		if issuer != "" {
			live[issuer] += n
		}
	}
	unknown := operators[""] + r.countBrokers(ctx, live)
	before := r.authority.Issuers()
	for _, i := range before {
		if !i.Present {
			r.authority.SetTrusted(i.KeyID, live[i.KeyID]+unknown > 0)
		}
	}
	changed := false
	for n, i := range r.authority.Issuers() {
		switch {
		case i.Present:
		case i.Trusted != before[n].Trusted:
			changed = true
			r.report(ctx, i, live[i.KeyID])
		case i.Trusted:
			r.log.InfoContext(ctx, "previous certificate authority is still needed", "authority", i.Name, "issuer", i.KeyID, "live", live[i.KeyID])
		}
	}
	if changed {
		r.changed()
	}
	return nil
}

// countBrokers adds the certificates of brokers of others to those that are live, by issuer, and
// returns 1 if some did not show theirs, which may be of any authority: without one that is
// trusted, neither provisioners nor nodes would connect to them any more.
func (r *rollover) countBrokers(ctx context.Context, live map[string]int) (unknown int) {
	if r.brokers == nil {
		return 0
	}
	shown, err := r.brokers(ctx)
	present := r.authority.Issuers()[0].KeyID
	for url, der := range shown {
		issuer := r.authority.IssuerOf(der)
		if live[issuer]++; issuer != present {
			r.log.WarnContext(ctx, "broker has a certificate of a previous authority", "broker", url, "issuer", issuer,
				"remedy", "renew it with `muster broker certificate`, and have the server read it, before ca.previous goes")
		}
	}
	if err == nil {
		return 0
	}
	if ctx.Err() == nil {
		r.log.WarnContext(ctx, "brokers did not all show their certificates: previous authorities stay trusted", "err", err)
	}
	return 1
}

func (r *rollover) report(ctx context.Context, i ca.Issuer, live int) {
	if i.Trusted {
		r.log.WarnContext(ctx, "previous certificate authority is needed again", "authority", i.Name, "issuer", i.KeyID, "live", live)
		return
	}
	r.log.InfoContext(ctx, "previous certificate authority is not trusted any more: no live certificate is of it", "authority", i.Name,
		"issuer", i.KeyID, "remedy", "take its lines out of ca.previous once no token in use pins its root, sha256 "+i.Fingerprint)
}
