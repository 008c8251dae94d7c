package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// Limits on what a clock may do.
const (
	// maxBehind is how far the clock may be behind the mark: what NTP may take
	// back at once, and what two provisioners may differ by. Certificates are
	// backdated by as much. Chosen.
	maxBehind = 5 * time.Minute

	// maxJump is how far it may go ahead at once without an alarm. Chosen.
	maxJump = 24 * time.Hour

	// believeAfter is how long a clock that went ahead at once, by more than may
	// be taken back, stays off the record: so that whoever takes the jump back
	// within an hour locks nobody out. A machine that was suspended is believed
	// after it.
	believeAfter = time.Hour

	// aloneAfter is how long after a start the clock stays off the record if it is ahead: by
	// then others that serve have moved the mark. One that finds itself alone is believed.
	aloneAfter = markEvery + 20*time.Second

	clockTick    = time.Second
	markEvery    = time.Minute      // between two writes of the mark
	markLook     = 5 * time.Second  // between two looks at the stored one while the clock is behind, or off the record
	clockTimeout = 10 * time.Second // for one read and write of the mark
)

// ErrClock means that the clock is behind the newest time on record: nothing
// is issued until it is right again, or until [Clock.Accept].
var ErrClock = errors.New("clock is behind")

// ErrContradicted means that the clock is ahead of others', see [Clock.Contradicted].
var ErrContradicted = errors.New("clock is ahead of others")

// A ClockMark is the newest time that a provisioner of this store has seen. It
// only ever grows, but for an operator who says that it was wrong.
type ClockMark struct {
	Time time.Time `json:"time"`

	// Accepted counts how often an operator has set the mark back; the last of
	// them and why.
	Accepted int          `json:"accepted,omitempty"`
	Cause    *trust.Cause `json:"cause,omitempty"`
}

// A ClockStore keeps the mark.
type ClockStore interface {
	// ClockMark returns the mark and its revision; nil and 0 if there is none.
	ClockMark(ctx context.Context) (*ClockMark, trust.Revision, error)

	// PutClockMark writes the mark as [Store].Put writes a record.
	PutClockMark(ctx context.Context, m *ClockMark, after trust.Revision) (trust.Revision, error)
}

// ClockConfig configures [OpenClock].
type ClockConfig struct {
	Store  ClockStore     // required
	Alarms *events.Alarms // required
	Log    *slog.Logger   // optional; discards by default

	// Now is the clock that is watched. Optional; defaults to [time.Now].
	Now func() time.Time
}

// A Clock watches the provisioner's clock against a mark in the store that all
// provisioners share. A clock that went back would let tokens and certificates
// live again that are over; so none are issued by it. It goes on by itself once
// the clock is right. Start it with Run. Safe for concurrent use.
type Clock struct {
	cfg  ClockConfig  // set by OpenClock, then read-only
	mark atomic.Int64 // newest time seen, Unix seconds

	// contradicted says that others have moved the mark since the clock went ahead, and that
	// it is still behind that: both cannot be right, and theirs did not go ahead at once.
	contradicted atomic.Bool

	mu       sync.Mutex
	accepted int       // guarded by mu: of the stored mark that was last seen
	stored   int64     // guarded by mu: its time; 0 if none was seen
	looked   time.Time // guarded by mu: when we last read or wrote it; monotonic
	base     time.Time // guarded by mu: the clock when it was last believed
	baseMono time.Time // guarded by mu: the same instant by the monotonic clock
	jumped   time.Time // guarded by mu: when it went ahead at once, or was last contradicted; monotonic. Zero if it is believed
	started  bool      // guarded by mu: it was ahead of the stored mark when we began

	ahead time.Duration // guarded by mu: of what was believed, when last looked at
}

// OpenClock reads the mark. An error is the store's: without a mark nobody knows
// whether the clock is right.
//
// A clock far ahead of the mark is one that is not set yet, or that of a store
// that was not in use for long: nobody can tell, so it is treated as one that
// has just jumped. Issuing goes on, and the mark stays where it is for an hour. With less
// than a day it stays for as long as others would take to move it.
// A store without a mark takes the clock's word.
func OpenClock(ctx context.Context, cfg ClockConfig) (*Clock, error) {
	if cfg.Store == nil || cfg.Alarms == nil {
		return nil, errors.New("clock: no store or no alarms given")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Clock{cfg: cfg}
	m, _, err := cfg.Store.ClockMark(ctx)
	if err != nil {
		return nil, fmt.Errorf("clock: %w", err)
	}
	c.base, c.baseMono = c.wall(), time.Now()
	if m != nil {
		c.accepted, c.stored = m.Accepted, m.Time.Unix()
		if c.base.Sub(m.Time) > maxBehind {
			c.ahead = c.base.Sub(m.Time)
			c.base, c.jumped, c.started = m.Time.UTC(), c.baseMono, true
		}
	}
	c.mark.Store(max(c.stored, c.base.Unix()))
	return c, nil
}

// wall is the clock without Go's monotonic reading, which would hide a jump.
func (c *Clock) wall() time.Time { return c.cfg.Now().UTC().Round(0) }

// Check returns nil if the clock is not behind, and an error that wraps
// [ErrClock] if it is. It takes nanoseconds and reads no store. A nil Clock
// watches nothing.
func (c *Clock) Check() error {
	if c == nil {
		return nil
	}
	now, mark := c.wall(), time.Unix(c.mark.Load(), 0).UTC()
	if behind := mark.Sub(now); behind > maxBehind {
		return fmt.Errorf("%w: it says %s, and the newest time on record is %s, %v ahead (limit %v)", ErrClock,
			now.Format(time.RFC3339), mark.Format(time.RFC3339), behind.Round(time.Second), maxBehind)
	}
	return nil
}

// believed returns now, or the newest time that was believed if that is earlier:
// the clock went ahead at once then, and may be wrong. A nil Clock believes now.
func (c *Clock) believed(now time.Time) time.Time {
	if c == nil {
		return now
	}
	if mark := time.Unix(c.mark.Load(), 0).UTC(); mark.Before(now) {
		return mark
	}
	return now
}

// undoubted returns now, or the newest time that was believed if the clock is ahead of
// it by so much that there is an alarm: [events.AlarmClockJumped]. A nil Clock doubts nothing.
func (c *Clock) undoubted(now time.Time) time.Time {
	if believed := c.believed(now); now.Sub(believed) > maxJump {
		return believed
	}
	return now
}

// toCome reports whether a stored time is later than now by more than two clocks may
// differ: that of who wrote it was ahead, and what happened then is over by now.
func toCome(stored, now time.Time) bool { return stored.Sub(now) > maxBehind }

// Doubted reports whether the clock was far ahead of the mark when we began, or is
// contradicted, and is not believed yet: what it says is over may not be.
func (c *Clock) Doubted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started && c.ahead > maxJump || c.contradicted.Load()
}

// Contradicted returns an error that wraps [ErrContradicted] while others that share the store are
// more likely to have the right time than this clock. It reads no store. A nil Clock is never
// contradicted.
func (c *Clock) Contradicted() error {
	if c == nil || !c.contradicted.Load() {
		return nil
	}
	return fmt.Errorf("%w: it says %s, and they put %s on record", ErrContradicted,
		c.wall().Format(time.RFC3339), time.Unix(c.mark.Load(), 0).UTC().Format(time.RFC3339))
}

// Run watches the clock until ctx is done. It returns nil.
func (c *Clock) Run(ctx context.Context) error {
	tick := time.NewTicker(clockTick)
	defer tick.Stop()
	for {
		c.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look takes in what the clock says now, and keeps mark and alarms with it.
// Looking twice is harmless: the mark only grows.
func (c *Clock) look(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, mono := c.wall(), time.Now()
	expected := c.base.Add(mono.Sub(c.baseMono))
	ahead := now.Sub(expected)
	if ahead > maxBehind && (c.jumped.IsZero() || ahead-c.ahead > maxBehind) {
		c.jumped = mono // each jump has an hour of its own
		c.contradicted.Store(false)
	}
	c.ahead = ahead
	right := maxBehind
	if c.started && !c.contradicted.Load() && mono.Sub(c.jumped) > aloneAfter {
		right = maxJump // nobody was there to see how long it really was
	}
	switch {
	case ahead <= right || mono.Sub(c.jumped) > believeAfter:
		c.believe(ctx, now, mono)
	case c.contradicted.Load():
		c.cfg.Alarms.Raise(ctx, events.AlarmClockJumped, fmt.Errorf("the clock says %s, and others that share the store put %s on record; it is put on record once %v have passed without them, unless one of the clocks is set right",
			now.Format(time.RFC3339), time.Unix(c.stored, 0).UTC().Format(time.RFC3339), believeAfter))
	case c.started && ahead > maxJump:
		c.cfg.Alarms.Raise(ctx, events.AlarmClockJumped, fmt.Errorf("the clock said %s when the newest time on record was %s; it is put on record %v after the start unless it is set right",
			now.Format(time.RFC3339), time.Unix(c.stored, 0).UTC().Format(time.RFC3339), believeAfter))
	case ahead > maxJump:
		c.cfg.Alarms.Raise(ctx, events.AlarmClockJumped, fmt.Errorf("the clock went from %s to %s at once; it is put on record in %v unless it is set right",
			expected.Format(time.RFC3339), now.Format(time.RFC3339), believeAfter))
	}
	behind := c.Check()
	c.cfg.Alarms.Set(ctx, wire.CodeClockBehind, behind)
	since, doubted := mono.Sub(c.looked), !c.jumped.IsZero()
	if c.mark.Load()-c.stored >= int64(markEvery/time.Second) && (c.looked.IsZero() || since >= markEvery) || (behind != nil || doubted) && since >= markLook {
		first := c.looked.Before(c.jumped) // what is read now may be of before
		c.looked = mono
		moved, err := c.sync(ctx)
		if err != nil && ctx.Err() == nil {
			c.cfg.Log.WarnContext(ctx, "clock mark not written", "err", err)
		}
		if doubted && moved && !first && now.Sub(time.Unix(c.stored, 0)) > maxBehind {
			c.jumped = mono // the hour begins anew
			c.contradicted.Store(true)
		}
		c.cfg.Alarms.Set(ctx, wire.CodeClockBehind, c.Check())
	}
}

// believe takes the clock's word for what time it is. The caller holds mu.
func (c *Clock) believe(ctx context.Context, now, mono time.Time) {
	if !c.jumped.IsZero() {
		c.looked = time.Time{} // it is put on record at once
	}
	c.base, c.baseMono, c.jumped, c.started = now, mono, time.Time{}, false
	c.contradicted.Store(false)
	c.cfg.Alarms.Clear(ctx, events.AlarmClockJumped)
	if t := now.Unix(); t > c.mark.Load() {
		c.mark.Store(t)
	}
}

// sync merges the stored mark and ours: the later one wins, unless an operator
// has set the stored one back since we last saw it. It reports whether others have moved
// the stored one since. While our clock is off the record nothing is written, or others
// whose clocks are, too, would take it for the word of one that is right. The caller holds mu.
func (c *Clock) sync(ctx context.Context) (moved bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	for range 3 {
		m, after, err := c.cfg.Store.ClockMark(ctx)
		if err != nil {
			return moved, err
		}
		next := ClockMark{}
		if m != nil {
			next = *m
			if m.Accepted != c.accepted {
				// If ours is ahead of it, it is what was wrong: it has not gone on record by this.
				c.mark.Store(m.Time.Unix())
				c.base, c.baseMono = m.Time.UTC(), time.Now()
			} else if m.Time.Unix() > c.stored {
				moved = true
			}
			c.accepted, c.stored = m.Accepted, m.Time.Unix()
		}
		if c.stored > c.mark.Load() {
			c.mark.Store(c.stored)
		}
		if c.stored >= c.mark.Load() || !c.jumped.IsZero() {
			return moved, nil
		}
		next.Time = time.Unix(c.mark.Load(), 0).UTC()
		if _, err = c.cfg.Store.PutClockMark(ctx, &next, after); err == nil {
			c.stored = next.Time.Unix()
			return moved, nil
		}
		if !errors.Is(err, trust.ErrConflict) {
			return moved, err
		}
	}
	return moved, trust.ErrConflict
}

// Accept takes the clock as it is for right and sets the mark to it: for a mark
// that was wrong, since the clock had jumped ahead once. Other provisioners
// follow within seconds. An error is the store's; nothing has changed then, or
// the write may have happened: accepting again is harmless.
func (c *Clock) Accept(ctx context.Context, why trust.Cause) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		m, after, err := c.cfg.Store.ClockMark(ctx)
		if err != nil {
			return fmt.Errorf("accept clock: %w", err)
		}
		next := ClockMark{Time: c.wall().Truncate(time.Second), Accepted: 1, Cause: &why}
		if m != nil {
			next.Accepted = m.Accepted + 1
		}
		_, err = c.cfg.Store.PutClockMark(ctx, &next, after)
		if errors.Is(err, trust.ErrConflict) {
			continue // another provisioner moved it
		}
		if err != nil {
			return fmt.Errorf("accept clock: %w", err)
		}
		c.accepted, c.stored = next.Accepted, next.Time.Unix()
		c.mark.Store(c.stored)
		c.believe(ctx, c.wall(), time.Now())
		c.cfg.Alarms.Clear(ctx, wire.CodeClockBehind)
		c.cfg.Log.WarnContext(ctx, "clock accepted", "by", why.By, "reason", why.Why)
		return nil
	}
}
