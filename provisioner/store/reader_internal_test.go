package store

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner/broker"
)

// stores starts a broker, and returns a function that opens a store on it.
func stores(t *testing.T) (context.Context, func() *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	b, err := broker.New(broker.Config{
		Listen: "127.0.0.1:0", StoreDir: t.TempDir(), ClientCAs: x509.NewCertPool(),
		Gate: broker.GateConfig{
			TrustDomain: "fleet.test",
			VerifyToken: func(broker.Presented) (time.Time, error) { return time.Time{}, errors.New("no tokens here") },
			AdmitNode: func(context.Context, wire.Identity,
				broker.Certificate) error {
				return errors.New("no nodes here")
			},
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

// TestPausedReaderContinues deletes the consumer of an idle reader.
func TestPausedReaderContinues(t *testing.T) {
	t.Parallel()
	ctx, open := stores(t)
	s := open()
	names := []string{"first", "second", "third"}
	for _, id := range names {
		if _, err := s.js.Publish(ctx, subjectNode+id, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	l, err := s.openReader(ctx, streamNodes,
		jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy},
		jetstream.PullMaxMessages(1))
	if err != nil {
		t.Fatal(err)
	}
	defer l.close(ctx)
	var came []string
	err = l.each(ctx, 0, func(m message) error {
		came = append(came, strings.TrimPrefix(m.subject, subjectNode))
		return s.js.DeleteConsumer(ctx, streamNodes, l.consumer.CachedInfo().Name)
	})
	if err != nil || !slices.Equal(came, names) {
		t.Errorf("came %v, %v, want %v", came, err, names)
	}
}

// TestReaderSkipsDeletedMessages deletes the pending messages of a reader.
func TestReaderSkipsDeletedMessages(t *testing.T) {
	t.Parallel()
	ctx, open := stores(t)
	s := open()
	if _, err := s.js.Publish(ctx, subjectWaiting+"first", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	l, err := s.openReader(ctx, streamWaiting, jetstream.OrderedConsumerConfig{})
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
