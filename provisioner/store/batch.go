package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
)

// Headers of an atomic batch (NATS ADR-50).
const (
	headerBatchID       = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"
)

// A batch is a set of writes. Either all of them are stored, or none.
type batch struct {
	id     string
	writes []*write
	ack    jetstream.PubAckFuture // nil if it was not sent

	waiters      atomic.Int64
	endOnce      sync.Once
	done         chan struct{}
	lastSequence uint64
	err          error
}

// makeBatch takes one write per subject: a second must wait for the revision of the first.
func (g *batcher) makeBatch() *batch {
	b := &batch{id: wire.NewID(), done: make(chan struct{})}
	subjects := make(map[string]bool, maxBatch)
	rest := g.queue[:0:0]
	for _, w := range g.queue {
		if len(b.writes) == maxBatch || subjects[w.subject] {
			rest = append(rest, w)
			continue
		}
		subjects[w.subject] = true
		w.index = len(b.writes)
		b.writes = append(b.writes, w)
	}
	g.queue = rest
	g.batches++
	g.batched += len(b.writes)
	b.waiters.Store(int64(len(b.writes)))
	return b
}

// send publishes batches. The broker acknowledges only the last message of each.
func (g *batcher) send(batches []*batch) {
	for _, b := range batches {
		if err := g.publish(b); err != nil {
			g.finish(b, 0, err)
		}
		for _, w := range b.writes {
			w.assigned <- b
		}
	}
}

func (g *batcher) publish(b *batch) error {
	if !g.nc.IsConnected() {
		return errDisconnected
	}
	for i, w := range b.writes {
		m := &nats.Msg{Subject: w.subject, Data: w.data, Header: nats.Header{
			headerBatchID: {b.id}, headerBatchSequence: {strconv.Itoa(i + 1)},
			jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(w.expected, 10)},
		}}
		if i < len(b.writes)-1 {
			if err := g.nc.PublishMsg(m); err != nil {
				return err
			}
			continue
		}
		m.Header[headerBatchCommit] = []string{"1"}
		ack, err := g.js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0))
		if err != nil {
			return err
		}
		b.ack = ack
	}
	return nil
}

// The write whose goroutine receives the acknowledgement finishes the batch.
func (g *batcher) await(ctx context.Context, b *batch, w *write) (uint64, error) {
	defer func() {
		if b.waiters.Add(-1) == 0 {
			g.release(b)
		}
	}()
	var ok <-chan *jetstream.PubAck
	var failed <-chan error
	if b.ack != nil {
		ok, failed = b.ack.Ok(), b.ack.Err()
	}
	select {
	case <-b.done:
	case ack := <-ok:
		g.finish(b, ack.Sequence, nil)
	case err := <-failed:
		g.finish(b, 0, err)
	case <-ctx.Done():
		return 0, fmt.Errorf("no acknowledgement: %w", ctx.Err())
	}
	if b.err == nil {
		// The sequences of a batch are consecutive.
		return b.lastSequence - uint64(len(b.writes)-1-w.index), nil
	}
	return g.retryAlone(ctx, b.err, w)
}

func (g *batcher) finish(b *batch, last uint64, err error) {
	b.lastSequence, b.err = last, err
	close(b.done)
	g.release(b)
}

func (g *batcher) release(b *batch) {
	b.endOnce.Do(func() {
		g.completed(func() {
			g.batches--
			g.batched -= len(b.writes)
			if b.err != nil {
				g.noWaitLeft = noWaitWrites
			}
		})
	})
}

// retryAlone sends one write of a refused batch alone, for its own outcome. If the batch got no answer, it sends
// nothing: the batch may still be stored.
func (g *batcher) retryAlone(ctx context.Context, refused error, w *write) (uint64, error) {
	var api *jetstream.APIError
	if !errors.As(refused, &api) {
		return 0, refused
	}
	sequence, err := publish(ctx, g.js, w.subject, w.data, w.expected)
	if errors.Is(err, trust.ErrConflict) && !isConflict(refused) {
		// A broker with a failing disk may store a batch that it refused, so the write may conflict with itself.
		return 0, fmt.Errorf("outcome unknown after the batch was refused: %w", wrapFull(refused))
	}
	return sequence, err
}
