package operate

import (
	"context"
	"errors"
	"fmt"

	"muster/provisioner/orders"

	"muster/jwt"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// MaxPauses bounds the paused sites: to pause more, pause the installation.
const MaxPauses = 100

// ErrNotPaused means that there is nothing to resume.
var ErrNotPaused = errors.New("not paused")

// Pauses stop enrollment at a site or everywhere.
type Pauses struct{ *base }

// List returns the installation's pause, then sites by name.
func (p *Pauses) List() []*orders.Pause { return p.logs.Pauses.List() }

// Standing returns the pauses as an error: the state of the alarm [wire.CodePaused].
func (p *Pauses) Standing() error {
	var errs []error
	for _, s := range p.List() {
		errs = append(errs, s.Because())
	}
	return errors.Join(errs...)
}

// Begin stops enrollment at a site, or everywhere if site is empty, until [Pauses.End]; with renewals true it stops
// renewals too. It replaces the site's earlier pause. Running requests are finished; later ones get [wire.CodePaused]
// and retry. The error is a [provisioner.OrderError].
func (p *Pauses) Begin(ctx context.Context, site jwt.Site, renewals bool, c trust.Cause) (_ *orders.Pause, err error) {
	s := &orders.Pause{
		Schema:   orders.PauseSchema,
		Site:     site,
		Renewals: renewals,
		At:       p.now(),
		Cause:    c,
	}
	defer about(&err, "pause %.80s", s.Scope())
	err = errors.Join(c.Check(), s.Check())
	if n := len(p.List()); n >= MaxPauses && p.logs.Pauses.Of(site) == nil {
		err = errors.Join(err, fmt.Errorf("%d sites are paused, limit %d: pause the whole installation", n, MaxPauses))
	}
	if err := wrong(err); err != nil {
		return nil, err
	}
	e := p.event(events.Paused, c)
	e.Site, e.Renewals = site, renewals
	_, err = trust.Change(ctx, p.logs.Pauses.Log, s.LogKey(),
		func(trust.Entry[*orders.Pause]) (*orders.Pause, error) { return s, nil })
	if err != nil {
		return nil, err
	}
	p.report(ctx, "enrollment paused", e, "site", site, "renewals", renewals)
	return s, nil
}

// End ends the pause of one site, or the installation's if site is empty. The error is [ErrNotPaused], or
// [trust.ErrState] if another operator pauses meanwhile.
func (p *Pauses) End(ctx context.Context, site jwt.Site, c trust.Cause) (err error) {
	over := &orders.Pause{Schema: orders.PauseSchema, Site: site, Resumed: true, At: p.now(), Cause: c}
	defer about(&err, "resume %.80s", over.Scope())
	if err := wrong(c.Check()); err != nil {
		return err
	}
	before, _ := p.logs.Pauses.Get(over.LogKey())
	s := p.logs.Pauses.Of(site)
	if s == nil {
		return ErrNotPaused
	}
	e := p.event(events.Resumed, c)
	e.Site, e.Elapsed = site, over.At.Sub(s.At)
	if _, err := p.logs.Pauses.Put(ctx, over.LogKey(), over, before.Revision); err != nil {
		return changedMeanwhile(err)
	}
	p.report(ctx, "enrollment resumed", e, "site", site, "elapsed", e.Elapsed)
	return nil
}
