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
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
)

// Streams and their subjects. They are never renamed.
const (
	streamNodes    = "MUSTER_NODES"
	streamClaims   = "MUSTER_CLAIMS"
	streamEntries  = "MUSTER_ENTRIES"
	streamEvents   = "MUSTER_EVENTS"
	streamAttempts = "MUSTER_ATTEMPTS"
	streamInputs   = "MUSTER_INPUTS"

	// These are written by nodes themselves, as much as they like.
	streamLifecycle = "MUSTER_LIFECYCLE"
	streamAlive     = "MUSTER_ALIVE" // when each was last heard of: of that only the last counts

	subjectNode         = "muster.node."
	subjectClaims       = "muster.claims."
	subjectEntries      = "muster.entry.>"
	subjectInstallation = "muster.entry.installation"
	subjectToken        = "muster.entry.token."
	subjectEvent        = "muster.event."
	subjectAttempt      = "muster.attempt."
	subjectInputs       = "muster.inputs"
)

// History is how many revisions of a record are kept: what `history` shows of
// a node. More would let a node that flaps fill the disk.
const History = 64

// Bounds of the event streams on a disk that has room; the oldest go first. An event is about 500
// bytes.
const (
	maxEventBytes     = 1 << 30
	maxAttemptBytes   = 64 << 20
	maxLifecycleBytes = 256 << 20

	// leastReportBytes is the least that is worth a stream: 2,000 events. Chosen.
	leastReportBytes = 1 << 20

	// maxLifecycle bounds the events of one type that a node can have there, as
	// maxNodeEvent does each of them: so it has 2.4 MiB at most, about a hundredth,
	// and takes room from nobody else. One more than is read of a node, so that it is
	// seen that there were more. Ours have 450 bytes.
	maxLifecycle = MaxNodeEvents + 1
	maxNodeEvent = 4 << 10
)

// maxPending bounds writes that are sent and not yet acknowledged. It is above
// the number of requests that the edge works on at once, so that nobody waits
// here.
const maxPending = 4096

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

// A Store is a [provisioner.Store] on JetStream. It is safe for concurrent use.
type Store struct {
	js           jetstream.JetStream
	nc           *nats.Conn
	nodes        jetstream.Stream
	entries      jetstream.Stream
	claims       jetstream.Stream
	revocations  jetstream.Stream
	waiting      jetstream.Stream
	reports      map[string]jetstream.Stream // events and attempts, by the stream's name; read-only
	installation Installation
	replicas     int
	capacity     int64
	inputBytes   int64
	timeout      time.Duration
	log          *slog.Logger
	gather       *gatherer // nil where every write goes alone
	views        views
	followers    followers // of the records
	infos        *infos
	guard        guard

	opened time.Time    // before anything was written
	acked  atomic.Int64 // how long after that a write was acknowledged last; 0 for none

	losses struct { // events that could not be published
		sync.Mutex
		count int       // since the last warning
		all   uint64    // since the store was opened
		next  time.Time // when there may be another
	}

	room atomic.Int64 // bytes that are not held back for revocations; see SetRoom
}

// Installation is what ties a store to its certificate authority.
type Installation struct {
	ID            string    `json:"id"`
	CAFingerprint string    `json:"ca"` // hex SHA-256 of the root certificate
	CreatedAt     time.Time `json:"created_at"`

	// Former are the authorities that the store was bound to before, the oldest
	// first.
	Former []Binding `json:"former,omitempty"`
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
	cfg = cfg.complete()
	// A write whose acknowledgement is lost would keep its place among those under way
	// for as long as the connection lives, also when nobody waits for it any more. Once
	// all places were taken, nothing could be written, while all else looked well.
	js, err := cfg.jetStream(jetstream.WithPublishAsyncTimeout(cfg.Timeout))
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if err := answers(ctx, js); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if err := checkRestored(ctx, js); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if err := whole(ctx, js, cfg.Installation); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s := &Store{
		js:         js,
		nc:         cfg.Conn,
		infos:      newInfos(js),
		replicas:   cfg.Replicas,
		capacity:   cfg.Capacity,
		inputBytes: cfg.InputBytes,
		timeout:    cfg.Timeout,
		log:        cfg.Log,
		opened:     time.Now(),
		reports:    make(map[string]jetstream.Stream),
	}
	s.room.Store(math.MaxInt64)
	if s.replicas, err = s.atLeast(ctx); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	// Before a stream is made: what is missing must not look like what was never there.
	if err := s.compare(ctx, cfg); err != nil {
		return nil, fmt.Errorf("store: %w", errors.Join(err, s.guard.close()))
	}
	if err := s.open(ctx, cfg); err != nil {
		return nil, fmt.Errorf("store: %w", errors.Join(err, s.guard.close()))
	}
	return s, nil
}

// open makes the streams that are missing, binds the store to its installation and reads the views.
func (s *Store) open(ctx context.Context, cfg Config) error {
	for _, c := range streams(s.replicas, cfg.Capacity, cfg.InputBytes) {
		stream, err := s.make(ctx, c)
		if err != nil {
			return fmt.Errorf("stream %s: %w", c.Name, err)
		}
		switch c.Name {
		case streamNodes:
			s.nodes = stream
		case streamClaims:
			s.claims = stream
		case streamEntries:
			s.entries = stream
		case streamRevocations:
			s.revocations = stream
		case streamEvents, streamAttempts, streamLifecycle, streamAlive:
			s.reports[c.Name] = stream
		case streamWaiting:
			s.waiting = stream
		}
	}
	// Replicas gather in the log of their cluster, which is synced once for many.
	// A broker that does not know atomic batches has not kept the setting, and
	// would write each message of one by itself.
	if s.replicas == 1 && s.nodes.CachedInfo().Config.AllowAtomicPublish {
		s.gather = &gatherer{js: s.js, nc: s.nc, inHand: cfg.InHand, wait: patience}
	}
	if err := s.bind(ctx, cfg.CAFingerprint, cfg.Former, cfg.Now().UTC().Truncate(time.Second)); err != nil {
		return err
	}
	if err := s.openViews(ctx); err != nil {
		return err
	}
	if err := s.readClaims(ctx); err != nil {
		return err
	}
	// Once more: a restore that began meanwhile was first, or fails for what we
	// have bound; see [NewImport].
	return checkRestored(ctx, s.js)
}

// make makes a stream, or changes it to c. Servers set aside what a new one may take at
// most: where they have less, of reports less is kept, since a provisioner that cannot start
// for the sake of reports is the worse of the two.
func (s *Store) make(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	for want := c.MaxBytes; ; c.MaxBytes /= 2 {
		stream, err := askInTurn(ctx, s, func(ctx context.Context) (jetstream.Stream, error) { return s.createOrUpdate(ctx, c) })
		switch {
		case noRoom(err) && reports(c.Name) && c.MaxBytes >= 2*leastReportBytes:
			continue
		case otherwise(err):
			return nil, fmt.Errorf("%w: if a later version of muster had the store, start that one; docs/operations.md, Another version, says how to go back", err)
		case err == nil && c.MaxBytes < want:
			s.log.WarnContext(ctx, "the servers have no room for all reports that are to be kept: give them more", "stream", c.Name, "bytes", c.MaxBytes, "want", want)
		}
		return stream, err
	}
}

// createOrUpdate makes a stream, or changes it to c. A log of events that is made begins at the
// microseconds since 1970: whoever goes on at a place in one that was lost has a place
// before all of it, and gets all of it, however long it has become. None takes more than an
// event a microsecond.
func (s *Store) createOrUpdate(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := s.js.Stream(ctx, c.Name)
	if !slices.Contains(logStreams[:], c.Name) {
		if err == nil && !reports(c.Name) {
			if less := lessThan(stream.CachedInfo().Config, c); len(less) > 0 {
				s.changed(ctx, c.Name, less)
			}
		}
		return s.js.CreateOrUpdateStream(ctx, c)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		c.FirstSeq = uint64(max(0, time.Now().UnixMicro()))
		if stream, err = s.js.CreateStream(ctx, c); !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return stream, err
		}
		stream, err = s.js.Stream(ctx, c.Name) // another provisioner was first
	}
	if err != nil {
		return nil, err
	}
	// For good: told of a later beginning, the broker would take away what comes before it.
	c.FirstSeq = stream.CachedInfo().Config.FirstSeq
	return s.js.UpdateStream(ctx, c)
}

// complete returns cfg with defaults for what is not set.
func (cfg Config) complete() Config {
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

// jetStream returns the interface to the streams.
func (cfg Config) jetStream(more ...jetstream.JetStreamOpt) (jetstream.JetStream, error) {
	return jetstream.New(cfg.Conn, append(more, jetstream.WithPublishAsyncMaxPending(maxPending), jetstream.WithDefaultTimeout(cfg.Timeout))...)
}

// leastDuplicates is the shortest time for which JetStream remembers ids of messages
// (its own minimum). Records have none, since their revision is what makes a doubled write
// harmless. But a broker that starts reads all messages of that time, two minutes by default:
// after a storm a million of them, whose subjects it then keeps in memory a second time.
// What nodes say has none either, and a node that gave its events some of 4 KiB each had
// the broker remember 2.6 GB of them after 15 s.
const leastDuplicates = 100 * time.Millisecond

// streams are the configurations of all streams. None has a maximum age: a
// clock that jumps must not delete anything.
func streams(replicas int, capacity, inputBytes int64) []jetstream.StreamConfig {
	// With one replica a direct read is answered by the only copy. With more it
	// may come from one that lags, so those reads go to the leader.
	direct := replicas == 1
	// Events are reports: what a power failure takes of the last moment is in the
	// records. Syncing each of them as well made enrollment slower by a fifth to
	// two fifths (measured, BenchmarkEnroll). Only one replica can do without.
	mode := jetstream.DefaultPersistMode
	if replicas == 1 {
		mode = jetstream.AsyncPersistMode
	}
	// A node that publishes an event chooses where the acknowledgement would go,
	// and that is a subject of this account, another's record say, at a broker that
	// was configured before events were services. So reports are not acknowledged;
	// nobody waits for it.
	eventBytes, attemptBytes, lifecycleBytes := int64(maxEventBytes), int64(maxAttemptBytes), int64(maxLifecycleBytes)
	inputBytes = cmp.Or(inputBytes, DefaultInputBytes)
	if capacity > 0 {
		eventBytes, attemptBytes, inputBytes = min(eventBytes, capacity/8), min(attemptBytes, capacity/32), min(inputBytes, capacity/8)
		lifecycleBytes = min(lifecycleBytes, capacity/32)
	}
	return []jetstream.StreamConfig{
		{Name: streamNodes, Subjects: []string{subjectNode + "*"}, MaxMsgsPerSubject: History, DenyDelete: true, DenyPurge: true, Replicas: replicas, AllowDirect: direct, AllowAtomicPublish: true, Duplicates: leastDuplicates,
			Description: "one subject per identity; its revisions are the node's history"},
		// A message that is gone would be a use that is back: never a key-value
		// bucket, whose history ends at 64.
		{Name: streamClaims, Subjects: []string{subjectClaims + "*"}, MaxMsgsPerSubject: -1, DenyDelete: true, DenyPurge: true, Replicas: replicas, AllowDirect: direct,
			Description: "one subject per limited token; what is spent of it"},
		taken(jetstream.StreamConfig{
			Name: streamEntries, Subjects: []string{subjectEntries}, MaxMsgsPerSubject: History, DenyDelete: true, DenyPurge: true, Replicas: replicas,
			Description: "installation, grants, tokens seen, signers, the clock's mark",
		}),
		revocationsStream(replicas),
		waitingStream(replicas, direct, capacity),
		componentsStream(replicas, direct, capacity),
		{Name: streamEvents, Subjects: []string{subjectEvent + ">"}, MaxBytes: eventBytes, Replicas: replicas, AllowDirect: true, PersistMode: mode, NoAck: true, Duplicates: reported,
			Description: "CloudEvents of provisioners"},
		{Name: streamAttempts, Subjects: []string{subjectAttempt + ">"}, MaxBytes: attemptBytes, Replicas: replicas, AllowDirect: true, PersistMode: mode, NoAck: true, Duplicates: reported,
			Description: "attempts that failed authentication"},
		{Name: streamLifecycle, Subjects: subjectsOfNodes(lifecycleTypes...), MaxBytes: lifecycleBytes, MaxMsgsPerSubject: maxLifecycle, MaxMsgSize: maxNodeEvent,
			Replicas: replicas, AllowDirect: true, PersistMode: mode, NoAck: true, Duplicates: leastDuplicates,
			Description: "CloudEvents of nodes: one subject per node and type"},
		// One for each node, however many there are: a bound on all of them would have
		// nodes that live count as unheard of, in a fleet that is large enough.
		{Name: streamAlive, Subjects: subjectsOfNodes(aliveType), MaxMsgsPerSubject: 1, MaxMsgSize: maxNodeEvent,
			Replicas: replicas, AllowDirect: true, PersistMode: mode, NoAck: true, Duplicates: leastDuplicates,
			Description: "one subject per node; when it was last heard of"},
		{Name: streamInputs, Subjects: []string{subjectInputs}, MaxBytes: inputBytes, Replicas: replicas, AllowDirect: true, PersistMode: mode, NoAck: true, Duplicates: reported,
			Description: "what decisions saw, in batches"},
	}
}

// Installation returns the id and binding of the store.
func (s *Store) Installation() Installation { return s.installation }

// Record implements [provisioner.Store].
func (s *Store) Record(ctx context.Context, id wire.Identity) (*provisioner.Record, trust.Revision, error) {
	var r provisioner.Record
	revision, err := s.last(ctx, s.nodes, subjectNode+id.SubjectToken(), &r)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read record of %q: %w", id, err)
	}
	if err := r.Check(); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", provisioner.ErrRecord, err)
	}
	if r.Identity != id {
		return nil, 0, fmt.Errorf("read record of %q: %w: it is of %q", id, provisioner.ErrRecord, r.Identity)
	}
	return &r, trust.Revision(revision), nil
}

// Put implements [provisioner.Store].
func (s *Store) Put(ctx context.Context, r *provisioner.Record, after trust.Revision) (trust.Revision, error) {
	put := s.put
	if r.State == provisioner.StateRevoked || r.State == provisioner.StateRetired {
		put = s.putAnyway
	}
	revision, err := put(ctx, subjectNode+r.Identity.SubjectToken(), r, uint64(after))
	if err != nil {
		return 0, fmt.Errorf("write record of %q: %w", r.Identity, err)
	}
	for _, q := range s.followers.all() {
		q.put(r, revision)
	}
	return trust.Revision(revision), nil
}

// last decodes the newest message of a subject into dst and returns its
// sequence. There is none: [jetstream.ErrMsgNotFound].
func (s *Store) last(ctx context.Context, stream jetstream.Stream, subject string, dst any) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	m, err := ask(ctx, s, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return stream.GetLastMsgForSubject(ctx, subject)
	})
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(m.Data, dst); err != nil {
		return m.Sequence, fmt.Errorf("%w: sequence %d: %w", provisioner.ErrRecord, m.Sequence, err)
	}
	return m.Sequence, nil
}

// put writes one message if the subject's last sequence is still after. It
// returns [trust.ErrConflict] if it is not; after any other error the
// message may be stored or may yet be, but for [trust.ErrStoreFull].
func (s *Store) put(ctx context.Context, subject string, v any, after uint64) (uint64, error) {
	b, err := encode(v)
	if err != nil {
		return 0, err
	}
	if err := s.take(subject, b); err != nil {
		return 0, err
	}
	return s.publish(ctx, subject, b, after)
}

// putAnyway is put for what may take up the room that is held back: what keeps
// somebody out, and what is bounded and small.
func (s *Store) putAnyway(ctx context.Context, subject string, v any, after uint64) (uint64, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	return s.publish(ctx, subject, b, after)
}

// encode returns v in JSON.
func encode(v any) ([]byte, error) {
	if r, ok := v.(*provisioner.Record); ok {
		return wire.EncodeJSON(r)
	}
	return json.Marshal(v)
}

// publish does the work of put. Records may gather on the way.
func (s *Store) publish(ctx context.Context, subject string, b []byte, after uint64) (uint64, error) {
	ctx, cancel := s.acknowledged(ctx)
	defer cancel()
	var revision uint64
	var err error
	if s.gather != nil && strings.HasPrefix(subject, subjectNode) {
		revision, err = s.gather.put(ctx, subject, b, after)
	} else {
		revision, err = publish(ctx, s.js, subject, b, after)
	}
	if err == nil {
		s.acked.Store(int64(time.Since(s.opened)))
	}
	return revision, err
}

// errAway is said of a write that was not sent: nats.go would keep it until the
// connection is back, hours later perhaps, when the attempt has been given up and an
// operator may have given its claim to another. A connection that is lost right behind
// the look at it keeps one that was sent in that microsecond.
var errAway = errors.New("no connection to the broker, nothing was sent")

// publish makes one write by itself.
func publish(ctx context.Context, js jetstream.JetStream, subject string, b []byte, after uint64) (uint64, error) {
	if after == uint64(trust.AnyRevision) {
		return publishIf(ctx, js, subject, b)
	}
	return publishIf(ctx, js, subject, b, jetstream.WithExpectLastSequencePerSubject(after))
}

// publishIf makes one write by itself under conditions.
func publishIf(ctx context.Context, js jetstream.JetStream, subject string, b []byte, conditions ...jetstream.PublishOpt) (uint64, error) {
	if !js.Conn().IsConnected() {
		return 0, errAway
	}
	// Asynchronous: the broker has many writes in hand at once, each of which
	// waits for its own acknowledgement here.
	f, err := js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: b}, append(conditions, jetstream.WithRetryAttempts(0))...)
	if err != nil {
		return 0, err
	}
	select {
	case ack := <-f.Ok():
		return ack.Sequence, nil
	case err := <-f.Err():
		if conflict(err) {
			return 0, fmt.Errorf("%w (%w)", trust.ErrConflict, err)
		}
		return 0, full(err)
	case <-ctx.Done():
		return 0, fmt.Errorf("no acknowledgement: %w", ctx.Err())
	}
}

// conflict reports whether a write was refused since another one came before it.
func conflict(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
