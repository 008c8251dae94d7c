package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/store"
)

// wanted is a subscription of refusals and attempts.
var wanted = events.Subscription{Name: "webhook-test", Types: []events.Type{events.Refused, events.Attempt},
	MaxInFlight: 2, DeliveryTimeout: time.Minute, ExpireAfter: time.Hour}

// follower reads a subscription, and answers with the result of settle, until stop.
type follower struct {
	got  chan events.Delivery
	stop func()
}

func subscribed(t *testing.T, s *store.Store, settle func(*events.Delivery) events.Settlement) *follower {
	t.Helper()
	return subscribedTo(t, s, wanted, settle)
}

func subscribedTo(t *testing.T, s *store.Store, sub events.Subscription,
	settle func(*events.Delivery) events.Settlement,
) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{got: make(chan events.Delivery, 1000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Subscribe(ctx, sub, func(_ context.Context, d *events.Delivery) events.Settlement {
			f.got <- *d
			return settle(d)
		})
	}()
	f.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(f.stop)
	return f
}

// next waits for the next delivery.
func (f *follower) next(t *testing.T) events.Delivery {
	t.Helper()
	select {
	case d := <-f.got:
		return d
	case <-time.After(time.Minute):
		t.Fatal("nothing is delivered")
		return events.Delivery{}
	}
}

func settled(*events.Delivery) events.Settlement {
	return events.Settlement{Settled: true}
}

// placed waits until a subscription exists in both streams.
func placed(t *testing.T, s *site) {
	t.Helper()
	placedIn(t, s, wanted, "MUSTER_EVENTS", "MUSTER_ATTEMPTS")
}

func placedIn(t *testing.T, s *site, sub events.Subscription, streams ...string) {
	t.Helper()
	for _, stream := range streams {
		for {
			_, err := s.js.Consumer(s.ctx, stream, sub.Name)
			if err == nil {
				break
			}
			if s.ctx.Err() != nil {
				t.Fatalf("%s: %v", stream, err)
			}
		}
	}
}

// open opens the store of a site.
func open(t *testing.T, s *site) *store.Store {
	t.Helper()
	st, err := store.Open(s.ctx, store.Config{Conn: s.conn, CAFingerprint: ours})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// waiting waits until that many events wait.
func thoseWaiting(t *testing.T, s *site, st *store.Store, want uint64) {
	t.Helper()
	for {
		n, err := st.Waiting(s.ctx, wanted)
		if err != nil {
			t.Fatalf("%d events wait, want %d: %v", n, want, err)
		}
		if n == want {
			return
		}
	}
}

// TestSubscriptionContinuesInAnotherProcess has one subscriber fail and stop; another settles the rest, of both streams
// and of no other type.
func TestSubscriptionContinuesInAnotherProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, stop := start(t, dir)
	st := open(t, s)
	f := subscribed(t, st, func(d *events.Delivery) events.Settlement {
		return events.Settlement{Settled: d.Event.Type == events.Attempt, RetryAfter: time.Millisecond}
	})
	placed(t, s)
	st.Emit(events.Event{Type: events.Enrolled, Node: string(web1), Time: time.Now()})
	st.Emit(events.Event{Type: events.Refused, Node: string(web1), Code: wire.CodeDenied, Time: time.Now()})
	st.Emit(events.Event{Type: events.Attempt, Node: "stranger", Code: wire.CodeTokenInvalid, Time: time.Now()})
	ids := map[events.Type]string{}
	for tries := 0; tries < 3 || len(ids) < 2; {
		d := f.next(t)
		if id := ids[d.Event.Type]; id != "" && id != d.ID {
			t.Errorf("%s came as %s, then as %s", d.Event.Type, id, d.ID)
		}
		ids[d.Event.Type] = d.ID
		if d.Event.Type == events.Refused {
			if tries++; d.Tries != tries {
				t.Errorf("try %d, want %d", d.Tries, tries)
			}
		}
	}
	if ids[events.Refused] == ids[events.Attempt] {
		t.Error("two events with one id")
	}
	thoseWaiting(t, s, st, 1)
	f.stop()
	stop() // the broker ends as well: all is on its disk

	s, _ = start(t, dir)
	st = open(t, s)
	again := subscribed(t, st, settled)
	if d := again.next(t); d.Event.Type != events.Refused || d.ID != ids[events.Refused] || d.Tries < 4 {
		t.Errorf("delivered %s as %s for the %dth time, want the refusal", d.Event.Type, d.ID, d.Tries)
	}
	thoseWaiting(t, s, st, 0)
}

// TestSubscribersShare has two subscribers read one subscription: each event goes to one.
func TestSubscribersShare(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	st := open(t, s)
	a, b := subscribed(t, st, settled), subscribed(t, open(t, s), settled)
	placed(t, s)
	const count = 200
	for i := range count {
		st.Emit(events.Event{Type: events.Refused, Node: fmt.Sprintf("node%d.example.net", i), Code: wire.CodeDenied,
			Time: time.Now()})
	}
	seen := map[string]bool{}
	for len(seen) < count {
		var d events.Delivery
		select {
		case d = <-a.got:
		case d = <-b.got:
		case <-s.ctx.Done():
			t.Fatalf("%d of %d events are delivered", len(seen), count)
		}
		if seen[d.Event.Subject] {
			t.Errorf("%s is delivered twice", d.Event.Subject)
		}
		seen[d.Event.Subject] = true
	}
	thoseWaiting(t, s, st, 0)
}

// unasked waits until the broker knows that no subscriber is left: events before that may go to one that has stopped,
// and come again late.
func unasked(t *testing.T, s *site) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := s.js.Consumer(s.ctx, "MUSTER_EVENTS", wanted.Name)
		if err != nil {
			t.Fatal(err)
		}
		if c.CachedInfo().NumWaiting == 0 {
			return
		}
		<-tick.C
	}
}

// TestSubscriptionTypesCanChange changes the types of a subscription.
func TestSubscriptionTypesCanChange(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	st := open(t, s)
	first := subscribed(t, st, settled)
	placed(t, s)
	first.stop()
	unasked(t, s)
	st.Emit(events.Event{Type: events.Refused, Node: string(web1), Code: wire.CodeDenied, Time: time.Now()})
	changed := wanted
	changed.Types = []events.Type{events.Refused, events.Cloned}
	got := make(chan events.Type, 10)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	go st.Subscribe(ctx, changed, func(_ context.Context, d *events.Delivery) events.Settlement {
		got <- d.Event.Type
		return settled(d)
	})
	if typ := <-got; typ != events.Refused {
		t.Errorf("delivered %s, want what has waited", typ)
	}
	st.Emit(events.Event{Type: events.Cloned, Node: string(web1), Time: time.Now()})
	if typ := <-got; typ != events.Cloned {
		t.Errorf("delivered %s, want what is asked for now", typ)
	}
	c, err := s.js.Consumer(s.ctx, "MUSTER_EVENTS", wanted.Name)
	if err != nil {
		t.Fatal(err)
	}
	if cfg := c.CachedInfo().Config; cfg.DeliverPolicy != jetstream.DeliverNewPolicy || cfg.MaxDeliver != -1 ||
		len(cfg.FilterSubjects) != 2 {
		t.Errorf("consumer %+v", cfg)
	}
}
