package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// PauseSchema is the version of a pause's JSON form.
const PauseSchema = 1

// MaxPauses bounds the sites that are paused at once; chosen, more are the whole
// installation.
const MaxPauses = 100

// The events of pauses.
const (
	EventPaused  EventType = "io.muster.enrollment.paused"
	EventResumed EventType = "io.muster.enrollment.resumed"
)

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

// A PauseStore keeps pauses. All provisioners share it, and a backup has them.
type PauseStore interface {
	// NextPause returns the first entry after the given place, or nil and 0 if there
	// is none. What it returns has passed [Pause.Check]. One that cannot be read comes as
	// a pause, with an error that wraps [ErrUnread].
	NextPause(ctx context.Context, after Sequence) (*Pause, Sequence, error)

	// Pauses calls each for what NextPause would return, as [AnswerStore].Answers does.
	Pauses(ctx context.Context, after Sequence, each func(s *Pause, at Sequence, unread error) error) error

	// PutPause writes an entry, provided that the newest about its site is still after,
	// or whatever that is if after is [AnyRevision], and returns once it is on disk. It
	// returns [ErrConflict] if it was not written; after any other error it may be
	// written or may yet be, and writing it again is harmless.
	PutPause(ctx context.Context, s *Pause, after Revision) error
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
	if n := len(p.Pauses()); n >= MaxPauses && p.pauses.of(site).Pause == nil {
		err = errors.Join(err, fmt.Errorf("%d sites are paused, limit %d: pause the whole installation", n, MaxPauses))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPauses, err)
	}
	told := Event{Type: EventPaused, Time: p.moment(), Site: site, Renewals: renewals, By: c.By, Why: c.Why}
	if err := p.putPause(ctx, s, AnyRevision); err != nil {
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
	if err := p.pauses.look(ctx); err != nil { // another provisioner may have paused just now
		return fmt.Errorf("resume: %w", err)
	}
	s := p.pauses.of(site)
	if s.Pause == nil {
		return fmt.Errorf("resume %s: %w", (&Pause{Site: site}).scope(), ErrNotPaused)
	}
	over := &Pause{Schema: PauseSchema, Site: site, Resumed: true, At: p.now(), Cause: c}
	told := Event{Type: EventResumed, Time: p.moment(), Site: site, Elapsed: over.At.Sub(s.At), By: c.By, Why: c.Why}
	err := p.putPause(ctx, over, Revision(s.at))
	if errors.Is(err, ErrConflict) {
		if err = p.pauses.look(ctx); err == nil {
			switch now := p.pauses.of(site); {
			case now.Pause == nil:
				err = ErrNotPaused // by now
			case now.at != s.at:
				err = fmt.Errorf("%w: it was paused anew meanwhile: %w: resume again if that is to end as well", ErrState, now.Because())
			default: // an entry that cannot be read, and is no site's
				err = p.putPause(ctx, over, AnyRevision)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("resume %s: %w", s.scope(), err)
	}
	p.cfg.Emit(told)
	p.cfg.Log.InfoContext(ctx, "enrollment resumed", "site", site, "elapsed", told.Elapsed, "by", c.By, "why", c.Why)
	return nil
}

// putPause writes an entry and puts it in force in this process. What counts
// here is what the store says, so that all provisioners agree on who was last.
func (p *Provisioner) putPause(ctx context.Context, s *Pause, after Revision) error {
	if err := p.cfg.Store.PutPause(ctx, s, after); err != nil {
		return err
	}
	return p.pauses.look(ctx)
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
