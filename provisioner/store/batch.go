package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

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

	done         chan struct{} // closed once the outcome is known
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
	return b
}

// send publishes batches. The broker acknowledges only the last message of each.
func (g *batcher) send(batches []*batch) {
	for _, b := range batches {
		ack, err := g.publish(b)
		go g.finish(b, ack, err)
		for _, w := range b.writes {
			w.assigned <- b
		}
	}
}

func (g *batcher) publish(b *batch) (ack jetstream.PubAckFuture, err error) {
	if !g.nc.IsConnected() {
		return nil, errDisconnected
	}
	var m *nats.Msg
	for i, w := range b.writes {
		m = &nats.Msg{Subject: w.subject, Data: w.data, Header: nats.Header{
			headerBatchID: {b.id}, headerBatchSequence: {strconv.Itoa(i + 1)},
			jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(w.expected, 10)},
		}}
		if i == len(b.writes)-1 {
			break
		}
		if err := g.nc.PublishMsg(m); err != nil {
			return nil, err
		}
	}
	m.Header[headerBatchCommit] = []string{"1"}
	return g.js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0))
}

func (g *batcher) await(ctx context.Context, b *batch, w *write) (uint64, error) {
	select {
	case <-b.done:
	case <-ctx.Done():
		return 0, fmt.Errorf("no acknowledgement: %w", ctx.Err())
	}
	if b.err == nil {
		// The sequences of a batch are consecutive.
		return b.lastSequence - uint64(len(b.writes)-1-w.index), nil
	}
	return g.retryAlone(ctx, b.err, w)
}

// finish waits for the acknowledgement, at most for the connection's time-out.
func (g *batcher) finish(b *batch, ack jetstream.PubAckFuture, err error) {
	if err == nil {
		select {
		case stored := <-ack.Ok():
			b.lastSequence = stored.Sequence
		case err = <-ack.Err():
		}
	}
	b.err = err
	close(b.done)
	g.completed(func() {
		g.batches--
		g.batched -= len(b.writes)
		if err != nil {
			g.noWaitLeft = noWaitWrites
		}
	})
}

// retryAlone sends one write of a refused batch alone, for its own outcome. If the batch got no answer, it sends
// nothing: the batch may still be stored.
func (g *batcher) retryAlone(ctx context.Context, refused error, w *write) (uint64, error) {
	if _, answered := errors.AsType[*jetstream.APIError](refused); !answered {
		return 0, refused
	}
	sequence, err := publish(ctx, g.js, w.subject, w.data, w.expected)
	if errors.Is(err, trust.ErrConflict) && !isConflict(refused) {
		// A broker with a failing disk may store a batch that it refused, so the write may conflict with itself.
		return 0, fmt.Errorf("outcome unknown after the batch was refused: %w", wrapFull(refused))
	}
	return sequence, err
}
