package store

import (
	"context"
	"errors"
	"sync/atomic"
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
	asked  atomic.Int32
}

func (d *deafTo) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if name == d.stream && d.asked.Add(1) == 1 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.JetStream.Stream(ctx, name)
}

// TestWhatHasNoLeaderYetIsAskedAgain opens a cluster's store again when a stream of it has
// no leader: it is asked a second time while it might yet answer the first.
func TestWhatHasNoLeaderYetIsAskedAgain(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{streamEntries, streamNodes} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			ctx, open := stores(t)
			s := open()
			s.js = &deafTo{JetStream: s.js, stream: stream}
			s.replicas = 3 // as far as waiting goes
			// Once: who waits for the first answer has none when it has been waited for.
			if err := s.Reopen(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// slow is a JetStream that answers about records when it has been asked once more, and that
// question never.
type slow struct {
	jetstream.JetStream
	asked atomic.Int32
	again chan struct{}
}

func (l *slow) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if name != streamNodes {
		return l.JetStream.Stream(ctx, name)
	}
	switch l.asked.Add(1) {
	case 1:
		<-l.again
		return l.JetStream.Stream(ctx, name)
	case 2:
		close(l.again)
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestALateAnswerCounts opens the store of a cluster that takes longer for an answer than
// until it is asked again.
func TestALateAnswerCounts(t *testing.T) {
	t.Parallel()
	ctx, open := stores(t)
	s := open()
	s.js = &slow{JetStream: s.js, again: make(chan struct{})}
	s.replicas = 3 // as far as waiting goes
	if err := s.Reopen(ctx); err != nil {
		t.Error(err)
	}
}

// TestNobodyAnswers opens the store of a cluster that has no leader for its records: that is
// an error while there is time to try once more.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	ctx, open := stores(t)
	s := open()
	s.js = mute{s.js}
	s.replicas = 3 // as far as waiting goes
	soon, cancel := context.WithTimeout(ctx, 3*askAgain)
	defer cancel()
	if err := s.Reopen(soon); !errors.Is(err, context.DeadlineExceeded) || soon.Err() != nil {
		t.Errorf("Reopen = %v, want %v before its time is over", err, context.DeadlineExceeded)
	}
}

// mute is a JetStream that has no answer about records.
type mute struct{ jetstream.JetStream }

func (m mute) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if name == streamNodes {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return m.JetStream.Stream(ctx, name)
}
