package provisioner

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// marks is a ClockStore in memory that can be told how its next write goes wrong.
type marks struct {
	mu       sync.Mutex
	mark     *ClockMark
	revision trust.Revision
	writes   int
	next     error // instead of the next write
	after    bool  // it is written all the same
}

func (s *marks) ClockMark(context.Context) (*ClockMark, trust.Revision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mark == nil {
		return nil, 0, nil
	}
	m := *s.mark
	return &m, s.revision, nil
}

func (s *marks) PutClockMark(_ context.Context, m *ClockMark, after trust.Revision) (trust.Revision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.next
	s.next = nil
	if after != s.revision {
		return 0, trust.ErrConflict
	}
	if err == nil || s.after {
		kept := *m
		s.mark, s.revision = &kept, s.revision+1
		s.writes++
	}
	return s.revision, err
}

// watchedClock returns a clock over the store, and what moves the time that it
// watches.
func watchedClock(t *testing.T, s *marks) (*Clock, *time.Duration) {
	t.Helper()
	return clockAhead(t, s, 0)
}

// clockAhead is watchedClock for one that is ahead from the start.
func clockAhead(t *testing.T, s *marks, by time.Duration) (*Clock, *time.Duration) {
	t.Helper()
	moved := &by
	now := func() time.Time { return time.Now().Add(*moved) }
	c, err := OpenClock(t.Context(), ClockConfig{Store: s, Alarms: events.NewAlarms(events.AlarmConfig{Now: now}), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return c, moved
}

// pass lets time pass, second by second. The test must be in a bubble of synctest:
// nobody waits, the bubble's clock is what moves.
func pass(t *testing.T, d time.Duration, clocks ...*Clock) {
	t.Helper()
	for range int(d / clockTick) {
		for _, c := range clocks {
			c.look(t.Context())
		}
		time.Sleep(clockTick) //nolint:forbidigo // moves the bubble's clock
	}
}

func TestTheMarkIsWrittenOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &marks{}
		c, _ := watchedClock(t, s)
		pass(t, time.Hour, c)
		if s.writes < 55 || s.writes > 61 {
			t.Errorf("%d writes in an hour, want one a minute", s.writes)
		}
		if age := time.Since(s.mark.Time); age > 2*markEvery {
			t.Errorf("the mark is %v old", age)
		}
	})
}

func TestAClockBehindTheMark(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		by   time.Duration
		want error
	}{
		"right":        {0, nil},
		"at the limit": {-maxBehind, nil},
		"beyond it":    {-maxBehind - 10*time.Second, ErrClock},
		"by a year":    {-365 * 24 * time.Hour, ErrClock},
		"ahead":        {time.Hour, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &marks{}
				c, moved := watchedClock(t, s)
				pass(t, time.Second, c)
				*moved = tt.by
				if err := c.Check(); !errors.Is(err, tt.want) {
					t.Errorf("Check = %v, want %v", err, tt.want)
				}
				again, _ := watchedClock(t, s) // of another process, or after a restart
				again.cfg.Now = c.cfg.Now
				if err := again.Check(); !errors.Is(err, tt.want) {
					t.Errorf("Check after a restart = %v, want %v", err, tt.want)
				}
				pass(t, time.Second, c)
				if stands := c.cfg.Alarms.Stands(wire.CodeClockBehind); !errors.Is(stands, tt.want) {
					t.Errorf("alarm = %v, want %v", stands, tt.want)
				}
				*moved = 0
				pass(t, 2*time.Second, c)
				if err := errors.Join(c.Check(), c.cfg.Alarms.Stands(wire.CodeClockBehind)); err != nil {
					t.Errorf("right again: %v", err)
				}
			})
		})
	}
}

// TestAJumpAheadIsBelievedAfterAnHour keeps it off the record until then.
func TestAJumpAheadIsBelievedAfterAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &marks{}
		c, moved := watchedClock(t, s)
		pass(t, 2*time.Minute, c)
		const year = 365 * 24 * time.Hour
		for _, by := range []time.Duration{year, time.Hour, year} { // and back, and again: the hour begins anew
			*moved = by
			pass(t, believeAfter-time.Minute, c)
			if (c.cfg.Alarms.Stands(events.AlarmClockJumped) != nil) != (by > maxJump) || s.mark.Time.After(time.Now()) {
				t.Fatalf("mark %v, alarm %v: want the mark where it was, and an alarm for %v", s.mark.Time, c.cfg.Alarms.Standing(), by)
			}
			*moved = 0
			pass(t, 2*time.Minute, c)
			if err := errors.Join(c.cfg.Alarms.Stands(events.AlarmClockJumped), c.Check()); err != nil {
				t.Fatalf("right again: %v", err)
			}
		}
		*moved = year
		pass(t, believeAfter+5*time.Minute, c)
		if err := c.cfg.Alarms.Stands(events.AlarmClockJumped); err != nil || s.mark.Time.Before(time.Now().Add(year-time.Hour)) {
			t.Errorf("alarm %v, mark %v: want it believed", err, s.mark.Time)
		}
	})
}

// TestAcceptedByOneFollowedByAll has two processes that were both ahead.
func TestAcceptedByOneFollowedByAll(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]*marks{"no fault": {}, "lost": {next: errors.New("lost")}, "answer lost": {next: errors.New("no answer"), after: true}, "conflict": {next: trust.ErrConflict}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &marks{mark: &ClockMark{Time: time.Now().Add(365 * 24 * time.Hour)}, revision: 1}
				one, _ := watchedClock(t, s)
				two, _ := watchedClock(t, s)
				pass(t, 10*time.Second, one, two)
				if one.Check() == nil || two.Check() == nil {
					t.Fatal("a clock a year behind the mark is not noticed")
				}
				s.next, s.after = fault.next, fault.after
				for one.Accept(t.Context(), trust.Cause{By: "ops", Why: "wrong"}) != nil { // an operator who tries again
				}
				if err := one.Check(); err != nil {
					t.Errorf("where it was accepted: %v", err)
				}
				pass(t, 10*time.Second, one, two)
				if err := errors.Join(two.Check(), two.cfg.Alarms.Stands(wire.CodeClockBehind)); err != nil {
					t.Errorf("elsewhere: %v", err)
				}
				if c := s.mark.Cause; c == nil || c.By != "ops" {
					t.Errorf("mark = %+v, want who accepted it", s.mark)
				}
				pass(t, 5*time.Minute, one, two)
				if err := errors.Join(one.Check(), two.Check()); err != nil {
					t.Errorf("later: %v", err)
				}
			})
		})
	}
}

// TestAClockAheadAtTheStart tells one that is not set yet, which leaves the mark
// alone for an hour, from one of a provisioner that was off for less than a day.
func TestAClockAheadAtTheStart(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	tests := map[string]struct {
		by, later time.Duration // ahead of the mark; and what the clock is moved by after a while
		jumped    bool
		written   bool // before the hour is over
	}{
		"off for an hour":            {time.Hour, 0, false, true},
		"off for a day":              {maxJump, 0, false, true},
		"off for months, or not set": {year, 0, true, false},
		"set right":                  {year, -year, true, true},
		"set right, off for hours":   {year, 5*time.Hour - year, true, true},
		"set to another year":        {2 * year, -year, true, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				before := time.Now()
				s := &marks{mark: &ClockMark{Time: before}, revision: 1}
				moved := tt.by
				now := func() time.Time { return time.Now().Add(moved) }
				c, err := OpenClock(t.Context(), ClockConfig{Store: s, Alarms: events.NewAlarms(events.AlarmConfig{Now: now}), Now: now})
				if err != nil {
					t.Fatal(err)
				}
				pass(t, 2*time.Minute, c)
				if got := c.cfg.Alarms.Stands(events.AlarmClockJumped) != nil; got != tt.jumped || c.Check() != nil {
					t.Errorf("alarms %v, Check = %v, want an alarm %v, and the clock not behind", c.cfg.Alarms.Standing(), c.Check(), tt.jumped)
				}
				if got := s.writes > 0; got == tt.jumped {
					t.Errorf("mark %v written %d times, want it left alone: %v", s.mark.Time, s.writes, tt.jumped)
				}
				if got := time.Until(c.believed(now())) > time.Minute; got == tt.jumped {
					t.Errorf("believed %v at %v, want the clock's word: %v", c.believed(now()), now(), !tt.jumped)
				}
				moved += tt.later
				pass(t, believeAfter-5*time.Minute, c)
				if got := s.writes > 0; got != tt.written {
					t.Errorf("mark %v written %d times, want it written within the hour: %v", s.mark.Time, s.writes, tt.written)
				}
				if got := c.cfg.Alarms.Stands(events.AlarmClockJumped) != nil; got == tt.written {
					t.Errorf("alarms %v within the hour, want one: %v", c.cfg.Alarms.Standing(), !tt.written)
				}
				pass(t, 10*time.Minute, c)
				if off := now().Sub(s.mark.Time).Abs(); off > 2*markEvery || len(c.cfg.Alarms.Standing()) > 0 {
					t.Errorf("after the hour the mark is %v off, alarms %v", off, c.cfg.Alarms.Standing())
				}
			})
		})
	}
}

// TestAClockThatIsAheadOfOthersLocksNobodyOut has one of two provisioners have a clock that is
// ahead, from the start or since a jump, for longer than an hour. The other one goes on, and the
// first knows that it should not. It is believed when it is set right, or is alone for an hour.
func TestAClockThatIsAheadOfOthersLocksNobodyOut(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for name, tt := range map[string]struct {
		by      time.Duration
		started bool
	}{
		"an hour, since a jump":     {time.Hour, false},
		"a year, since a jump":      {year, false},
		"an hour, from the start":   {time.Hour, true},
		"six minutes, at the start": {6 * time.Minute, true},
		"a year, from the start":    {year, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &marks{}
				right, _ := watchedClock(t, s)
				pass(t, 3*time.Minute+7*time.Second, right)
				var wrong *Clock
				var moved *time.Duration
				if tt.started {
					wrong, moved = clockAhead(t, s, tt.by)
				} else {
					wrong, moved = watchedClock(t, s)
					pass(t, 3*time.Minute, right, wrong)
					*moved = tt.by
				}
				for range 3 * 60 {
					pass(t, time.Minute, right, wrong)
					if err := right.Check(); err != nil || right.Contradicted() != nil {
						t.Fatalf("the clock that is right: %v, %v", err, right.Contradicted())
					}
				}
				if err := wrong.Contradicted(); !errors.Is(err, ErrContradicted) || wrong.cfg.Alarms.Stands(events.AlarmClockJumped) == nil {
					t.Errorf("the one that is ahead: %v, alarms %v: want it known", err, wrong.cfg.Alarms.Standing())
				}
				*moved = 0
				pass(t, 2*time.Minute, right, wrong)
				if err := errors.Join(wrong.Contradicted(), wrong.cfg.Alarms.Stands(events.AlarmClockJumped), right.Check(), wrong.Check()); err != nil {
					t.Errorf("right again: %v", err)
				}
				*moved = tt.by
				pass(t, 2*believeAfter, right, wrong)
				pass(t, believeAfter-2*time.Minute, wrong) // the other one has ended
				if s.mark.Time.After(time.Now()) {
					t.Errorf("mark %v at %v, want it left alone for an hour", s.mark.Time, time.Now())
				}
				pass(t, 4*time.Minute, wrong)
				if off := time.Now().Add(tt.by).Sub(s.mark.Time); off > 2*markEvery || wrong.Contradicted() != nil || len(wrong.cfg.Alarms.Standing()) > 0 {
					t.Errorf("after an hour alone the mark is %v off, alarms %v: want it believed", off, wrong.cfg.Alarms.Standing())
				}
			})
		})
	}
}

// TestClocksThatGoAheadTogetherAreBelieved has two provisioners suspended, or started after a
// pause: neither takes what the other one wrote before for a contradiction.
func TestClocksThatGoAheadTogetherAreBelieved(t *testing.T) {
	t.Parallel()
	for name, started := range map[string]bool{"suspended": false, "started": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &marks{mark: &ClockMark{Time: time.Now()}, revision: 1}
				by := time.Duration(0)
				if started {
					by = time.Hour
				}
				one, oneMoved := clockAhead(t, s, by)
				pass(t, 17*time.Second, one)
				two, twoMoved := clockAhead(t, s, by)
				pass(t, 3*time.Minute, one, two)
				*oneMoved, *twoMoved = time.Hour, time.Hour
				for range 63 {
					pass(t, time.Minute, one, two)
					if err := errors.Join(one.Contradicted(), two.Contradicted(), one.Check(), two.Check()); err != nil {
						t.Fatal(err)
					}
				}
				if off := time.Now().Add(time.Hour).Sub(s.mark.Time); off > 2*markEvery {
					t.Errorf("the mark is %v off, want both believed", off)
				}
			})
		})
	}
}

// TestWhatWasAcceptedStays accepts a clock that is right against one that is ahead, has been put on
// record, and goes on: it does not put its time on record again.
func TestWhatWasAcceptedStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &marks{}
		wrong, _ := clockAhead(t, s, time.Hour)
		pass(t, 2*time.Minute, wrong)
		right, _ := watchedClock(t, s)
		pass(t, time.Minute, wrong, right)
		if right.Check() == nil {
			t.Fatal("a clock an hour behind the mark is not noticed")
		}
		if err := right.Accept(t.Context(), trust.Cause{By: "ops", Why: "it is right"}); err != nil {
			t.Fatal(err)
		}
		for range 2 * 60 {
			pass(t, time.Minute, wrong, right)
			if err := right.Check(); err != nil {
				t.Fatalf("it was accepted: %v", err)
			}
		}
		if wrong.Contradicted() == nil {
			t.Error("the one that is ahead does not know")
		}
	})
}

// TestASecondJumpHasAnHourOfItsOwn has a clock that is some minutes ahead, which
// nobody is alarmed about, and goes a year ahead before that hour is over.
func TestASecondJumpHasAnHourOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &marks{}
		c, moved := watchedClock(t, s)
		pass(t, 2*time.Minute, c)
		*moved = 10 * time.Minute
		pass(t, believeAfter-time.Minute, c)
		*moved = 365 * 24 * time.Hour
		pass(t, 3*time.Minute, c) // somebody sets it right after three minutes
		*moved = 0
		pass(t, 2*time.Minute, c)
		if err := c.Check(); err != nil || s.mark.Time.After(time.Now().Add(maxBehind)) {
			t.Errorf("mark %v, Check = %v: want a jump that was taken back within the hour to lock nobody out", s.mark.Time, err)
		}
	})
}
