package store

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// infoCache keeps the last answers of stream leaders.
type infoCache struct {
	js jetstream.JetStream

	mu   sync.Mutex
	last map[string]*timedInfo // guarded by mu
}

func newInfoCache(js jetstream.JetStream) *infoCache {
	return &infoCache{js: js, last: make(map[string]*timedInfo)}
}

type timedInfo struct {
	asked    time.Time // before the request was sent
	received time.Time
	info     *jetstream.StreamInfo
}

func (i *infoCache) ask(ctx context.Context, stream string) (*timedInfo, error) {
	a := &timedInfo{asked: time.Now()}
	s, err := i.js.Stream(ctx, stream)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		delete(i.last, stream)
		return nil, err
	}
	a.received, a.info = time.Now(), s.CachedInfo()
	// Concurrent answers may arrive out of order.
	if before := i.last[stream]; before == nil || a.asked.After(before.received) ||
		a.info.State.LastSeq >= before.info.State.LastSeq {
		i.last[stream] = a
	}
	return a, nil
}

func (i *infoCache) recent(ctx context.Context, stream string, within time.Duration) (*timedInfo, error) {
	i.mu.Lock()
	a := i.last[stream]
	i.mu.Unlock()
	if a != nil && time.Since(a.asked) < within {
		return a, nil
	}
	return i.ask(ctx, stream)
}
