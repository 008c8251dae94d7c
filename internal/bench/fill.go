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
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/daemon"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// fillers is how many records are being written at a time: as many requests as a provisioner works on.
const fillers = 256

// fill writes records of provisioned nodes into the store before its provisioner starts. A provisioner in this
// process does it, in the way in which it writes those of nodes that enroll.
func (s *serving) fill(ctx context.Context, cfg *Config) (err error) {
	log, err := os.Create(filepath.Join(s.dir, "fill.log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	d, err := daemon.Load(filepath.Join(s.home(), "provisioner.yaml"), daemon.Options{Log: slog.New(slog.NewTextHandler(log, nil))}) //nolint:contextcheck // bounded by the time-out of the policy's tests
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
		case <-ctx.Done():
			return ctx.Err()
		}
		run, now := runID(), time.Now().UTC().Truncate(time.Second)
		cfg.Progress("filling the store")
		return each(ctx, cfg.Stored, fillers, func(i int) error {
			_, err := d.Store().Put(ctx, storedRecord(identityOf(run, i), now), 0)
			return err
		})
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("fill the store: %w", err)
	}
	debug.FreeOSMemory()
	s.written, err = writes(log.Name())
	return err
}

// storedRecord is the record of a node that was provisioned, as long as that of a node that enrolled.
func storedRecord(identity string, now time.Time) *provisioner.Record {
	sum := sha256.Sum256([]byte(identity))
	hash := hex.EncodeToString(sum[:])
	const shared = "8f6f24d1a1ad0c9bb0c9a4d3cf3be7ad8f6f24d1a1ad0c9bb0c9a4d3cf3be7ad" // one token, one policy for all
	return &provisioner.Record{
		Schema:   provisioner.RecordSchema,
		Identity: wire.Identity(identity),
		State:    provisioner.StateProvisioned,
		Current: &provisioner.Issued{
			Serial:    hash[:32],
			KeyHash:   hash,
			DER:       []byte(strings.Repeat(string(sum[:]), 18)), // 576 bytes, as a certificate of ours
			NotBefore: now,
			NotAfter:  now.Add(720 * time.Hour),
			Digest:    hash,
			OfferedAt: now,
		},
		Lineage:    []string{hash},
		Attempt:    wire.NewID(),
		OwnedSince: now,
		Token:      jwt.TokenID(shared[:32]),
		Signer:     jwt.SignerID(shared),
		Source:     "192.0.2.1",
		Terms: json.RawMessage(`{"brokers":"localhost:4222","default":true,"issuer":"muster bench",` +
			`"organization":"choria","purpose":"choria_provisioning"}`),
		Agent:           "bench",
		Boot:            wire.NewID(),
		Decision:        provisioner.Decided{Reason: provisioner.ReasonNew, Policy: shared},
		FirstEnrolledAt: now,
		ProvisionedAt:   now,
		UpdatedAt:       now,
	}
}
