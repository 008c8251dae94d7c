package store

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/broker"
)

// hung are the messages of a server that hangs: nothing comes, and after two beats it is
// missed.
type hung struct {
	jetstream.MessagesContext
	asked int
}

func (h *hung) Next(...jetstream.NextOpt) (jetstream.Msg, error) {
	if h.asked++; h.asked > 2 {
		return nil, jetstream.ErrNoHeartbeat
	}
	<-time.After(followEvery) // it is what hangs
	return nil, context.DeadlineExceeded
}

// stores starts a broker, and returns what opens a store on it.
func stores(t *testing.T) (context.Context, func() *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	b, err := broker.New(broker.Config{
		Listen: "127.0.0.1:0", StoreDir: t.TempDir(), ClientCAs: x509.NewCertPool(),
		Gate: broker.GateConfig{
			TrustDomain: "fleet.test",
			VerifyToken: func(broker.Presented) (time.Time, error) { return time.Time{}, errors.New("no tokens here") },
			AdmitNode:   func(context.Context, wire.Identity, broker.Certificate) error { return errors.New("no nodes here") },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop(ctx) })
	return ctx, func() *Store {
		conn, err := b.Connect("silent test")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		s, err := Open(ctx, Config{Conn: conn, CAFingerprint: "a"})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// TestWhatASilentServerHasIsNotPassedOver has the server from which the records are read
// hang just when another provisioner writes, after some seconds in which nobody has
// written. What it has not delivered comes from the next one.
func TestWhatASilentServerHasIsNotPassedOver(t *testing.T) {
	t.Parallel()
	ctx, open := stores(t)
	s, other := open(), open()
	write := func(id string) {
		if _, err := other.js.Publish(ctx, subjectNode+id, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	var came []wire.Identity
	f := &recordFollower{
		s: s, queue: s.handovers.open(), current: func() {}, own: func(*provisioner.Brief, trust.Revision) {},
		each: func(id wire.Identity, _ []byte, _ trust.Revision) { came = append(came, id) },
	}
	beats := func(n int) (err error) { // as run
		for range n {
			if err = f.beat(ctx); err == nil {
				until, cancel := context.WithTimeout(ctx, followEvery)
				err = f.read(until)
				cancel()
			}
			if err != nil {
				f.stop(ctx)
				return err
			}
		}
		return nil
	}
	write("first")
	if err := beats(4); err != nil || !slices.Contains(came, "first") {
		t.Fatalf("came %v, %v", came, err)
	}
	for n := 0; f.reading == nil; n++ { // again where the machine stood still: then it has been quiet for long
		write("second") // by another: from now on the stream is read
		if err := beats(4); err != nil || !slices.Contains(came, "second") || n == 10 {
			t.Fatalf("came %v, %v", came, err)
		}
	}
	f.came = f.came.Add(-silentAfter) // so long nobody has written
	f.reading.messages = &hung{MessagesContext: f.reading.messages}
	write("third")
	if err := beats(3); err == nil {
		t.Fatal("nobody misses the server")
	}
	if err := beats(4); err != nil || !slices.Contains(came, "third") {
		t.Errorf("came %v, %v; want third, through %d", came, err, f.through)
	}
}

// unheard begins a look whose first request is lost on its way: what it waits for are the
// messages of another consumer, which never has any.
func unheard(ctx context.Context, t *testing.T, s *Store) *look {
	t.Helper()
	l, err := s.look(ctx, streamNodes, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.close(ctx) })
	other, err := s.js.OrderedConsumer(ctx, streamNodes, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subjectNode + "nobody"}})
	if err == nil {
		l.messages, err = other.Messages()
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestAsksAgainIfTheBrokerKnowsOfNoRequest has the first request for the messages of a stream
// lost, as happens in a cluster whose servers have not all heard of the consumer.
func TestAsksAgainIfTheBrokerKnowsOfNoRequest(t *testing.T) {
	t.Parallel()
	ctx, open := stores(t)
	s := open()
	for _, id := range []string{"first", "second"} {
		if _, err := s.js.Publish(ctx, subjectNode+id, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	l := unheard(ctx, t, s)
	var came []string
	err := l.each(ctx, func(m message) error {
		came = append(came, strings.TrimPrefix(m.subject, subjectNode))
		return nil
	})
	if err != nil || !slices.Equal(came, []string{"first", "second"}) {
		t.Errorf("came %v, %v", came, err)
	}
}

// TestAsksAgainWhereNothingIsYet has the first request of who waits for what is still to be
// written lost.
func TestAsksAgainWhereNothingIsYet(t *testing.T) {
	t.Parallel()
	ctx, open := stores(t)
	s := open()
	l := unheard(ctx, t, s)
	time.AfterFunc(3*lookFirst, func() { _, _ = s.js.Publish(ctx, subjectNode+"first", []byte("{}")) })
	if m, _, err := l.next(ctx); err != nil || m == nil || m.Subject() != subjectNode+"first" {
		t.Errorf("came %v, %v", m, err)
	}
}

// deaf are messages of which none is delivered, while the server says that it is there.
type deaf struct{ jetstream.MessagesContext }

func (deaf) Next(...jetstream.NextOpt) (jetstream.Msg, error) { return nil, context.DeadlineExceeded }

// TestWhatIsLostOnItsWayComesAgain has messages lost that the broker has delivered, as those
// are for which a reader that stood still had no room: some that were ahead, or the newest.
func TestWhatIsLostOnItsWayComesAgain(t *testing.T) {
	t.Parallel()
	for _, before := range []int{1, 2} {
		ctx, open := stores(t)
		s := open()
		write := func(id string) {
			if _, err := s.js.Publish(ctx, subjectNode+id, []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
		l, err := s.look(ctx, streamNodes, jetstream.OrderedConsumerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.close(ctx)
		next := func(want string) {
			t.Helper()
			if m, _, err := l.next(ctx); err != nil || m == nil || m.Subject() != subjectNode+want {
				t.Errorf("came %v, %v, want %s", m, err, want)
			}
		}
		write("first")
		next("first")
		for _, id := range []string{"second", "third"}[:before] {
			write(id)
		}
		l.pending = uint64(before - 1)
		for delivered := uint64(0); delivered < uint64(before+1); { // to nobody
			info, err := l.consumer.Info(ctx)
			if err != nil {
				t.Fatal(err)
			}
			delivered = info.Delivered.Consumer
		}
		l.messages = deaf{l.messages} // which goes on asking, so that the broker keeps its consumer
		next("second")
		if before == 2 {
			next("third")
		}
	}
}

// TestWhoStoodStillGoesOn has the consumer of a look gone since nobody asked it for anything.
func TestWhoStoodStillGoesOn(t *testing.T) {
	t.Parallel()
	ctx, open := stores(t)
	s := open()
	names := []string{"first", "second", "third"}
	for _, id := range names {
		if _, err := s.js.Publish(ctx, subjectNode+id, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	l, err := s.look(ctx, streamNodes, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy}, jetstream.PullMaxMessages(1))
	if err != nil {
		t.Fatal(err)
	}
	defer l.close(ctx)
	var came []string
	err = l.each(ctx, func(m message) error {
		came = append(came, strings.TrimPrefix(m.subject, subjectNode))
		return s.js.DeleteConsumer(ctx, streamNodes, l.consumer.CachedInfo().Name)
	})
	if err != nil || !slices.Equal(came, names) {
		t.Errorf("came %v, %v, want %v", came, err, names)
	}
}

// TestWhoWaitsForAStreamCanStop ends who waits for what a server that stands still has.
func TestWhoWaitsForAStreamCanStop(t *testing.T) {
	t.Parallel()
	ctx, open := stores(t)
	s := open()
	if _, err := s.js.Publish(ctx, subjectNode+"first", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	l := unheard(ctx, t, s)
	l.of, l.last = l.consumer.CachedInfo().Name, 1 // so it is on its way, for all that is known
	reading, cancel := context.WithCancel(ctx)
	time.AfterFunc(2*lookNext, cancel)
	began := time.Now()
	if m, _, err := l.next(reading); !errors.Is(err, context.Canceled) || time.Since(began) > lookAgain/2 {
		t.Errorf("came %v, %v after %v", m, err, time.Since(began))
	}
}

// TestWaitsNoLongerForWhatIsRemoved has what is ahead of a look removed.
func TestWaitsNoLongerForWhatIsRemoved(t *testing.T) {
	t.Parallel()
	ctx, open := stores(t)
	s := open()
	if _, err := s.js.Publish(ctx, subjectWaiting+"first", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	l, err := s.look(ctx, streamWaiting, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close(ctx)
	stream, err := s.js.Stream(ctx, streamWaiting)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(ctx); err != nil {
		t.Fatal(err)
	}
	if m, _, err := l.next(ctx); m != nil || err != nil || l.pending != 0 {
		t.Errorf("got %v, %v; %d are ahead", m, err, l.pending)
	}
}
