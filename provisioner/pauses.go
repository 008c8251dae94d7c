package provisioner

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"muster/jwt"
)

// pauses are those of the store that are in force, as this process knows them.
type pauses struct {
	store PauseStore
	log   *slog.Logger

	seen seen

	looking lookLock
	last    Sequence // guarded by looking

	// kept is replaced and never changed, so that a request costs one load; nil
	// while nothing is paused.
	kept atomic.Pointer[map[jwt.Site]placedPause]

	// reports bounds what is written of the refusals: a fleet that waits for the
	// end would push its own history out of the events. The metrics count them all.
	reports *rate.Limiter
}

// A placedPause is a pause and its place in the store.
type placedPause struct {
	*Pause
	at Sequence
}

func newPauses(store PauseStore, log *slog.Logger) *pauses {
	return &pauses{store: store, log: log, looking: newLookLock(), reports: rate.NewLimiter(reportsPerSecond, reportsAtOnce)}
}

// look reads what is new in the store. While that does not answer, what is known
// stays in force.
func (ps *pauses) look(ctx context.Context) error {
	if err := ps.looking.lock(ctx); err != nil {
		return err
	}
	defer ps.looking.unlock()
	return ps.lookLocked(ctx)
}

// lookLocked is look for callers that hold looking.
func (ps *pauses) lookLocked(ctx context.Context) error {
	began := time.Now()
	for n := 1; ; n++ {
		if n%lookOneByOne == 0 {
			ps.readMany(ctx)
		}
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		s, at, err := ps.store.NextPause(bounded, ps.last)
		cancel()
		if err != nil && !errors.Is(err, ErrUnread) || s == nil {
			ps.seen.looked(began, err)
			return err
		}
		ps.keep(ctx, placedPause{s, at}, err)
	}
}

// readAll is that of [Revocations].
func (ps *pauses) readAll(ctx context.Context) {
	if ps.looking.lock(ctx) == nil {
		defer ps.looking.unlock()
		ps.scan(ctx)
	}
}

// readMany is that of [Revocations]. The caller holds looking.
func (ps *pauses) readMany(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	ps.scan(ctx)
}

// scan reads what comes after what was read, until something goes wrong. The caller holds
// looking.
func (ps *pauses) scan(ctx context.Context) {
	_ = ps.store.Pauses(ctx, ps.last, func(s *Pause, at Sequence, unread error) error {
		ps.keep(ctx, placedPause{s, at}, unread)
		return nil
	})
}

// keep takes in what comes behind what was read, at its place. The caller holds looking.
func (ps *pauses) keep(ctx context.Context, s placedPause, unread error) {
	if unread != nil {
		ps.log.WarnContext(ctx, "pause not read, nobody enrolls where it is about", "site", s.Site, "err", unread)
	}
	ps.apply(s)
	ps.last = s.at
}

// followPauses looks for what other provisioners have paused or resumed. While the
// store does not answer, nobody enrolls anyway, and others say what ails it.
func (p *Provisioner) followPauses(ctx context.Context) { _ = p.pauses.look(ctx) }

// apply puts an entry in force. The caller holds looking.
func (ps *pauses) apply(s placedPause) {
	next := make(map[jwt.Site]placedPause)
	if kept := ps.kept.Load(); kept != nil {
		maps.Copy(next, *kept)
	}
	next[s.Site] = s
	if s.Resumed {
		delete(next, s.Site)
	}
	if len(next) == 0 {
		ps.kept.Store(nil)
		return
	}
	ps.kept.Store(&next)
}

// about returns a pause that covers one of the sites, or nil. A renewal is
// covered by those that say so.
func (ps *pauses) about(renewal bool, sites ...jwt.Site) *Pause {
	kept := ps.kept.Load()
	if kept == nil {
		return nil
	}
	for _, site := range append([]jwt.Site{""}, sites...) {
		if s := (*kept)[site]; s.Pause != nil && (s.Renewals || !renewal) {
			return s.Pause
		}
	}
	return nil
}

// of returns the pause of exactly this site, "" for the installation's, or none.
func (ps *pauses) of(site jwt.Site) placedPause {
	if kept := ps.kept.Load(); kept != nil {
		return (*kept)[site]
	}
	return placedPause{}
}

// list returns what is paused, by site.
func (ps *pauses) list() []*Pause {
	list := []*Pause{}
	if kept := ps.kept.Load(); kept != nil {
		for _, s := range *kept {
			list = append(list, s.Pause)
		}
	}
	slices.SortFunc(list, func(a, b *Pause) int { return cmp.Compare(a.Site, b.Site) })
	return list
}
