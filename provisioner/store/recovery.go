package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"muster/provisioner/orders"

	"muster/provisioner/trust"
)

const subjectRecovery = subjectRecoveries + orders.RecoveryKey

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
	before, err := newestEntry[orders.Recovery](ctx, js, subjectRecovery)
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
