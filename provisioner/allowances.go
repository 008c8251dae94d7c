package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/policies"
)

// allowances is the allow-list of the store as this process knows it. What of
// it is limited is counted in the store, see takeAllowance.
type allowances struct {
	store   AllowanceStore
	journal Journal // nil if there is none
	log     *slog.Logger

	seen    seen
	putting sync.Mutex // one change at a time

	uses pendingUses // on their way into the store

	looking lookLock
	last    Sequence // guarded by looking
	even    bool     // guarded by looking: the store has what the journal has

	mu   sync.RWMutex
	kept map[wire.Pattern]*Allowance // guarded by mu

	// ahead are removals that are in force and that no look has come to: what it comes to
	// before them is over. Guarded by mu.
	ahead map[wire.Pattern]*Allowance

	unjournaled map[wire.Pattern]*Allowance // guarded by mu: the newest of each, which the journal may lack
}

func newAllowances(store AllowanceStore, journal Journal, log *slog.Logger) *allowances {
	return &allowances{
		store: store, journal: journal, log: log, looking: newLookLock(), kept: make(map[wire.Pattern]*Allowance), ahead: make(map[wire.Pattern]*Allowance),
		unjournaled: make(map[wire.Pattern]*Allowance),
	}
}

// look reads what is new in the store.
func (as *allowances) look(ctx context.Context) error {
	if err := as.looking.lock(ctx); err != nil {
		return err
	}
	defer as.looking.unlock()
	err := as.read(ctx)
	if err == nil && !as.even {
		err = as.putForgotten(ctx)
		as.even = err == nil
	}
	return err
}

// putForgotten puts into the store what the journal has and the store has
// forgotten. The caller holds looking.
//
// It may die at any step: what was put is not forgotten any more. Whom somebody
// else's write comes before looks again.
func (as *allowances) putForgotten(ctx context.Context) error {
	if as.journal == nil {
		return nil
	}
	for _, a := range as.journal.Allowances() {
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		err := as.putIfForgotten(bounded, a)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// putIfForgotten does so with one entry of the journal.
func (as *allowances) putIfForgotten(ctx context.Context, a *Allowance) error {
	as.mu.RLock()
	kept := as.kept[a.Pattern]
	as.mu.RUnlock()
	if kept == nil || !kept.moment().forgets(a.moment()) {
		return nil // who is not on the list does not get on it by the journal
	}
	newest, after, err := as.store.Allowance(ctx, a.Pattern)
	if err != nil || newest == nil || !newest.moment().forgets(a.moment()) {
		return err
	}
	as.log.WarnContext(ctx, "store has forgotten what the journal says of names that are allowed, it is put there again",
		"pattern", a.Pattern, "removed", a.Removed, "uses", a.Uses, "by", a.By, "why", a.Why)
	restored := a.Restored()
	if err := as.store.PutAllowance(ctx, restored, after); err != nil {
		return err
	}
	as.apply(restored)
	return nil
}

// read is look without its consequences. The caller holds looking.
func (as *allowances) read(ctx context.Context) error {
	began := time.Now()
	for n := 1; ; n++ {
		if n%lookOneByOne == 0 {
			as.readMany(ctx)
		}
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		a, at, err := as.store.NextAllowance(bounded, as.last)
		cancel()
		if err != nil && !errors.Is(err, ErrUnread) || a == nil {
			as.seen.looked(began, err)
			return err
		}
		as.keep(ctx, a, at, err)
	}
}

// readAll is that of [Revocations].
func (as *allowances) readAll(ctx context.Context) {
	if as.looking.lock(ctx) == nil {
		defer as.looking.unlock()
		as.scan(ctx)
	}
}

// readMany is that of [Revocations], as when a rack is allowed name by name, or boots by one
// entry that names who has used it. The caller holds looking.
func (as *allowances) readMany(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	as.scan(ctx)
}

// scan reads what comes after what was read, until something goes wrong. The caller holds
// looking.
func (as *allowances) scan(ctx context.Context) {
	_ = as.store.Allowances(ctx, as.last, func(a *Allowance, at Sequence, unread error) error {
		as.keep(ctx, a, at, unread)
		return nil
	})
}

// keep takes in what comes behind what was read, at its place. The caller holds looking.
func (as *allowances) keep(ctx context.Context, a *Allowance, at Sequence, unread error) {
	if unread != nil {
		as.log.WarnContext(ctx, "entry of the allow-list not read, it lets nobody in", "err", unread)
		as.close(a.ID)
	} else {
		as.apply(a)
	}
	as.last = at
}

// close ends what the entry of this [AllowanceID] lets in: the newest one cannot be read.
func (as *allowances) close(id string) {
	as.mu.Lock()
	defer as.mu.Unlock()
	for pattern := range as.kept {
		if AllowanceID(pattern) == id {
			delete(as.kept, pattern)
		}
	}
}

// put writes an entry and puts it in force in this process. What came before it is read
// first: a look that came to that later would have it in force until it came to this
// one. And no look comes in between: one that read a later entry of somebody else would
// be undone here. What is removed is removed also if nothing can be read.
func (as *allowances) put(ctx context.Context, a *Allowance, after Revision) error {
	if err := as.looking.lock(ctx); err != nil {
		return err
	}
	defer as.looking.unlock()
	unread := as.read(ctx)
	if unread != nil && !a.Removed {
		return unread
	}
	if err := as.store.PutAllowance(ctx, a, after); err != nil {
		return err
	}
	as.apply(a)
	if unread != nil {
		as.mu.Lock()
		defer as.mu.Unlock()
		as.ahead[a.Pattern] = a
	}
	return nil
}

// apply puts an entry in force in this process, unless it is the one in force as it was
// before a use that is known already, or comes before its removal.
func (as *allowances) apply(a *Allowance) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if removal := as.ahead[a.Pattern]; removal != nil {
		if a.At.Before(removal.At) {
			return
		}
		delete(as.ahead, a.Pattern)
	}
	if kept := as.kept[a.Pattern]; kept != nil && kept.ID == a.ID && !a.Removed && len(a.UsedBy) < len(kept.UsedBy) {
		return
	}
	if as.journal != nil {
		as.unjournaled[a.Pattern] = a
	}
	if a.Removed {
		delete(as.kept, a.Pattern)
	} else {
		as.kept[a.Pattern] = a
	}
}

// used takes in who has used an entry, if that is still the one in force.
func (as *allowances) used(a *Allowance) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if kept := as.kept[a.Pattern]; kept != nil && kept.ID == a.ID && len(kept.UsedBy) <= len(a.UsedBy) {
		as.kept[a.Pattern] = a
	}
}

// write is that of [Signers].
func (as *allowances) write() error {
	as.putting.Lock()
	defer as.putting.Unlock()
	return as.writeLocked()
}

// writeLocked is write for callers that hold putting.
func (as *allowances) writeLocked() error {
	as.mu.Lock()
	entries := as.unjournaled
	if len(entries) > 0 {
		as.unjournaled = make(map[wire.Pattern]*Allowance)
	}
	as.mu.Unlock()
	if len(entries) == 0 {
		return nil
	}
	journaled := make(map[wire.Pattern]*Allowance)
	for _, a := range as.journal.Allowances() {
		journaled[a.Pattern] = a
	}
	return journalLacking(entries, journaled, as.journal.AppendAllowance)
}

// all returns the entry that lets every name in at now, or nil.
func (as *allowances) all(now time.Time) *Allowance {
	as.mu.RLock()
	defer as.mu.RUnlock()
	for _, a := range as.kept {
		if AnyName(a.Pattern) && !a.over(now) && (a.Uses == 0 || len(a.UsedBy) < a.Uses) {
			return a
		}
	}
	return nil
}

// watchAllowsAll keeps the alarm about an allow-list that lets every name in, be
// it the store's or this provisioner's own.
func (p *Provisioner) watchAllowsAll(ctx context.Context) {
	p.cfg.Alarms.Keep(ctx, AlarmAllowsAll, func() error {
		switch a := p.allowances.all(p.now()); {
		case a != nil && a.ExpiresAt.IsZero():
			return fmt.Errorf("%w: `muster allow remove '%s'` ends it, which %s added at %s", errAllowsAll, a.Pattern, a.By, a.At.Format(time.RFC3339))
		case a != nil:
			return fmt.Errorf("%w: `muster allow remove '%s'` ends it, or %s; %s added it at %s",
				errAllowsAll, a.Pattern, a.ExpiresAt.Format(time.RFC3339), a.By, a.At.Format(time.RFC3339))
		case p.cfg.AllowsAll():
			return fmt.Errorf("%w: by the allow_list file of this provisioner", errAllowsAll)
		}
		return nil
	})
}

// AnyName reports whether a pattern covers names without naming anything of
// them: a lone *, but also `**.*` or `*.*.*`.
func AnyName(p wire.Pattern) bool { return strings.Trim(string(p), "*?.-") == "" }

// errAllowsAll is the cause of [AlarmAllowsAll].
var errAllowsAll = errors.New("the allow-list admits every name, so whoever holds a token can enroll as anything")

// match returns the entry that covers a key's identity, or nil: the one for
// exactly this name first, those without a limit before the others.
func (as *allowances) match(h holder, now time.Time) *Allowance {
	as.mu.RLock()
	defer as.mu.RUnlock()
	if a := as.kept[wire.Pattern(h.identity)]; a != nil && a.admits(h, now) {
		return a
	}
	var best *Allowance
	for _, a := range as.kept {
		if a.admits(h, now) && (best == nil || before(a, best, h)) {
			best = a
		}
	}
	return best
}

// stands reports whether the entry is still the one in force, and admits the key's identity.
func (as *allowances) stands(a *Allowance, h holder, now time.Time) bool {
	as.mu.RLock()
	defer as.mu.RUnlock()
	kept := as.kept[a.Pattern]
	return kept != nil && kept.ID == a.ID && kept.admits(h, now)
}

// before orders entries that cover one identity: one that it has used already
// comes first, then those without a limit, then by pattern.
func before(a, b *Allowance, h holder) bool {
	rank := func(a *Allowance) int {
		switch {
		case a.usedBy(h):
			return 0
		case a.Uses == 0:
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Pattern, b.Pattern)) < 0
}

// list returns all entries by their patterns, also those that are over.
func (as *allowances) list() []*Allowance {
	as.mu.RLock()
	defer as.mu.RUnlock()
	list := make([]*Allowance, 0, len(as.kept))
	for _, a := range as.kept {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b *Allowance) int { return cmp.Compare(a.Pattern, b.Pattern) })
	return list
}

// allowed returns the allow-list's word about a key's identity, or nil: that of
// this provisioner's own file, or else of the store, with the entry there.
func (p *Provisioner) allowed(h holder) (*policies.AllowEntry, *Allowance) {
	if entry := p.cfg.Allow(h.identity); entry != nil {
		return entry, nil
	}
	a := p.allowances.match(h, p.now())
	if a == nil {
		return nil, nil
	}
	return &policies.AllowEntry{Pattern: string(a.Pattern), Comment: a.Why, ExpiresAt: a.ExpiresAt}, a
}

// ErrEverything means that a pattern covers every name, and nobody has said that
// this is what is wanted.
var ErrEverything = errors.New("this pattern lets every name in: whoever has a token can enroll as anything")

// AllowNames lets names enroll that were never seen: those that the pattern
// covers, until expires if that is not zero, and at most uses of them if that is
// not 0. It replaces the entry of the same pattern, and goes on counting the uses
// of one that is limited and in force: asking again, since the answer was lost,
// lets nobody in beyond the number. One that was removed or is over is counted
// anew. A lone * is for labs: it is refused with [ErrEverything] unless
// all is true, and is an alarm for as long as it stands. It is in force on
// every provisioner within a second or two. The error is [ErrState] if more have
// used the entry than uses, or another version has written it, so that nobody knows
// here how many have.
func (p *Provisioner) AllowNames(ctx context.Context, pattern string, expires time.Duration, uses int, all bool, c Cause) (*Allowance, error) {
	parsed, err := wire.ParsePattern(pattern)
	err = errors.Join(err, c.Check())
	if expires < 0 {
		err = errors.Join(err, fmt.Errorf("expires in %v, want more than nothing", expires))
	}
	if uses < 0 || uses > MaxAllowanceUses {
		err = errors.Join(err, fmt.Errorf("%d uses, want 1 to %d, or 0 for any number", uses, MaxAllowanceUses))
	}
	if err == nil && AnyName(parsed) && !all {
		err = errors.Join(err, ErrEverything)
	}
	if err := wrong(err); err != nil {
		return nil, fmt.Errorf("allow %.80q: %w", pattern, err)
	}
	a := &Allowance{Schema: AllowanceSchema, ID: wire.NewID(), Pattern: parsed, Uses: uses, Cause: c}
	if expires > 0 {
		a.ExpiresAt = p.now().Add(expires)
	}
	told := Event{Type: EventAllowed, Time: p.moment(), Pattern: a.Pattern, By: c.By, Why: c.Why}
	err = p.putAllowance(ctx, parsed, func(newest *Allowance, unread bool) (*Allowance, error) {
		a.UsedBy = nil
		if unread && uses > 0 {
			return nil, fmt.Errorf("%w: another version has written this entry, how many have got in by it is not known here: use that version, or remove it first to count anew", ErrState)
		}
		if newest == nil || newest.over(p.now()) || uses == 0 {
			return a, nil
		}
		if n := len(newest.UsedBy); n > uses {
			return nil, fmt.Errorf("%w: %d machines have got in by it, more than %d: give --uses %d or more, or remove it first to count anew", ErrState, n, uses, n)
		}
		a.UsedBy = newest.UsedBy
		return a, nil
	})
	if err != nil {
		return nil, fmt.Errorf("allow %q: %w", pattern, err)
	}
	p.cfg.Emit(told)
	p.cfg.Log.InfoContext(ctx, "names allowed", append(limits(a), "pattern", a.Pattern, "by", c.By, "why", c.Why)...)
	return a, nil
}

// limits are how many an entry lets in, and until when, as attributes of a log: no more than
// it has.
func limits(a *Allowance) (attrs []any) {
	if a.Uses > 0 {
		attrs = append(attrs, "uses", a.Uses)
	}
	if !a.ExpiresAt.IsZero() {
		attrs = append(attrs, "until", a.ExpiresAt)
	}
	return attrs
}

// ErrNotAllowed means that the store's allow-list has no such entry.
var ErrNotAllowed = errors.New("no such entry in the allow-list of the store")

// DisallowNames removes the entry of a pattern. Nodes that it has let in stay.
// The error is [ErrNotAllowed] if there is none.
func (p *Provisioner) DisallowNames(ctx context.Context, pattern wire.Pattern, c Cause) error {
	told := Event{Type: EventDisallowed, Time: p.moment(), Pattern: pattern, By: c.By, Why: c.Why}
	err := wrong(c.Check())
	if err == nil {
		err = p.putAllowance(ctx, pattern, func(newest *Allowance, _ bool) (*Allowance, error) {
			if newest == nil || newest.Removed {
				return nil, ErrNotAllowed
			}
			gone := *newest
			gone.Removed, gone.Cause = true, c
			return &gone, nil
		})
	}
	if err != nil {
		return fmt.Errorf("disallow %.80q: %w", pattern, err)
	}
	p.cfg.Emit(told)
	p.cfg.Log.InfoContext(ctx, "names no longer allowed", "pattern", pattern, "by", c.By, "why", c.Why)
	return nil
}

// putAllowance writes what next returns for the newest entry of a pattern, of which no
// more than the pattern is known if it is unread, and journals it. It gets
// its time here, which is after that of the newest.
func (p *Provisioner) putAllowance(ctx context.Context, pattern wire.Pattern, next func(newest *Allowance, unread bool) (*Allowance, error)) error {
	p.allowances.putting.Lock() // one at a time, and none while write is at it
	defer p.allowances.putting.Unlock()
	// Not amid the uses of a rack that boots, which would come first each time.
	unlock, err := p.allowances.uses.turns.lock(ctx, pattern, nil)
	if err != nil {
		return err
	}
	defer unlock()
	for range maxRounds {
		newest, after, err := p.cfg.Store.Allowance(ctx, pattern)
		unread := errors.Is(err, ErrUnread)
		if unread {
			// It lets nobody in here, and others in where it can be read. What is said anew
			// replaces it, whatever it says.
			newest, err = &Allowance{Schema: AllowanceSchema, ID: wire.NewID(), Pattern: pattern}, nil
		}
		if err != nil {
			return err
		}
		a, err := next(newest, unread)
		if err != nil {
			return err
		}
		a.At = newest.moment().next(p.now())
		if err = p.allowances.put(ctx, a, after); err == nil {
			p.watchAllowsAll(ctx)
			return p.allowances.writeLocked()
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return ErrConflict
}

// Allowances returns the allow-list of the store, by pattern. Entries that have
// expired or are used up are among it until they are removed or replaced.
func (p *Provisioner) Allowances(ctx context.Context) ([]*Allowance, error) {
	if err := p.allowances.look(ctx); err != nil {
		return nil, err
	}
	return p.allowances.list(), nil
}
