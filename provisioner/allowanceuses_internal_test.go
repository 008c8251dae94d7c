package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

// A farAllowance is a store with one entry, 50 ms away.
type farAllowance struct {
	Store

	mu            sync.Mutex
	entry         *Allowance
	at            Revision
	puts, clashes int
	before        func(*Allowance) error // called before a write, and may fail it; nil for none
}

func (s *farAllowance) Allowance(ctx context.Context, _ wire.Pattern) (*Allowance, Revision, error) {
	if err := farAway(ctx); err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entry, s.at, nil
}

func (s *farAllowance) PutAllowance(ctx context.Context, a *Allowance, after Revision) error {
	if err := farAway(ctx); err != nil {
		return err
	}
	if s.before != nil {
		if err := s.before(a); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.puts++; after != s.at {
		s.clashes++
		return ErrConflict
	}
	s.entry, s.at = a, s.at+1
	return nil
}

func (s *farAllowance) NextAllowance(ctx context.Context, after Sequence) (*Allowance, Sequence, error) {
	if err := farAway(ctx); err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if Sequence(s.at) <= after {
		return nil, 0, nil
	}
	return s.entry, Sequence(s.at), nil
}

func farAway(ctx context.Context) error {
	select {
	case <-time.After(50 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const rack wire.Pattern = "rack*.example.net"

// farFrom returns a provisioner with an entry for so many machines in its store, and an
// attempt of the i-th machine that it has let in.
func farFrom(t *testing.T, uses int) (p *Provisioner, s *farAllowance, asks func(i int) *attempt) {
	t.Helper()
	s = &farAllowance{entry: &Allowance{Schema: AllowanceSchema, ID: "1", Pattern: rack, Uses: uses, At: time.Now()}, at: 1}
	p = &Provisioner{
		cfg: Config{Store: s, Now: time.Now, Log: slog.New(slog.DiscardHandler), Emit: func(Event) {}, AllowsAll: func() bool { return false },
			Alarms: NewAlarms(AlarmConfig{})},
		allowances: newAllowances(s, nil, slog.New(slog.DiscardHandler)),
	}
	if err := p.allowances.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p, s, func(i int) *attempt {
		return &attempt{identity: wire.Identity(fmt.Sprintf("rack%d.example.net", i)), csr: &ca.CSR{KeyHash: fmt.Sprint("key", i)},
			findings: findings{reason: ReasonNew, allowance: &Allowance{ID: "1", Pattern: rack, Uses: uses}}}
	}
}

// takeAll has n attempts use the entry at once, and returns what became of them.
func takeAll(ctx context.Context, p *Provisioner, n int, asks func(int) *attempt) (in, again, busy int) {
	var mu sync.Mutex
	var g sync.WaitGroup
	for i := range n {
		g.Go(func() {
			err := p.takeAllowance(ctx, asks(i))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				in++
			case errors.Is(err, errAgain):
				again++
			case CodeOf(err) == wire.CodeBusy:
				busy++
			}
		})
	}
	g.Wait()
	return in, again, busy
}

// hosts is how many machines boot at once.
const hosts = 192

// TestARackFarFromItsStore has a rack boot by one entry, 50 ms from the store: one after the
// other it would take them 100 ms each.
func TestARackFarFromItsStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, asks := farFrom(t, 1000)
		began := time.Now()
		if in, again, busy := takeAll(t.Context(), p, hosts, asks); in != hosts {
			t.Errorf("%d are in, %d decided anew, %d told busy; want %d in", in, again, busy, hosts)
		}
		if s.puts > 2 || time.Since(began) > time.Second || len(s.entry.UsedBy) != hosts {
			t.Errorf("%d writes in %v, %d uses on record; want one or two writes", s.puts, time.Since(began), len(s.entry.UsedBy))
		}
	})
}

// TestUsesThatGatherAreNoMoreThanThereAre has more machines than an entry is good for ask at once,
// and some of them twice.
func TestUsesThatGatherAreNoMoreThanThereAre(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, asks := farFrom(t, 10)
		in, again, _ := takeAll(t.Context(), p, 60, func(i int) *attempt { return asks(i / 2) })
		if in != 20 || again != 40 || len(s.entry.UsedBy) != 10 {
			t.Errorf("%d of 60 are in, %d decided anew, %d uses on record; want 20, 40 and 10", in, again, len(s.entry.UsedBy))
		}
	})
}

// TestWhoWritesTheUsesOfAllGoesAway has the request that writes for all who wait end in the middle
// of it, before the store has heard of it: the others do not.
func TestWhoWritesTheUsesOfAllGoesAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, asks := farFrom(t, 1000)
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Millisecond) // it is on its way
		defer cancel()
		var g sync.WaitGroup
		g.Go(func() {
			if err := p.takeAllowance(ctx, asks(0)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the first: %v, want that its time is over", err)
			}
		})
		synctest.Wait() // it leads
		in, again, busy := takeAll(t.Context(), p, 20, func(i int) *attempt { return asks(1 + i) })
		g.Wait()
		if in != 20 {
			t.Errorf("%d are in, %d decided anew, %d told busy; want 20 in", in, again, busy)
		}
		if n := len(s.entry.UsedBy); n != 20 {
			t.Errorf("%d uses on record", n)
		}
	})
}

// TestUsesThatOthersComeBefore has another provisioner use the entry, and an operator then
// replace it there, between the look of this one and its write.
func TestUsesThatOthersComeBefore(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change    func(*Allowance)
		in, again int
	}{
		"a use": {func(a *Allowance) {
			a.UsedBy = append(a.UsedBy, AllowanceUse{Identity: "rack99.example.net", KeyHash: "k"})
		}, 9, 1},
		"a replacement": {func(a *Allowance) { a.ID = "2" }, 0, 10},
		"a removal":     {func(a *Allowance) { a.Removed = true }, 0, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, s, asks := farFrom(t, 10)
				first := true
				s.before = func(*Allowance) error {
					if first {
						other := *s.entry
						tt.change(&other)
						s.entry, s.at, first = &other, s.at+1, false
					}
					return nil
				}
				if in, again, busy := takeAll(t.Context(), p, 10, asks); in != tt.in || again != tt.again {
					t.Errorf("%d are in, %d decided anew, %d told busy; want %d and %d", in, again, busy, tt.in, tt.again)
				}
			})
		})
	}
}

// TestAStoreThatTakesNoUse has the store be full: everybody who waits hears of it.
func TestAStoreThatTakesNoUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, asks := farFrom(t, 10)
		s.before = func(*Allowance) error { return ErrStoreFull }
		var g sync.WaitGroup
		for i := range 3 {
			g.Go(func() {
				if err := p.takeAllowance(t.Context(), asks(i)); CodeOf(err) != wire.CodeStorageLow {
					t.Errorf("a full store: %v, want %s", err, wire.CodeStorageLow)
				}
			})
		}
		g.Wait()
	})
}

// TestAnEntryIsRemovedAmidItsUses has an operator remove an entry while machines go on using
// it: the order is not put off by them.
func TestAnEntryIsRemovedAmidItsUses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, asks := farFrom(t, 1000)
		var g sync.WaitGroup
		for worker := range 4 {
			g.Go(func() {
				for i := 0; p.takeAllowance(t.Context(), asks(1000*worker+i)) == nil; i++ {
				}
			})
		}
		synctest.Wait() // the first is on its way
		if err := p.DisallowNames(t.Context(), rack, Cause{By: "ann"}); err != nil || !s.entry.Removed {
			t.Errorf("removed: %v, %v", err, s.entry.Removed)
		}
		g.Wait()
		if s.clashes > 0 {
			t.Errorf("%d writes came too late, in one process", s.clashes)
		}
	})
}
