// Package store keeps the provisioners' state in JetStream: records, grants,
// events and the installation's id. It is the only package that knows
// JetStream.
//
// # How far it is trusted
//
// What this package returned as written is on disk: the broker's configuration
// syncs every write before it acknowledges (package broker; a cluster needs the
// same, see `muster broker config`). A record is written under compare-and-set
// on its subject's last sequence, so of two writers that decided on the same
// revision one is told so. Whoever can write to the account MUSTER can write
// anything, and whoever can read the store's directory can read everything but
// secrets, of which it holds none.
//
// # What it does not do
//
// It does not judge: whether a record may follow another is the provisioner's
// business. It caches nothing. It does not repeat a write whose outcome is
// unknown, since only the caller can tell its own write from another's.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"muster/provisioner/orders"
	"muster/provisioner/trust"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrInstallation means that the store belongs to another installation: it was
// made with another certificate authority.
var ErrInstallation = errors.New("store belongs to another installation")

// ErrLost means that a store that must be there is not, or a part of it. Restore a backup.
var ErrLost = errors.New("the store is gone")

// Config configures [Open].
type Config struct {
	// Conn is a connection to the account that holds the streams. Required;
	// the caller closes it after the store's last use.
	Conn *nats.Conn

	// CAFingerprint binds a new store to its certificate authority, and is
	// compared with what an existing one is bound to. Required.
	CAFingerprint string

	// Former are the fingerprints of authorities that have vouched for this
	// one: a store that is bound to one of them is bound to this one from now
	// on. The caller has verified that they did. Optional.
	Former []string

	// Watermarks are files outside of the store's directory that say what the store had; see [Watermark]. The first is
	// on the store's disk. None: what a store has lost while no process looked at it goes unnoticed.
	Watermarks []string

	// FirstWatermark takes what is found for the first watermark where there is none, since the store is others':
	// of a store of our own it would be lost.
	FirstWatermark bool

	// Installation is the id of the store's, if the caller knows it: a new store is
	// not made in its place. Optional.
	Installation string

	// Replicas of each stream, 1 to 5. Streams that have more keep them: to have
	// fewer is to lose copies, and nobody means that by starting a provisioner.
	// Default 1.
	Replicas int

	// Capacity is how many bytes the disk of the streams has for them; an eighth
	// of it is the most that events may take. Optional; zero is no bound.
	Capacity int64

	// InputBytes bounds what decisions saw, compressed; the oldest go first. It is
	// also bounded by an eighth of Capacity. Optional; zero is
	// [DefaultInputBytes].
	InputBytes int64

	// InHand counts the requests that are being worked on, each of which will
	// probably write a record: so many that come at about the same time are
	// written together. Optional; without it they gather behind a busy disk only.
	InHand *atomic.Int64

	// Timeout bounds the answer to one read, and to one write. Optional; default 12 s, since a
	// cluster that lost its leader answers again after 4 to 9 s (measured).
	Timeout time.Duration

	// Log is optional; discards by default.
	Log *slog.Logger

	// Now stamps the installation. Optional; defaults to [time.Now].
	Now func() time.Time
}

// A Store is a [provisioner.Store] on JetStream, and hands out what else is kept there. It is safe for concurrent use.
type Store struct {
	*client
	*RecordStore
	*ClaimLog
	*TokenNotes
	*WaiterStore
	*EventLog

	Subscriptions *Subscriptions
	Components    *Components
	Clock         trust.Log[*trust.ClockMark] // by [trust.ClockKey]
	Inputs        *Inputs
	Backup        *Backup

	entries     *Follower
	revocations *Follower
	logs        orders.Logs
	guard       guard
}

// Installation is what ties a store to its certificate authority.
type Installation struct {
	ID            string    `json:"id"`
	CAFingerprint string    `json:"ca"` // hex SHA-256 of the root certificate
	CreatedAt     time.Time `json:"created_at"`

	// Restoring is the id of the backup that is being restored; the rest is the backup's once that is over.
	Restoring string `json:"restoring,omitempty"`
}

// Open connects a Store to its streams, which it makes if they are missing. It
// waits for a cluster that has no leader yet until ctx is done. It returns
// [ErrInstallation] if they belong to another certificate authority, and
// [ErrHalfRestored] if a restore is under way or was cut short, and [ErrLost] if
// there is nothing where an installation is known to be, or only a part of one.
// After any error there is nothing to close.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Conn == nil || cfg.CAFingerprint == "" {
		return nil, errors.New("store: no connection or no certificate authority given")
	}
	cfg = cfg.withDefaults()
	// A write whose acknowledgement is lost would keep its place among those under way
	// for as long as the connection lives, also when nobody waits for it any more. Once
	// all places were taken, nothing could be written, while all else looked well.
	c, err := connect(ctx, cfg, jetstream.WithPublishAsyncTimeout(cfg.Timeout))
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	found, err := c.checkComplete(ctx, cfg.Installation)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s := &Store{
		client:        c,
		RecordStore:   &RecordStore{client: c},
		ClaimLog:      &ClaimLog{c},
		TokenNotes:    &TokenNotes{c},
		WaiterStore:   &WaiterStore{c},
		EventLog:      &EventLog{client: c},
		Subscriptions: &Subscriptions{c},
		Components:    &Components{c},
		Inputs:        &Inputs{c},
		Backup:        &Backup{c},
	}
	if c.replicas, err = c.wantedReplicas(ctx); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	// Before a stream is made: what is missing must not look like what was never there.
	if err := s.compareWatermark(ctx, cfg, found); err != nil {
		return nil, fmt.Errorf("store: %w", errors.Join(err, s.guard.close()))
	}
	if err := s.open(ctx, cfg); err != nil {
		return nil, fmt.Errorf("store: %w", errors.Join(err, s.guard.close()))
	}
	return s, nil
}

// open makes the streams that are missing, binds the store to its installation and reads the views.
func (s *Store) open(ctx context.Context, cfg Config) error {
	for _, want := range streams(s.replicas, cfg.Capacity, cfg.InputBytes) {
		stream, err := retryIfClustered(ctx, s.client, func(ctx context.Context) (jetstream.Stream, error) {
			return s.js.CreateOrUpdateStream(ctx, want)
		})
		if err != nil {
			return fmt.Errorf("stream %s: %w", want.Name, wrapFull(err))
		}
		s.handles[want.Name] = stream
	}
	// Replicas gather in the log of their cluster, which is synced once for many.
	// A broker that does not know atomic batches has not kept the setting, and
	// would write each message of one by itself.
	if s.replicas == 1 && s.handles[streamNodes].CachedInfo().Config.AllowAtomicPublish {
		s.batcher = &batcher{js: s.js, nc: s.nc, inHand: cfg.InHand, maxWait: maxBatchWait}
	}
	if err := s.bind(ctx, cfg.CAFingerprint, cfg.Former, cfg.Now().UTC().Truncate(time.Second)); err != nil {
		return err
	}
	if err := s.openViews(ctx); err != nil {
		return err
	}
	return s.readClaims(ctx)
}

// complete returns cfg with defaults for what is not set.
func (cfg Config) withDefaults() Config {
	if cfg.Replicas == 0 {
		cfg.Replicas = 1
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 12 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return cfg
}

// Installation returns the id and binding of the store.
func (s *Store) Installation() Installation { return s.installation }

// Replicas is on how many servers each record is.
func (s *Store) Replicas() int { return s.replicas }

// Written returns how many messages the streams have ever taken of what is
// acknowledged when it is on disk: records, claims, revocations and entries.
// Events are not counted.
func (s *Store) Written(ctx context.Context) (uint64, error) {
	return s.sumMarks(ctx, func(m Mark) uint64 { return m.Last })
}
