package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A batch costs 0.6 ms of CPU and 40 µs per record, a single write 110 to 150 µs (BenchmarkPut). A batch that the
// broker stages on disk costs 1.5 ms.
const (
	minBatch     = 12
	maxBatch     = 64 // within the broker's smallest buffer of 256 KiB
	maxSingles   = 2  // so that the disk never idles
	maxBatches   = 2  // the broker's limit is 50
	noWaitWrites = 64

	// maxBatchWait fills two batches at 140,000 nodes a minute.
	maxBatchWait = 30 * time.Millisecond
)

// Batched is the stream that is written in batches on a single server.
const Batched = streamNodes

// A batcher sends writes to one stream: singly while there are few, in atomic batches when there are many. A write
// waits only behind unacknowledged writes, or for a batch that will fill within [maxBatchWait].
//
// A refused batch is sent again as single writes of the same bytes, which is harmless: nothing of it was written. If an
// acknowledgement is lost, the outcome of each write is unknown.
type batcher struct {
	js      jetstream.JetStream
	nc      *nats.Conn
	inHand  *atomic.Int64
	maxWait time.Duration

	mu         sync.Mutex
	queue      []*write
	singles    int // in flight
	batches    int // in flight
	batched    int // writes in batches in flight
	noWaitLeft int
	timerSet   bool
}

type write struct {
	subject  string
	data     []byte
	expected uint64
	joined   time.Time

	assigned chan *batch // gets nil if the write goes alone; capacity 1
	index    int
}

func (g *batcher) put(ctx context.Context, subject string, data []byte, after uint64) (uint64, error) {
	w := &write{
		subject:  subject,
		data:     data,
		expected: after,
		joined:   time.Now(),
		assigned: make(chan *batch, 1),
	}
	g.mu.Lock()
	g.queue = append(g.queue, w)
	send := g.dispatch(false)
	g.mu.Unlock()
	g.send(send)
	var b *batch
	select {
	case b = <-w.assigned:
	case <-ctx.Done():
		if g.dequeue(w) {
			return 0, fmt.Errorf("not sent: %w", ctx.Err())
		}
		b = <-w.assigned
	}
	if b != nil {
		return g.await(ctx, b, w)
	}
	defer g.completed(func() { g.singles-- })
	return publish(ctx, g.js, subject, data, after)
}

func (g *batcher) dequeue(w *write) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.queue, w)
	if i < 0 {
		return false
	}
	g.queue = slices.Delete(g.queue, i, i+1)
	return true
}

// completed runs note, which records a finished write or batch, and then sends waiting writes.
func (g *batcher) completed(note func()) {
	g.mu.Lock()
	note()
	send := g.dispatch(true)
	g.mu.Unlock()
	g.send(send)
}

// dispatch assigns the writes that are due, and returns batches to send. The caller holds g.mu.
func (g *batcher) dispatch(acked bool) (send []*batch) {
	for len(g.queue) > 0 {
		n := len(g.queue)
		waited := time.Since(g.queue[0].joined)
		coming := g.expectedWrites()
		switch {
		case n >= maxBatch && g.batches < maxBatches:
			send = append(send, g.makeBatch())
		case g.batches > 0, g.singles >= maxSingles && !acked:
			return send // the next acknowledgement calls again
		case g.noWaitLeft == 0 && coming > 0 && n+coming >= minBatch && waited < g.maxWait:
			g.dispatchAfter(g.maxWait - waited)
			return send
		case n >= minBatch:
			send = append(send, g.makeBatch())
		case g.singles >= maxSingles:
			return send
		default:
			if g.noWaitLeft == 0 && waited >= g.maxWait && coming > 0 {
				g.noWaitLeft = noWaitWrites
			}
			g.noWaitLeft = max(0, g.noWaitLeft-1)
			w := g.queue[0]
			g.queue = g.queue[1:]
			g.singles++
			w.assigned <- nil
		}
	}
	return send
}

func (g *batcher) expectedWrites() int {
	return max(0, int(g.inHand.Load())-len(g.queue)-g.singles-g.batched)
}

func (g *batcher) dispatchAfter(d time.Duration) {
	if g.timerSet {
		return
	}
	g.timerSet = true
	time.AfterFunc(d, func() { g.completed(func() { g.timerSet = false }) })
}
