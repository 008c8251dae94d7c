// Package store keeps the provisioners' state in JetStream. No other package knows JetStream.
//
// A write that succeeded is on disk: the broker syncs every write before it acknowledges. Writes are compare-and-set:
// of two writers that decided on the same revision, one gets a conflict. A write with an unknown outcome is not
// repeated, since only the caller can tell its own write from another's.
//
// Any client with write access to the account MUSTER can forge records. The store holds no secrets.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/provisioner/orders"
	"muster/provisioner/services"
	"muster/provisioner/trust"
)

// ErrInstallation means that the store was made with another certificate authority.
var ErrInstallation = errors.New("store belongs to another installation")

// Config configures [Open].
type Config struct {
	// Conn connects to the account of the streams. Required. The caller closes it.
	Conn *nats.Conn

	// CAFingerprint binds a new store to its certificate authority, and must match an existing store. Required.
	CAFingerprint string

	// Former are fingerprints of verified former authorities. A store of a former authority is bound to CAFingerprint.
	Former []string

	// Watermarks are paths of files outside of the store's directory, the first on the same disk; see [Watermark].
	Watermarks []string

	// FirstWatermark accepts a store without a watermark. Do not set it for a local store, which must have one.
	FirstWatermark bool

	// Installation is the id of the expected store, "" for any.
	Installation string

	// Replicas is the number of copies of each stream, 1 to 5. Streams with more copies keep them. Default 1.
	Replicas int

	// Capacity is the disk space for the streams in bytes. Events may take an eighth of it. Zero means no limit.
	Capacity int64

	// InputBytes bounds the compressed policy inputs. Zero is [DefaultInputBytes].
	InputBytes int64

	// InHand counts the requests in progress that will probably write a record. Optional.
	InHand *atomic.Int64

	// Timeout bounds one read or write. Default 12 s: a cluster without a leader answers again after 4 to 9 s
	// (measured).
	Timeout time.Duration

	// Log discards by default.
	Log *slog.Logger

	// Now defaults to [time.Now].
	Now func() time.Time
}

// A Store is a [provisioner.Store] on JetStream. It is safe for concurrent use.
type Store struct {
	*client

	Clock trust.Log[*trust.ClockMark] // by [trust.ClockKey]

	// Issuing is the number of requests for service certificates in progress that will probably write.
	Issuing atomic.Int64

	entries, revocations, certificates *Follower
	logs                               orders.Logs

	recordWriter, certificateWriter *batcher // nil if each write is sent alone

	own             atomic.Pointer[ownRecords]
	eachCertificate atomic.Pointer[func(*services.Certificate, trust.Revision)]
	lost            atomic.Uint64 // events that could not be published
}

// Installation binds a store to its certificate authority.
type Installation struct {
	ID            string    `json:"id"`
	CAFingerprint string    `json:"ca"` // hex SHA-256 of the root certificate
	CreatedAt     time.Time `json:"created_at"`

	// Restoring is the id of the backup that is being restored.
	Restoring string `json:"restoring,omitempty"`
}

// Open creates missing streams. In a cluster without a leader it waits until ctx is done. Errors include
// [ErrInstallation], [ErrDamaged] and [ErrHalfRestored]; then there is nothing to close.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Conn == nil || cfg.CAFingerprint == "" {
		return nil, errors.New("store: no connection or no certificate authority given")
	}
	cfg = cfg.withDefaults()
	// Without this timeout, writes with lost acknowledgements would stay pending until no more can be sent.
	c, err := connect(ctx, cfg, jetstream.WithPublishAsyncTimeout(cfg.Timeout))
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	found, err := c.checkComplete(ctx, cfg.Installation)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s := &Store{client: c}
	// Compare first, so that a missing stream does not look like a new one.
	if err := s.compareWatermark(ctx, cfg, found); err != nil {
		return nil, fmt.Errorf("store: %w", errors.Join(err, s.guard.close()))
	}
	if err := s.open(ctx, cfg); err != nil {
		return nil, fmt.Errorf("store: %w", errors.Join(err, s.guard.close()))
	}
	cfg.Conn.SetDisconnectErrHandler(s.guard.doubtAfter(cfg.Conn.DisconnectErrHandler()))
	return s, nil
}

// makeStreams creates missing streams, and gives present ones their settings.
func (c *client) makeStreams(ctx context.Context, cfg Config) (err error) {
	if c.replicas, err = c.wantedReplicas(ctx); err != nil {
		return err
	}
	for _, want := range streams(c.replicas, cfg.Capacity, cfg.InputBytes) {
		stream, err := retryIfClustered(ctx, c, func(ctx context.Context) (jetstream.Stream, error) {
			return c.js.CreateOrUpdateStream(ctx, want)
		})
		if err != nil {
			return fmt.Errorf("stream %s: %w", want.Name, wrapFull(err))
		}
		c.handles[want.Name] = stream
	}
	return nil
}

func (s *Store) open(ctx context.Context, cfg Config) error {
	if err := s.makeStreams(ctx, cfg); err != nil {
		return err
	}
	// A cluster needs no batches: it syncs its log once for many writes. A broker without atomic batches drops the
	// setting.
	if s.replicas == 1 && s.handles[streamNodes].CachedInfo().Config.AllowAtomicPublish {
		s.recordWriter = &batcher{js: s.js, nc: s.nc, inHand: cfg.InHand, maxWait: maxBatchWait}
		s.certificateWriter = &batcher{js: s.js, nc: s.nc, inHand: &s.Issuing, maxWait: maxBatchWait}
	}
	if err := s.bind(ctx, cfg.CAFingerprint, cfg.Former, cfg.Now().UTC().Truncate(time.Second)); err != nil {
		return err
	}
	if err := s.openViews(ctx); err != nil {
		return err
	}
	s.certificates = s.newFollower(streamCertificates)
	s.certificates.views = append(s.certificates.views, s.applyCertificate)
	// Missing claims would free uses.
	return s.newFollower(streamClaims).Open(ctx)
}

func (cfg Config) withDefaults() Config {
	cfg.Replicas = cmp.Or(cfg.Replicas, 1)
	cfg.Timeout = cmp.Or(cfg.Timeout, 12*time.Second)
	cfg.InHand = cmp.Or(cfg.InHand, new(atomic.Int64))
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return cfg
}

// Installation returns the id and binding of the store.
func (s *Store) Installation() Installation { return s.installation }

// Replicas returns the number of copies of each record.
func (s *Store) Replicas() int { return s.replicas }

const subjectProbe = "muster.entry.probe"

// Time returns the time of the store's server.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	a, err := s.infos.recent(ctx, streamRevocations, time.Second)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask the store for the time: %w", err)
	}
	return a.info.TimeStamp.Add(time.Since(a.received)), nil
}

// Probe returns nil once a test message is on disk: a store that answers reads may have lost its disk. Give ctx a
// deadline. [trust.ErrStoreFull] means that the store works.
func (s *Store) Probe(ctx context.Context) error {
	if _, err := s.js.Publish(ctx, subjectProbe, []byte("{}"), jetstream.WithRetryAttempts(0)); err != nil {
		return fmt.Errorf("probe store: %w", wrapFull(err))
	}
	return nil
}
