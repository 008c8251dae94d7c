package provisioner

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
)

// PauseSchema is the version of a pause's JSON form.
const PauseSchema = 1

// MaxPauses bounds the sites that are paused at once; chosen, more are the whole
// installation.
const MaxPauses = 100

// A Pause says that nobody enrolls, by an operator's word, until another operator's
// resumes. Of several about one site, the last one counts.
type Pause struct {
	Schema   int       `json:"schema"`
	Site     jwt.Site  `json:"site,omitempty"`     // only there; empty for the whole installation
	Renewals bool      `json:"renewals,omitempty"` // neither does anybody renew
	Resumed  bool      `json:"resumed,omitempty"`  // it is over
	At       time.Time `json:"at"`                 // UTC, to the second
	Cause
}

// Check reports what about a pause cannot be. It is run on each that is read.
func (s *Pause) Check() error {
	if s.Schema != PauseSchema {
		return fmt.Errorf("pause: schema %d, want %d", s.Schema, PauseSchema)
	}
	if s.Site != "" {
		if _, err := jwt.ParseSite(string(s.Site)); err != nil {
			return fmt.Errorf("pause: %w", err)
		}
	}
	return nil
}

// scope says what is paused, for people.
func (s *Pause) scope() string {
	if s.Site == "" {
		return "everywhere"
	}
	return fmt.Sprintf("at site %q", s.Site)
}

// Because is why nobody enrolls, for operators.
func (s *Pause) Because() error {
	why := s.Why
	if why != "" {
		why = ": " + why
	}
	what := ""
	if s.Renewals {
		what = ", renewals too,"
	}
	return fmt.Errorf("paused %s%s by %s since %s%s", s.scope(), what, s.By, s.At.Format(time.RFC3339), why)
}

// LogKey is the key of the log's entries about the pause's site.
func (s *Pause) LogKey() string { return pauseKey(s.Site) }

// The keys of pauses: a site may hold what a subject of the store cannot.
const (
	pauseAll    = "all"
	pauseAtSite = "site-" // + the site in hex
)

func pauseKey(site jwt.Site) string {
	if site == "" {
		return pauseAll
	}
	return pauseAtSite + hex.EncodeToString([]byte(site))
}

// pausedBy returns the pause that an entry is, nil for one that is over. One that cannot be read
// pauses where it is about.
func pausedBy(key string, e Entry[*Pause]) *Pause {
	switch {
	case e.Unread == nil && e.Value.Resumed:
		return nil
	case e.Unread == nil:
		return e.Value
	}
	site, _ := hex.DecodeString(strings.TrimPrefix(key, pauseAtSite))
	if key == pauseAll {
		site = nil
	}
	return &Pause{Schema: PauseSchema, Site: jwt.Site(site), At: e.At.UTC().Truncate(time.Second), Cause: CauseUnread}
}

// pauses are those in force, as this process knows them.
type pauses struct {
	log Log[*Pause]

	// reports bounds what is written of the refusals: a fleet that waits for the
	// end would push its own history out of the events. The metrics count them all.
	reports *rate.Limiter
}

// of returns the pause of exactly this site, "" for the installation's, or nil.
func (ps *pauses) of(site jwt.Site) *Pause {
	key := pauseKey(site)
	e, found := ps.log.Get(key)
	if !found {
		return nil
	}
	return pausedBy(key, e)
}

// about returns a pause that covers one of the sites, or nil. A renewal is
// covered by those that say so.
func (ps *pauses) about(renewal bool, sites ...jwt.Site) *Pause {
	for _, site := range append([]jwt.Site{""}, sites...) {
		if s := ps.of(site); s != nil && (s.Renewals || !renewal) {
			return s
		}
	}
	return nil
}

// list returns what is paused, by site.
func (ps *pauses) list() []*Pause {
	list := []*Pause{}
	for key, e := range ps.log.All() {
		if s := pausedBy(key, e); s != nil {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *Pause) int { return cmp.Compare(a.Site, b.Site) })
	return list
}

// ErrPauses means that a pause cannot be as it is asked for. The text says why.
var ErrPauses = errors.New("pause not accepted")

// ErrNotPaused means that there is nothing to resume.
var ErrNotPaused = errors.New("not paused")

// Pause has nobody enroll, at a site or, if that is empty, anywhere: on every
// provisioner within a second and in this process at once, also after restarts,
// until [Provisioner.Resume]. Nodes are told [wire.CodePaused] and come back.
// Confirmations and connections to the fleet go on; so do renewals, unless
// renewals is true. What is in hand is finished. It replaces a pause of the same
// site. The error is [ErrPauses]; after any other it may have happened, and asking
// again is harmless.
func (p *Provisioner) Pause(ctx context.Context, site jwt.Site, renewals bool, c Cause) (*Pause, error) {
	s := &Pause{Schema: PauseSchema, Site: site, Renewals: renewals, At: p.now(), Cause: c}
	err := errors.Join(c.Check(), s.Check())
	if n := len(p.Pauses()); n >= MaxPauses && p.pauses.of(site) == nil {
		err = errors.Join(err, fmt.Errorf("%d sites are paused, limit %d: pause the whole installation", n, MaxPauses))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPauses, err)
	}
	told := events.Event{Type: events.Paused, Time: p.moment(), Site: site, Renewals: renewals, By: c.By, Why: c.Why}
	if _, err := change(ctx, p.logs.Pauses, s.LogKey(), func(Entry[*Pause], bool) (*Pause, error) { return s, nil }); err != nil {
		return nil, fmt.Errorf("pause %s: %w", s.scope(), err)
	}
	p.cfg.Emit(told)
	p.cfg.Log.WarnContext(ctx, "enrollment paused", "site", site, "renewals", renewals, "by", c.By, "why", c.Why)
	return s, nil
}

// Resume ends the pause of a site, or the installation's if that is empty: each
// ends by its own word. The error is [ErrNotPaused] if there is none, and [ErrState] if
// somebody else pauses anew meanwhile: that was not meant. After any other
// it may have happened, and asking again is harmless.
func (p *Provisioner) Resume(ctx context.Context, site jwt.Site, c Cause) error {
	if err := c.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrPauses, err)
	}
	before, _ := p.logs.Pauses.Get(pauseKey(site))
	s := p.pauses.of(site)
	if s == nil {
		return fmt.Errorf("resume %s: %w", (&Pause{Site: site}).scope(), ErrNotPaused)
	}
	over := &Pause{Schema: PauseSchema, Site: site, Resumed: true, At: p.now(), Cause: c}
	told := events.Event{Type: events.Resumed, Time: p.moment(), Site: site, Elapsed: over.At.Sub(s.At), By: c.By, Why: c.Why}
	_, err := p.logs.Pauses.Put(ctx, over.LogKey(), over, before.Revision)
	if errors.Is(err, ErrConflict) {
		if now := p.pauses.of(site); now != nil {
			err = fmt.Errorf("%w: it was paused anew meanwhile: %w: resume again if that is to end as well", ErrState, now.Because())
		} else {
			err = ErrNotPaused // by now
		}
	}
	if err != nil {
		return fmt.Errorf("resume %s: %w", s.scope(), err)
	}
	p.cfg.Emit(told)
	p.cfg.Log.InfoContext(ctx, "enrollment resumed", "site", site, "elapsed", told.Elapsed, "by", c.By, "why", c.Why)
	return nil
}

// Pauses returns what is paused, the installation first and then sites by name.
func (p *Provisioner) Pauses() []*Pause { return p.pauses.list() }

// Paused returns why somebody cannot enroll, nil if nothing is paused: the state
// of the alarm [wire.CodePaused].
func (p *Provisioner) Paused() error {
	var errs []error
	for _, s := range p.Pauses() {
		errs = append(errs, s.Because())
	}
	return errors.Join(errs...)
}

// checkPaused refuses an attempt while there is a pause that covers it: that of
// the installation, of the site where the node is, or of its token's.
func (p *Provisioner) checkPaused(a *attempt) error {
	s := p.pauses.about(a.renewal, p.siteOf(a.source), a.token.Limits.Site)
	if s == nil {
		return nil
	}
	return refuse(string(a.identity), wire.CodePaused, s.Because())
}
