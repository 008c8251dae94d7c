package store

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"muster/provisioner/waiting"

	"github.com/nats-io/nats.go/jetstream"
)

// lateLeader is a stream that does not answer until it is asked again, as one that had no leader.
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

// TestAStreamThatGetsItsLeaderLate asks streams of a cluster that have no leader when they are
// asked: what is asked then is never answered, so it is asked again.
func TestAStreamThatGetsItsLeaderLate(t *testing.T) {
	t.Parallel()
	w := &waiting.Key{Schema: waiting.Schema, Identity: "web1.example.net", KeyHash: strings.Repeat("0", 64)}
	for name, question := range map[string]func(context.Context, *Store) error{
		"how many wait": func(ctx context.Context, s *Store) error {
			_,
				err := s.CountWaiters(ctx)
			return err
		},
		"whether one more waits": func(ctx context.Context, s *Store) error { return s.PutWaiter(ctx, w, 0) },
		"to drop who waits": func(ctx context.Context,
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

// clustered opens a store that waits as a cluster's does, with what it asks in the place of
// its JetStream.
func clustered(t *testing.T, instead func(jetstream.JetStream) jetstream.JetStream) (context.Context, *Store) {
	t.Helper()
	ctx, open := stores(t)
	s := open()
	s.js = instead(s.js)
	s.infos = newInfoCache(s.js)
	s.replicas = 3 // as far as waiting goes
	return ctx, s
}
