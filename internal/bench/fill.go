package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/daemon"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// fillers is how many records are being written at a time: as many as a
// provisioner works on.
const fillers = 256

// fill writes records of provisioned nodes into the store before its
// provisioner starts, by one of our own in this process: each of them as long,
// and written in the same way, as that of a node that enrolled.
func (s *serving) fill(ctx context.Context, cfg *Config) (err error) {
	log, err := os.Create(filepath.Join(s.dir, "fill.log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	d, err := daemon.Load(filepath.Join(s.dir, "provisioner", "provisioner.yaml"), daemon.Options{Log: slog.New(slog.NewTextHandler(log, nil))}) //nolint:contextcheck // bounded by the time-out of the policy's tests
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	ready := make(chan struct{})
	g.Go(func() error { return d.Run(ctx, func() { close(ready) }) })
	g.Go(func() error {
		defer stop()
		select {
		case <-ready:
			return s.write(ctx, d, cfg)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("fill the store: %w", err)
	}
	s.written, err = writes(log.Name())
	return err
}

// write writes the records.
func (s *serving) write(ctx context.Context, d *daemon.Daemon, cfg *Config) error {
	add, end := cfg.Progress("filling the store", cfg.Stored)
	defer end()
	run, now := runID(), time.Now().UTC().Truncate(time.Second)
	var next, done atomic.Int64
	stop := every(ctx, func() { add(int(done.Swap(0))) })
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	for range fillers {
		g.Go(func() error {
			for i := int(next.Add(1)); i <= cfg.Stored; i = int(next.Add(1)) {
				if _, err := d.Store().Put(ctx, storedRecord(identityOf(run, i), now), 0); err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}
	return g.Wait()
}

// storedRecord is the record of a node that was provisioned.
func storedRecord(identity string, now time.Time) *provisioner.Record {
	sum := sha256.Sum256([]byte(identity))
	hash := hex.EncodeToString(sum[:])
	// All have enrolled with one token, by one policy.
	const shared = "8f6f24d1a1ad0c9bb0c9a4d3cf3be7ad8f6f24d1a1ad0c9bb0c9a4d3cf3be7ad"
	der := []byte(strings.Repeat(string(sum[:]), 18)) // 576 bytes, as a certificate of ours
	return &provisioner.Record{
		Schema: provisioner.RecordSchema, Identity: wire.Identity(identity), State: provisioner.StateProvisioned,
		Current: &provisioner.Issued{Serial: hash[:32], KeyHash: hash, DER: der, NotBefore: now, NotAfter: now.Add(720 * time.Hour), Digest: hash, OfferedAt: now},
		Lineage: []string{hash}, Attempt: wire.NewID(), OwnedSince: now, Token: jwt.TokenID(shared[:32]), Signer: jwt.SignerID(shared), Source: "192.0.2.1",
		Terms: json.RawMessage(`{"brokers":"localhost:4222","default":true,"issuer":"muster bench","organization":"choria","purpose":"choria_provisioning"}`),
		Agent: "bench", Boot: wire.NewID(), Decision: provisioner.Decided{Reason: provisioner.ReasonNew, Policy: shared},
		FirstEnrolledAt: now, ProvisionedAt: now, UpdatedAt: now,
	}
}
