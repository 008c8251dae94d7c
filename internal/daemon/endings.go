package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/internal/span"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/puppet"
	"muster/provisioner/trust"
)

const (
	// endsSoon is enough time to bring another credential to all machines.
	endsSoon = 30 * 24 * time.Hour

	// A credential that was made for a day or less needs no warning.
	shortLife = 24 * time.Hour
)

// endings collects what ends soon, a line each.
type endings struct {
	now   time.Time
	lines []string
}

// add notes what ends within the span, from now on. Zero times are no bounds.
func (e *endings) add(within time.Duration, from, to time.Time, what, remedy string) {
	if to.IsZero() || !e.now.Before(to) || to.Sub(e.now) > within || to.Sub(from) <= shortLife {
		return
	}
	e.lines = append(e.lines, fmt.Sprintf("%s ends at %s: %s", what, to.UTC().Format(time.RFC3339), remedy))
}

// EndsSoon returns a line for each authority that ends sooner than its certificates would, and for each signer,
// operator's certificate, token in use and certificate of the API that ends within 30 days, or signer that has ended.
// Nil: there is none. Before the daemon serves, only files are known.
func (b *base) EndsSoon() error {
	e := &endings{now: b.opts.Now()}
	e.addAuthorities(b.parts.authority, time.Duration(b.cfg.Certificates.MaxLifetime))
	e.addAPI(b.parts.api)
	if p := b.Operator(); p != nil {
		e.addStored(p)
	} else {
		for _, s := range b.parts.signers {
			e.addSigner(s.Name, s.NotBefore, s.NotAfter)
		}
	}
	if len(e.lines) == 0 {
		return nil
	}
	slices.Sort(e.lines)
	return errors.New(strings.Join(e.lines, "\n"))
}

func (e *endings) addAuthorities(a *ca.Authority, longest time.Duration) {
	for _, c := range a.Certificates() {
		within, remedy := endsSoon, "give nodes, brokers, operators and tokens the present authority until then"
		if c.Authority == "present" {
			within, remedy = max(endsSoon, longest), fmt.Sprintf("certificates that would live longer, up to %s, are "+
				"cut short: replace the authority with `muster ca roll`", span.Format(longest))
		}
		if c.Authority == "puppet" {
			within, remedy = puppet.DefaultTTL, "make another with `muster ca roll` and `muster ca puppet`, and give "+
				"agents its bundle"
		}
		e.add(within, time.Time{}, c.NotAfter,
			fmt.Sprintf("the %s certificate %q of the %s authority", c.What, c.Name, c.Authority), remedy)
	}
}

// addAPI is about a certificate of another authority. Short ones are renewed by other programs in their last third.
func (e *endings) addAPI(a *shownCertificate) {
	if a == nil || a.own != nil {
		return
	}
	if leaf, err := a.leaf(); err == nil { // else a fault of the API
		e.add(min(endsSoon, leaf.NotAfter.Sub(leaf.NotBefore)/6), leaf.NotBefore, leaf.NotAfter,
			"the certificate of the API, "+a.path+",",
			"replace the file and "+a.key+"; they are read for each connection")
	}
}

func (e *endings) addSigner(name string, from, to time.Time) {
	if !to.IsZero() && !e.now.Before(to) {
		e.lines = append(e.lines, fmt.Sprintf("the certificate of signer %q ended at %s, and its tokens are refused: "+
			"accept a newer certificate of its key, or remove the signer", name, to.UTC().Format(time.RFC3339)))
	}
	e.add(endsSoon, from, to, fmt.Sprintf("the certificate of signer %q", name),
		"add another signer and sign the tokens in use anew; `muster signer add` says how")
}

func (e *endings) addStored(p *provisioner.Provisioner) {
	for _, s := range p.Config().Signers.List() {
		if !s.Removed {
			e.addSigner(s.Name, s.NotBefore, s.NotAfter)
		}
	}
	for _, o := range p.Config().Store.Logs().Operators.List() {
		if o.Ended == nil {
			e.add(endsSoon, o.At, o.Ends, "the certificate of operator "+o.Name,
				fmt.Sprintf("`muster operator add %s --role %s --certificate` makes another", o.Name, o.Role))
		}
	}
	for _, t := range p.TokensInUse() {
		e.add(endsSoon, t.IssuedAt, t.ExpiresAt, fmt.Sprintf("the token %s of signer %q", t.ID, t.SignerName),
			"sign another and put it in its place, or revoke it if no machine needs it")
	}
}

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
			if c.Authority != "previous" || c.What != "issuing" {
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
