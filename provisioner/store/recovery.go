package store

import (
	"context"
	"fmt"
	"time"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

const subjectRecovery = subjectRecoveries + orders.RecoveryKey

// AcceptLoss begins a recovery: from now on the store counts as complete. It makes lost streams anew, writes a lost
// installation with the watermark's id, and writes the watermark. No provisioner may serve the store meanwhile.
// Repeating it is harmless: each call begins another epoch.
func AcceptLoss(ctx context.Context, cfg Config, why trust.Cause) (*orders.Recovery, error) {
	cfg = cfg.withDefaults()
	c, err := connect(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("recovery: %w", err)
	}
	var files guard
	mark, err := files.open(cfg.Watermarks)
	if err != nil {
		return nil, err
	}
	defer func() { _ = files.close() }() // all writes are synced
	found, err := c.marks(ctx, 0)
	if err != nil {
		return nil, err
	}
	before, err := newestEntry[orders.Recovery](ctx, c, subjectRecovery)
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
	if err := c.completeLost(ctx, cfg, mark); err != nil {
		return nil, fmt.Errorf("recovery: %w", err)
	}
	if _, err := c.putReserved(ctx, subjectRecovery, r, trust.AnyRevision); err != nil {
		return nil, fmt.Errorf("recovery: %w", err)
	}
	if found, err = c.marks(ctx, 0); err != nil {
		return nil, err
	}
	found.Epoch = r.Epoch
	return r, files.write(found)
}

// completeLost makes lost streams and a lost installation. mark may be nil.
func (c *client) completeLost(ctx context.Context, cfg Config, mark *Watermark) error {
	current, err := newestEntry[Installation](ctx, c, subjectInstallation)
	switch {
	case err != nil:
		return err
	case current != nil && current.Restoring != "":
		return current.errHalfRestored()
	}
	if err := c.makeStreams(ctx, cfg); err != nil {
		return err
	}
	if current == nil {
		current = &Installation{
			ID:            wire.NewID(),
			CAFingerprint: cfg.CAFingerprint,
			CreatedAt:     cfg.Now().UTC().Truncate(time.Second),
		}
		if mark != nil && mark.Installation != "" {
			current.ID = mark.Installation
		}
		_, err = c.putReserved(ctx, subjectInstallation, current, 0)
	}
	c.installation = *current
	return err
}
