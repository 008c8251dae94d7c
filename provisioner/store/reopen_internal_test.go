package store

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// unreported is a JetStream whose streams of reports do not answer.
type unreported struct{ jetstream.JetStream }

func (d unreported) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if reports(name) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.JetStream.Stream(ctx, name)
}

func (d unreported) CreateOrUpdateStream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestReportsAreNotWaitedFor opens a cluster's store again when no stream of reports has a
// leader yet: nodes are served by then.
func TestReportsAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	ctx, open := stores(t)
	s := open()
	s.js = unreported{s.js}
	s.replicas = 3 // as far as waiting goes
	soon, cancel := context.WithTimeout(ctx, 3*askAgain)
	defer cancel()
	if err := s.Reopen(soon); err != nil {
		t.Errorf("Reopen waits for reports: %v", err)
	}
}

// deafTo is a JetStream of which a stream does not answer until it is asked again, as that
// of a cluster which had no leader for it.
type deafTo struct {
	jetstream.JetStream
	stream string
}

func (d *deafTo) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if name == d.stream {
		d.stream = ""
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.JetStream.Stream(ctx, name)
}

// TestWhatHasNoLeaderYetIsAskedAgain opens a cluster's store again when a stream of it has
// no leader: that is told while there is time to try once more, and then it is open.
func TestWhatHasNoLeaderYetIsAskedAgain(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{streamEntries, streamNodes} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			ctx, open := stores(t)
			s := open()
			config := streams(s.replicas, s.capacity, s.inputBytes)
			s.js = &deafTo{JetStream: s.js, stream: stream}
			s.replicas = 3 // as far as waiting goes
			soon, cancel := context.WithTimeout(ctx, 3*askAgain)
			defer cancel()
			if err := s.Reopen(soon); soon.Err() != nil {
				t.Fatalf("Reopen has waited for what does not come: %v", err)
			}
			s.replicas = config[0].Replicas
			if err := s.Reopen(ctx); err != nil {
				t.Errorf("Reopen, once more: %v", err)
			}
		})
	}
}
