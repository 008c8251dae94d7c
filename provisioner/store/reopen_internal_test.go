package store

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// clustered opens a store that waits as a cluster's does, with what it asks in the place of
// its JetStream.
func clustered(t *testing.T, instead func(jetstream.JetStream) jetstream.JetStream) (context.Context, *Store) {
	t.Helper()
	ctx, open := stores(t)
	s := open()
	s.js = instead(s.js)
	s.replicas = 3 // as far as waiting goes
	return ctx, s
}

// mute is a JetStream that has no answer about some streams.
type mute struct {
	jetstream.JetStream
	about func(stream string) bool
}

func (m mute) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if m.about(name) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return m.JetStream.Stream(ctx, name)
}

func (m mute) CreateOrUpdateStream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	if m.about(c.Name) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return m.JetStream.CreateOrUpdateStream(ctx, c)
}

// TestReportsAreNotWaitedFor opens a cluster's store again when no stream of reports has a
// leader yet: nodes are served by then.
func TestReportsAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	ctx, s := clustered(t, func(js jetstream.JetStream) jetstream.JetStream { return mute{js, reports} })
	soon, cancel := context.WithTimeout(ctx, 3*askAgain)
	defer cancel()
	if err := s.Reopen(soon); err != nil {
		t.Errorf("Reopen waits for reports: %v", err)
	}
}

// TestNobodyAnswers opens the store of a cluster that has no leader for its records: that is
// an error while there is time to try once more.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	ctx, s := clustered(t, func(js jetstream.JetStream) jetstream.JetStream {
		return mute{js, func(stream string) bool { return stream == streamNodes }}
	})
	soon, cancel := context.WithTimeout(ctx, 3*askAgain)
	defer cancel()
	if err := s.Reopen(soon); !errors.Is(err, context.DeadlineExceeded) || soon.Err() != nil {
		t.Errorf("Reopen = %v, want %v before its time is over", err, context.DeadlineExceeded)
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
			ctx, s := clustered(t, func(js jetstream.JetStream) jetstream.JetStream { return &deafTo{JetStream: js, stream: stream} })
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
		select {
		case <-l.again:
			return l.JetStream.Stream(ctx, name)
		case <-ctx.Done():
		}
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
	ctx, s := clustered(t, func(js jetstream.JetStream) jetstream.JetStream {
		return &slow{JetStream: js, again: make(chan struct{})}
	})
	if err := s.Reopen(ctx); err != nil {
		t.Error(err)
	}
}

// deafOnce is a stream that does not answer until it is asked for a message again.
type deafOnce struct {
	jetstream.Stream
	asked atomic.Int32
}

func (d *deafOnce) GetMsg(ctx context.Context, sequence uint64, options ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	if d.asked.Add(1) == 1 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.Stream.GetMsg(ctx, sequence, options...)
}

// TestALogIsLookedAtAgain looks for revocations right before a cluster has a leader for
// them: nobody is let in until that is answered.
func TestALogIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	ctx, s := clustered(t, func(js jetstream.JetStream) jetstream.JetStream { return js })
	s.revocations = &deafOnce{Stream: s.revocations}
	soon, cancel := context.WithTimeout(ctx, askAgain)
	defer cancel()
	if r, _, err := s.NextRevocation(soon, 0); r != nil || err != nil {
		t.Errorf("NextRevocation = %+v, %v, want none", r, err)
	}
}
