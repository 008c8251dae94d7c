package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"muster/internal/wire"
)

// TestSupersededAreLookedAtTogether adds nodes while nobody looks, and has the
// first look fail for one of them.
func TestSupersededAreLookedAtTogether(t *testing.T) {
	t.Parallel()
	looks := make(chan []wire.Identity, 8) // more than there are looks
	first := true
	s := newSuperseded(func(_ context.Context, ids ...wire.Identity) ([]wire.Identity, error) {
		slices.Sort(ids)
		looks <- ids
		if first {
			first = false
			return []wire.Identity{"b"}, errors.New("store is gone")
		}
		return nil, nil
	}, slog.New(slog.DiscardHandler))
	s.add("a")
	s.add("b")
	s.add("a")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	for i, want := range [][]wire.Identity{{"a", "b"}, {"b"}} {
		select {
		case got := <-looks:
			if !slices.Equal(got, want) {
				t.Errorf("look %d at %v, want %v", i+1, got, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no look %d", i+1)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run = %v", err)
	}
	if len(looks) > 0 {
		t.Errorf("one more look, at %v", <-looks)
	}
}

// TestAServerThatIsGoneForGoodIsAskedForEverMoreSeldom misses a server for half a minute. Who is added
// meanwhile is looked at all the same, and the others soon once it is missed no more.
func TestAServerThatIsGoneForGoodIsAskedForEverMoreSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const old, fresh = "web1.example.net", "web2.example.net"
		var gone atomic.Bool
		gone.Store(true)
		looked := map[wire.Identity]*atomic.Int32{old: {}, fresh: {}}
		s := newSuperseded(func(_ context.Context, ids ...wire.Identity) ([]wire.Identity, error) {
			for _, id := range ids {
				looked[id].Add(1)
			}
			if gone.Load() {
				return ids, errors.New("a server is silent")
			}
			return nil, nil
		}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.run(ctx) }()
		pass := func(d time.Duration) {
			<-time.After(d) // of the bubble
			synctest.Wait()
		}
		s.add(old)
		pass(30*time.Second + 50*time.Millisecond)
		if n := looked[old].Load(); n < 6 || n > 9 {
			t.Errorf("%d looks in half a minute, want 6 to 9", n)
		}
		s.add(fresh)
		pass(lookFirst + gatherTime)
		if looked[fresh].Load() == 0 {
			t.Error("who is added meanwhile waits for who is looked at once more")
		}
		gone.Store(false)
		before := looked[old].Load()
		pass(lookAgain + lookFirst)
		if n := looked[old].Load() - before; n != 1 {
			t.Errorf("%d looks once the server is missed no more, want one", n)
		}
		pass(time.Hour)
		if looked[old].Load() != before+1 {
			t.Error("there are looks at who needs none")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestWhoIsAddedOneAfterTheOther adds nodes all the time at brokers where a look takes half a second: they
// are looked at together, and most of the time nobody is.
func TestWhoIsAddedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const took = 500 * time.Millisecond
		var looks atomic.Int32
		s := newSuperseded(func(context.Context, ...wire.Identity) ([]wire.Identity, error) {
			looks.Add(1)
			<-time.After(took)
			return nil, nil
		}, slog.New(slog.DiscardHandler))
		s.later = time.Second
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.run(ctx) }()
		for i := range 600 {
			s.add(wire.Identity(fmt.Sprintf("web%d.example.net", i)))
			<-time.After(100 * time.Millisecond) // of the bubble
		}
		if n := looks.Load(); n < 20 || n > 30 {
			t.Errorf("%d looks in a minute, want 20 to 30", n)
		}
		for range 2 {
			<-time.After(time.Minute)
			before := looks.Load()
			s.add("web1.example.net")
			<-time.After(2 * gatherTime)
			if looks.Load() == before {
				t.Error("who is added when nobody was looked at for long is not looked at at once")
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestOnlyTheLatestAreRemembered adds many nodes on each of ten days, and expects
// those of the last one to be remembered, and not many more.
func TestOnlyTheLatestAreRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSuperseded(nil, slog.New(slog.DiscardHandler))
		s.later = time.Minute
		const daily = 5000
		for day := range 10 {
			for i := range daily {
				s.add(wire.Identity(fmt.Sprintf("web%d-%d.example.net", day, i)))
			}
			if n := len(s.recent); n > 3*daily {
				t.Fatalf("day %d: %d are remembered, want %d or little more", day, n, daily)
			}
			if day < 9 {
				<-time.After(remembered + time.Second) // of the bubble
			}
		}
		s.again()
		if n := len(s.recent); n != daily {
			t.Errorf("%d are remembered, want %d", n, daily)
		}
	})
}

// TestABrokerThatComesBack has what was looked at lately looked at again.
func TestABrokerThatComesBack(t *testing.T) {
	t.Parallel()
	looked := make(chan []wire.Identity, 4)
	s := newSuperseded(func(_ context.Context, ids ...wire.Identity) ([]wire.Identity, error) {
		looked <- ids
		return nil, nil
	}, slog.New(slog.DiscardHandler))
	s.later = time.Hour
	s.again() // nothing yet
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	s.add("web1.example.net")
	for range 2 {
		if ids := <-looked; len(ids) != 1 || ids[0] != "web1.example.net" {
			t.Errorf("looked at %v", ids)
		}
		s.again()
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestALookCutOffByTheEndIsRepeated stops while somebody is looked at, whose connection is
// with a broker that goes on.
func TestALookCutOffByTheEndIsRepeated(t *testing.T) {
	t.Parallel()
	looks := make(chan []wire.Identity)
	s := newSuperseded(func(ctx context.Context, ids ...wire.Identity) ([]wire.Identity, error) {
		looks <- ids
		if _, last := ctx.Deadline(); last {
			return nil, nil
		}
		<-ctx.Done()
		return ids, ctx.Err()
	}, slog.New(slog.DiscardHandler))
	s.later = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	s.add("web1.example.net")
	<-looks
	cancel()
	select {
	case ids := <-looks:
		if len(ids) != 1 || ids[0] != "web1.example.net" {
			t.Errorf("looked at %v before the end", ids)
		}
	case err := <-done:
		t.Fatalf("it ended without having looked: %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// lookedAt returns one whose looks all go well, and who is looked at.
func lookedAt() (*superseded, <-chan []wire.Identity) {
	looked := make(chan []wire.Identity, 8) // more than there are looks
	return newSuperseded(func(_ context.Context, ids ...wire.Identity) ([]wire.Identity, error) {
		looked <- ids
		return nil, nil
	}, slog.New(slog.DiscardHandler)), looked
}

// TestNobodyWaitsForALookAtEverybody has looks at everybody take an hour each: two servers
// appear, the first look leaves a node over, at the second a server is missing.
func TestNobodyWaitsForALookAtEverybody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, looked := lookedAt()
		var began, running atomic.Int32
		s.everybody = func(ctx context.Context) ([]wire.Identity, bool, error) {
			if n := running.Add(1); n > 1 {
				t.Errorf("%d looks at everybody at once", n)
			}
			defer running.Add(-1)
			n := began.Add(1)
			select {
			case <-ctx.Done():
				return nil, false, ctx.Err()
			case <-time.After(time.Hour):
			}
			switch n {
			case 1:
				return []wire.Identity{"web2.example.net"}, true, errors.New("record cannot be read")
			case 2:
				return nil, false, errors.New("a server is silent")
			}
			return nil, true, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.run(ctx) }()
		s.again()
		<-time.After(time.Minute)
		s.again()
		next := func(want wire.Identity, within time.Duration) {
			t.Helper()
			asked := time.Now()
			if ids := <-looked; !slices.Equal(ids, []wire.Identity{want}) || time.Since(asked) > within {
				t.Errorf("looked at %v after %v, want %s within %v", ids, time.Since(asked), want, within)
			}
		}
		s.add("web1.example.net")
		next("web1.example.net", time.Second)
		next("web2.example.net", time.Hour) // and not with another look at everybody
		<-time.After(24 * time.Hour)
		if n := began.Load(); n != 3 {
			t.Errorf("%d looks at everybody, want one for each time that servers appeared, and one for the server that was missing", n)
		}
		s.again()
		<-time.After(time.Minute)
		cancel()
		if err := <-done; err != nil || running.Load() != 0 || began.Load() != 4 {
			t.Errorf("run = %v, %d looks at everybody begun and %d not ended, want 4 and none", err, began.Load(), running.Load())
		}
		if len(looked) > 0 {
			t.Errorf("one more look, at %v", <-looked)
		}
	})
}

// TestTheSecondLookIsNotLostAtAStop stops while the second look at a node is due, whose
// connection may have appeared since the first. Who was looked at twice is left alone.
func TestTheSecondLookIsNotLostAtAStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, looked := lookedAt()
		s.later = time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.run(ctx) }()
		s.add("web1.example.net")
		<-looked
		<-looked
		s.add("web2.example.net")
		<-looked
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		select {
		case ids := <-looked:
			if !slices.Equal(ids, []wire.Identity{"web2.example.net"}) {
				t.Errorf("before the end it looked at %v, want web2 alone", ids)
			}
		default:
			t.Error("it ended without the second look")
		}
	})
}
