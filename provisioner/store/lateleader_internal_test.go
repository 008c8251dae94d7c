package store

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"muster/provisioner/waiting"

	"github.com/nats-io/nats.go/jetstream"
)

// lateLeader is a stream that answers only the second request, as one without a leader at first.
type lateLeader struct {
	jetstream.Stream
	asked *atomic.Int32
}

func (l lateLeader) first(ctx context.Context) error {
	if l.asked.Add(1) == 1 {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (l lateLeader) Info(ctx context.Context, options ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	if err := l.first(ctx); err != nil {
		return nil, err
	}
	return l.Stream.Info(ctx, options...)
}

func (l lateLeader) Purge(ctx context.Context, options ...jetstream.StreamPurgeOpt) error {
	if err := l.first(ctx); err != nil {
		return err
	}
	return l.Stream.Purge(ctx, options...)
}

func (l lateLeader) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	if err := l.first(ctx); err != nil {
		return nil, err
	}
	return l.Stream.GetLastMsgForSubject(ctx, subject)
}

// TestRequestsAreRepeatedUntilALeaderAnswers uses cluster streams without a leader at first, which never answer the
// first request.
func TestRequestsAreRepeatedUntilALeaderAnswers(t *testing.T) {
	t.Parallel()
	w := &waiting.Key{Schema: waiting.Schema, Identity: "web1.example.net", KeyHash: strings.Repeat("0", 64)}
	for name, question := range map[string]func(context.Context, *Store) error{
		"whether a key waits": func(ctx context.Context, s *Store) error {
			_, _, err := s.Waiter(ctx, w.Identity, w.KeyHash)
			return err
		},
		"to drop a pending key": func(ctx context.Context,
			s *Store) error {
			return s.DropWaiter(ctx, w.Identity, w.KeyHash, 1)
		},
		"the history of a node": func(ctx context.Context,
			s *Store) error {
			return s.Revisions(ctx, w.Identity, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, s := clustered(t, func(js jetstream.JetStream) jetstream.JetStream { return js })
			asked := &atomic.Int32{}
			for name, stream := range s.handles {
				s.handles[name] = lateLeader{stream, asked}
			}
			if err := question(ctx, s); err != nil {
				t.Error(err)
			}
			if asked.Load() < 2 {
				t.Errorf("asked %d times: this does not show anything", asked.Load())
			}
		})
	}
}

// clustered opens a store that retries as in a cluster, on the given JetStream.
func clustered(t *testing.T, instead func(jetstream.JetStream) jetstream.JetStream) (context.Context, *Store) {
	t.Helper()
	ctx, open := stores(t)
	s := open()
	s.js = instead(s.js)
	s.infos = newInfoCache(s.js)
	s.replicas = 3 // for retries only
	return ctx, s
}
