package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go/jetstream"
)

const subjectRecovery = subjectRecoveries + orders.RecoveryKey

// lastRecovery returns the newest recovery that the store has, nil if there was none. One that cannot be read is an error.
func lastRecovery(ctx context.Context, js jetstream.JetStream) (*orders.Recovery, error) {
	m, err := lastEntry(ctx, js, subjectRecovery)
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read recovery: %w", err)
	}
	var r orders.Recovery
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return nil, fmt.Errorf("read recovery: %w", err)
	}
	return &r, nil
}

// AcceptLoss begins a recovery in the store that cfg describes, which no provisioner may serve meanwhile: what the store
// has counts from now on, whatever its watermark says. It may end at any step and be repeated: each call begins another
// epoch. It returns the recovery, which says what is lost.
func AcceptLoss(ctx context.Context, cfg Config, why trust.Cause) (*orders.Recovery, error) {
	cfg = cfg.complete()
	js, err := cfg.jetStream()
	if err != nil {
		return nil, fmt.Errorf("recovery: %w", err)
	}
	if err := answers(ctx, js); err != nil {
		return nil, fmt.Errorf("recovery: %w", err)
	}
	var files guard
	mark, err := files.open(cfg.Watermarks)
	if err != nil {
		return nil, err
	}
	defer func() { _ = files.close() }() // what was written is on disk
	found, err := newClient(js, cfg).marks(ctx, 0)
	if err != nil {
		return nil, err
	}
	before, err := lastRecovery(ctx, js)
	if err != nil {
		return nil, err
	}
	r := &orders.Recovery{
		Schema: orders.RecoverySchema,
		Epoch:  1,
		Began:  cfg.Now().UTC().Truncate(time.Second),
		Cause:  why,
	}
	if before != nil {
		r.Epoch = before.Epoch + 1
	}
	if mark != nil {
		r.Epoch = max(r.Epoch, mark.Epoch+1)
		if lost := mark.Missing(found.Streams); lost != nil {
			r.Lost = lost.Error()
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if _, err := publish(ctx, js, subjectRecovery, b, uint64(trust.AnyRevision)); err != nil {
		return nil, fmt.Errorf("recovery: %w", err)
	}
	return r, nil
}
