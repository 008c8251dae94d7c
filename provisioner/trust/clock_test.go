package trust_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// marks keep a mark in memory.
type marks struct {
	memoryLog[*trust.ClockMark]

	mu     sync.Mutex
	writes int
}

func (m *marks) Get(key string) (trust.Entry[*trust.ClockMark], bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.memoryLog.Get(key)
}

func (m *marks) Put(ctx context.Context, key string, mark *trust.ClockMark, after trust.Revision,
) (trust.Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	return m.memoryLog.Put(ctx, key, mark, after)
}

// watched starts a clock with the offset behind the pointer.
func watched(t *testing.T, m *marks, off *atomic.Int64, storeTime bool) *trust.Clock {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	cfg := trust.ClockConfig{
		Marks:  m,
		Log:    log,
		Alarms: events.NewAlarms(events.AlarmConfig{Log: log, Now: time.Now}),
		Now:    func() time.Time { return time.Now().Add(time.Duration(off.Load())) },
	}
	if storeTime {
		cfg.StoreTime = func(context.Context) (time.Time, error) { return time.Now(), nil }
	}
	c := trust.NewClock(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	synctest.Wait()
	return c
}

// TestClockThatGoesBackIssuesNothing sets a clock back on one machine, and has an operator accept it.
func TestClockThatGoesBackIssuesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, off := &marks{}, &atomic.Int64{}
		c := watched(t, m, off, false)
		time.Sleep(2 * time.Second) //nolint:forbidigo // moves the bubble's clock
		off.Store(int64(-4 * time.Minute))
		if err := c.Check(); err != nil {
			t.Errorf("four minutes behind: %v", err)
		}
		off.Store(int64(-time.Hour))
		if err := c.Check(); !errors.Is(err, trust.ErrClock) {
			t.Errorf("an hour behind: %v, want %v", err, trust.ErrClock)
		}
		again := watched(t, m, off, false)
		if err := again.Check(); !errors.Is(err, trust.ErrClock) {
			t.Errorf("an hour behind at the start: %v, want %v", err, trust.ErrClock)
		}
		if err := again.Accept(t.Context(), trust.Cause{By: "ops"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) //nolint:forbidigo // moves the bubble's clock
		if err := errors.Join(c.Check(), again.Check()); err != nil {
			t.Errorf("accepted by one of two: %v", err)
		}
	})
}

// TestMarkIsWrittenOnceAMinute lets an hour pass.
func TestMarkIsWrittenOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, off := &marks{}, &atomic.Int64{}
		watched(t, m, off, false)
		time.Sleep(time.Hour) //nolint:forbidigo // moves the bubble's clock
		synctest.Wait()
		if m.writes < 55 || m.writes > 62 {
			t.Errorf("%d writes in an hour, want one a minute", m.writes)
		}
	})
}

// TestDifferingClockWritesNoMark has one of two provisioners with a clock that is ahead.
func TestDifferingClockWritesNoMark(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, right, ahead := &marks{}, &atomic.Int64{}, &atomic.Int64{}
		ahead.Store(int64(time.Hour))
		one := watched(t, m, right, true)
		other := watched(t, m, ahead, true)
		time.Sleep(10 * time.Minute) //nolint:forbidigo // moves the bubble's clock
		if err := other.Differs(); !errors.Is(err, trust.ErrClockDiffers) {
			t.Errorf("an hour ahead of the store: %v, want %v", err, trust.ErrClockDiffers)
		}
		if err := errors.Join(one.Check(), one.Differs()); err != nil {
			t.Errorf("the clock that is right: %v", err)
		}
		ahead.Store(0)
		time.Sleep(11 * time.Second) //nolint:forbidigo // moves the bubble's clock: two answers
		if err := errors.Join(other.Check(), other.Differs()); err != nil {
			t.Errorf("set right: %v", err)
		}
	})
}
