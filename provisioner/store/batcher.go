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

// How writes gather. A stream on one machine syncs one write after the other. A
// batch is synced once whatever its size, and costs some 0.6 ms of CPU and 40 µs a record, where
// a write alone costs 110 to 150 µs (estimated from BenchmarkPut with 16 and 256 writers): so a
// batch pays from some 12 records on, which was no worse than 6 or 8 (measured, open loop). Where the broker stages it on disk, for lack of memory, it is synced six
// times and costs 1.5 ms.
const (
	minBatch     = 12 // writes that make a batch
	maxBatch     = 64 // writes in a batch: some 160 kB, for which the broker has its smallest buffer (256 KiB); it takes 1000
	maxSingles   = 2  // writes on their way alone before others wait: the disk has the next when it is done with one
	maxBatches   = 2  // full batches on their way; the broker takes 50
	noWaitWrites = 64 // writes that go without waiting after waiting was of no use

	// patience is how long the first of a batch waits for those that are in hand.
	// Chosen: at 140,000 nodes a minute, two writes each, two full batches come in that
	// time. With 20 ms batches were sent half full whenever a collection of garbage had
	// made a queue, and cost the time that the queue needed.
	maxBatchWait = 30 * time.Millisecond
)

// Batched is the stream to which writes go in batches, where there is one server. That should stage them in memory.
const Batched = streamNodes

// A gatherer sends writes to one stream: each by itself while there are few, in
// atomic batches when there are many.
//
// A write waits for company in two cases only. The disk is busy: the writes
// before it are not acknowledged, and it would wait behind them anyway. Or so many
// requests are in hand that a batch of them will come together within
// [patience]: whoever counts the requests says so (Config.InHand), and the batch
// goes as soon as nobody else is on the way. A lone write is never held up.
//
// A batch is written whole or not at all, so it must not be that one member's
// conflict fails the others. A batch that the broker refuses is sent again as
// single writes of the identical bytes, on the same revisions: harmless, since
// nothing of it was written, and each learns its own outcome. If the
// acknowledgement of a batch is lost, the outcome is unknown to all its members,
// which is what it is to a single write whose acknowledgement is lost.
//
// There is no goroutine to it: whoever joins, or gets an acknowledgement, sends
// what is due.
type batcher struct {
	js      jetstream.JetStream
	nc      *nats.Conn
	inHand  *atomic.Int64 // requests that will probably write; may be nil
	maxWait time.Duration // patience, but in tests

	mu         sync.Mutex
	queue      []*write // first come, first served
	singles    int      // writes on their way by themselves
	batches    int      // batches on their way
	batched    int      // writes in those
	noWaitLeft int      // so many more writes go without waiting for company
	timerSet   bool     // a timer will call advance
}

// A write is one message on its way.
type write struct {
	subject  string
	data     []byte
	expected uint64
	joined   time.Time

	assigned chan *batch // gets the batch that carries it, or nil when it may go alone; has room for it
	index    int         // in the batch, from 0
}

// put makes one write if the subject's last sequence is still after. See
// [Store.publish] for what it returns.
func (g *batcher) put(ctx context.Context, subject string, data []byte, after uint64) (uint64, error) {
	w := &write{subject: subject, data: data, expected: after, joined: time.Now(), assigned: make(chan *batch, 1)}
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
		b = <-w.assigned // it was its turn just now
	}
	if b != nil {
		return g.await(ctx, b, w)
	}
	defer g.completed(func() { g.singles-- })
	return publish(ctx, g.js, subject, data, after)
}

// leave takes w out of the queue, and reports whether it was there.
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

// arrived notes that something is no longer on its way, and sends what waited
// for that.
func (g *batcher) completed(note func()) {
	g.mu.Lock()
	note()
	send := g.dispatch(true)
	g.mu.Unlock()
	g.send(send)
}

// advance gives those in the queue their turn whose turn it is, and returns the
// batches that the caller has to send; acked says that something is off its way
// since. g.mu is held.
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

// coming returns how many requests are in hand that have not come here with their
// write.
func (g *batcher) expectedWrites() int {
	if g.inHand == nil {
		return 0
	}
	return max(0, int(g.inHand.Load())-len(g.queue)-g.singles-g.batched)
}

// wake has advance called after d.
func (g *batcher) dispatchAfter(d time.Duration) {
	if g.timerSet {
		return
	}
	g.timerSet = true
	time.AfterFunc(d, func() { g.completed(func() { g.timerSet = false }) })
}
