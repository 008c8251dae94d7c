package trust

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner/events"
)

// maxClockError is the tolerated error of clocks. Certificates are backdated by the same time.
const maxClockError = 5 * time.Minute

const (
	clockTick         = time.Second
	markInterval      = time.Minute
	storeTimeInterval = 5 * time.Second
	storeTimeout      = 10 * time.Second
)

// ErrClock means that the clock is behind the newest time on record. No certificate is issued.
var ErrClock = errors.New("clock is behind")

// ErrClockDiffers means that the clock differs from the store's.
var ErrClockDiffers = errors.New("clock differs from the store's")

// A ClockMark is the newest time on record.
type ClockMark struct {
	Time time.Time `json:"time"`

	// Accepted counts how often an operator has set the mark back.
	Accepted int    `json:"accepted,omitempty"`
	Cause    *Cause `json:"cause,omitempty"`
}

// ClockKey is the key of the only mark.
const ClockKey = "mark"

// Check validates a mark.
func (m *ClockMark) Check() error {
	if m.Time.IsZero() {
		return errors.New("clock mark without a time")
	}
	return nil
}

// ClockConfig configures [NewClock].
type ClockConfig struct {
	Marks  Log[*ClockMark]
	Alarms *events.Alarms
	Log    *slog.Logger

	// StoreTime returns the store's time. It is nil if the store is on this machine.
	StoreTime func(context.Context) (time.Time, error)

	Now func() time.Time
}

// A Clock compares this machine's clock with the newest time on record: a clock that went back would accept expired
// tokens. It is safe for concurrent use. A nil Clock watches nothing.
type Clock struct {
	cfg     ClockConfig  // read-only
	mark    atomic.Int64 // Unix seconds
	differs atomic.Pointer[error]

	mu         sync.Mutex
	accepted   int       // guarded by mu: of the last loaded mark
	lastWrite  time.Time // guarded by mu: monotonic
	lastAsked  time.Time // guarded by mu: monotonic
	agreements int       // guarded by mu: successive answers within maxClockError
}

// NewClock loads the mark of the store.
func NewClock(cfg ClockConfig) *Clock {
	c := &Clock{cfg: cfg}
	c.loadStored()
	return c
}

// loadStored loads the stored mark if it is later, or if an operator has set it back. The caller holds mu.
func (c *Clock) loadStored() int64 {
	e, _ := c.cfg.Marks.Get(ClockKey)
	if e.Value == nil {
		return 0
	}
	at := e.Value.Time.Unix()
	if e.Value.Accepted != c.accepted || at > c.mark.Load() {
		c.mark.Store(at)
	}
	c.accepted = e.Value.Accepted
	return at
}

func (c *Clock) wall() time.Time { return c.cfg.Now().UTC().Round(0) }

// Check returns [ErrClock], wrapped, if the clock is behind.
func (c *Clock) Check() error {
	if c == nil {
		return nil
	}
	now, mark := c.wall(), time.Unix(c.mark.Load(), 0).UTC()
	if behind := mark.Sub(now); behind > maxClockError {
		return fmt.Errorf("%w: it shows %s, the newest time on record is %s, %v ahead (limit %v)", ErrClock,
			now.Format(time.RFC3339), mark.Format(time.RFC3339), behind.Round(time.Second), maxClockError)
	}
	return nil
}

// Differs returns [ErrClockDiffers], wrapped, if the clock differs from the store's, until two answers in a row agree.
func (c *Clock) Differs() error {
	if c == nil {
		return nil
	}
	if why := c.differs.Load(); why != nil {
		return *why
	}
	return nil
}

// Run watches the clock until ctx is done, and returns nil.
func (c *Clock) Run(ctx context.Context) error {
	return span.Every(ctx, clockTick, c.tick)
}

func (c *Clock) tick(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	mono := time.Now()
	if c.cfg.StoreTime != nil && mono.Sub(c.lastAsked) >= storeTimeInterval {
		c.lastAsked = mono
		c.compareWithStore(ctx)
	}
	stored := c.loadStored()
	if now := c.wall().Unix(); now > c.mark.Load() && (c.cfg.StoreTime == nil || c.agreements > 0) {
		c.mark.Store(now)
	}
	if c.mark.Load()-stored >= int64(markInterval/time.Second) &&
		(c.lastWrite.IsZero() || mono.Sub(c.lastWrite) >= markInterval) {
		c.lastWrite = mono
		if err := c.writeMark(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Log.WarnContext(ctx, "clock mark not written", "err", err)
		}
	}
	c.cfg.Alarms.Set(ctx, wire.CodeClockBehind, c.Check())
	c.cfg.Alarms.Set(ctx, events.AlarmClockDiffers, c.Differs())
}

// The caller holds mu.
func (c *Clock) compareWithStore(ctx context.Context) {
	began := time.Now()
	storeTime, err := c.cfg.StoreTime(ctx)
	if err != nil || time.Since(began) > maxClockError/2 {
		return
	}
	now := c.wall()
	if off := now.Sub(storeTime); off.Abs() > maxClockError {
		why := fmt.Errorf("%w: it shows %s, the store's shows %s (limit %v)", ErrClockDiffers,
			now.Format(time.RFC3339), storeTime.UTC().Format(time.RFC3339), maxClockError)
		c.agreements = 0
		c.differs.Store(&why)
		return
	}
	if c.agreements++; c.agreements >= 2 {
		c.differs.Store(nil)
	}
}

// The caller holds mu.
func (c *Clock) writeMark(ctx context.Context) error {
	_, err := Change(ctx, c.cfg.Marks, ClockKey, func(newest Entry[*ClockMark]) (*ClockMark, error) {
		c.loadStored()
		var next ClockMark
		if newest.Value != nil {
			next = *newest.Value
		}
		next.Time = time.Unix(c.mark.Load(), 0).UTC()
		return &next, nil
	})
	return err
}

// Accept sets the mark to the clock's time. Repeating it is harmless, also after an error.
func (c *Clock) Accept(ctx context.Context, why Cause) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := Change(ctx, c.cfg.Marks, ClockKey, func(newest Entry[*ClockMark]) (*ClockMark, error) {
		next := ClockMark{Time: c.wall().Truncate(time.Second), Accepted: 1, Cause: &why}
		if newest.Value != nil {
			next.Accepted += newest.Value.Accepted
		}
		return &next, nil
	})
	if err != nil {
		return fmt.Errorf("accept clock: %w", err)
	}
	c.loadStored()
	c.cfg.Alarms.Set(ctx, wire.CodeClockBehind, nil)
	c.cfg.Log.WarnContext(ctx, "clock accepted", "by", why.By, "reason", why.Why)
	return nil
}
