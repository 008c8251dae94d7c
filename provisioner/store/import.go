package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/provisioner/orders"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/provisioner/trust"
)

// subjectRestore is where a restore says that it has begun, and that it is over.
const subjectRestore = "muster.entry.restore"

// ErrNotEmpty means that a restore found something where it wants to write.
var ErrNotEmpty = errors.New("store is not empty")

// ErrHalfRestored means that a restore was cut short: what is in the store is
// not what the backup has. Restore once more; nothing may be served until then.
var ErrHalfRestored = errors.New("store was not restored to its end")

// restore is the state of a restore in the store.
type restore struct {
	Backup string    `json:"backup"`
	At     time.Time `json:"at"`
	Done   bool      `json:"done"`
}

// An Import fills an empty store with what a backup has. Nothing serves from it
// until Done has returned nil. It is for one goroutine.
//
// Every step may be the last. The first write says that a restore has begun, and
// [Open] refuses a store that says so. The next restore begins by throwing away
// what that one has left. The last write says that it is over.
type Import struct {
	cfg   Config
	js    jetstream.JetStream
	begun restore

	installation []byte // held back to the end
	epoch        uint64 // of the newest recovery
	last         map[string]uint64
	revoked      map[string]bool          // ids of revocations
	acks         []jetstream.PubAckFuture // oldest first, of what is not known to be stored
}

// NewImport prepares an empty store for the backup with this id. It returns
// [ErrNotEmpty] if anything of ours is there that a restore has not begun. The
// configuration's CAFingerprint is not used.
func NewImport(ctx context.Context, cfg Config, backup string) (*Import, error) {
	cfg = cfg.complete()
	js, err := cfg.jetStream()
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	i := &Import{
		cfg:     cfg,
		js:      js,
		begun:   restore{Backup: backup, At: cfg.Now().UTC().Truncate(time.Second)},
		last:    make(map[string]uint64),
		revoked: make(map[string]bool),
	}
	if err := answers(ctx, js); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	if err := i.clear(ctx); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	// The stream that says so comes first, so that no other is there without it.
	all := streams(cfg.Replicas, cfg.Capacity, cfg.InputBytes)
	slices.SortStableFunc(all, func(a, b jetstream.StreamConfig) int {
		return boolToInt(b.Name == streamEntries) - boolToInt(a.Name == streamEntries)
	})
	for _, c := range all {
		if err := i.create(ctx, c); err != nil {
			return nil, fmt.Errorf("restore: stream %s: %w", c.Name, full(err))
		}
		if c.Name != streamEntries {
			continue
		}
		// As the first message of all: a provisioner that opens the store at the
		// same time either reads this after it has bound it, or has bound it
		// before, and then this fails.
		if err := i.say(ctx, i.begun, 0); err != nil {
			return nil, fmt.Errorf("restore: %w", err)
		}
	}
	return i, nil
}

// A server answers that it has deleted a stream before the last of its files is
// gone, and then may fail to make one of the same name: seen in 18 of 150 runs of a test
// on a busy machine, and in none since. Both chosen.
const (
	createTries = 20
	createPause = 100 * time.Millisecond
)

// createFailed is the error code of a server that could not make a stream's files
// (JSStreamCreateErrF of nats-server).
const createFailed jetstream.ErrorCode = 10049

// create makes a stream, after one of its name was deleted perhaps.
func (i *Import) create(ctx context.Context, c jetstream.StreamConfig) error {
	for tries := 1; ; tries++ {
		_, err := i.js.CreateStream(ctx, c)
		var api *jetstream.APIError
		if !errors.As(err, &api) || api.ErrorCode != createFailed || tries == createTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(createPause):
		}
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// clear takes away what a restore that was cut short has left, and what has
// never been written to.
func (i *Import) clear(ctx context.Context) error {
	var found []string
	messages := uint64(0)
	for _, c := range streams(i.cfg.Replicas, i.cfg.Capacity, i.cfg.InputBytes) {
		stream, err := i.js.Stream(ctx, c.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", c.Name, err)
		}
		found = append(found, c.Name)
		messages += stream.CachedInfo().State.Msgs
	}
	if messages > 0 {
		r, err := newestEntry[restore](ctx, i.js, subjectRestore)
		if err != nil {
			return err
		}
		if r == nil || r.Done {
			return fmt.Errorf("%w: it has %d messages in %s", ErrNotEmpty, messages, strings.Join(found, ", "))
		}
	}
	// The stream that says so goes last.
	slices.SortStableFunc(found, func(a, b string) int { return boolToInt(a == streamEntries) - boolToInt(b == streamEntries) })
	for _, name := range found {
		if err := i.js.DeleteStream(ctx, name); err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	return nil
}

// newestEntry returns the newest entry of the subject, nil if there is none. It is not known yet whether the streams are
// a cluster's, so it is asked for until there is an answer.
func newestEntry[T any](ctx context.Context, js jetstream.JetStream, subject string) (*T, error) {
	m, err := insist(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		stream, err := js.Stream(ctx, streamEntries)
		if err != nil {
			return nil, err
		}
		return stream.GetLastMsgForSubject(ctx, subject)
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	entry := new(T)
	if err == nil {
		err = json.Unmarshal(m.Data, entry)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", subject, err)
	}
	return entry, nil
}

// checkRestored returns [ErrHalfRestored] if the newest restore is not over.
func checkRestored(ctx context.Context, js jetstream.JetStream) error {
	r, err := newestEntry[restore](ctx, js, subjectRestore)
	if err != nil || r == nil {
		return err
	}
	if !r.Done {
		return fmt.Errorf("%w: that of backup %s, begun at %s: restore once more", ErrHalfRestored, r.Backup, r.At.Format(time.RFC3339))
	}
	return nil
}

// say writes how far the restore is, if nobody else has written an entry: after
// is the sequence of our last one.
func (i *Import) say(ctx context.Context, r restore, after uint64) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = i.js.Publish(ctx, subjectRestore, b, jetstream.WithExpectLastSequence(after), jetstream.WithRetryAttempts(0))
	if conflict(err) {
		return fmt.Errorf("%w: somebody else writes to stream %s: stop all provisioners", ErrNotEmpty, streamEntries)
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", streamEntries, full(err))
	}
	i.last[streamEntries] = after + 1
	return nil
}

// Message takes the next message of the backup; see [CheckKept] for the errors. It is written as it is.
func (i *Import) Message(ctx context.Context, stream string, sequence uint64, subject string, data []byte) error {
	if err := CheckKept(stream, sequence, subject, data); err != nil {
		return err
	}
	switch {
	case subject == subjectProbe, subject == subjectRestore:
		return nil
	case subject == subjectInstallation:
		i.installation = slices.Clone(data)
		return nil
	case subject == subjectRecovery:
		var r orders.Recovery
		if err := json.Unmarshal(data, &r); err != nil {
			return err
		}
		i.epoch = max(i.epoch, r.Epoch)
	case stream == streamRevocations:
		var r trust.Revocation
		if err := json.Unmarshal(data, &r); err != nil {
			return err
		}
		i.revoked[r.ID] = true
	}
	return i.publish(ctx, stream, subject, data)
}

// publish writes without waiting for the acknowledgement, unless many are
// missing: the store takes messages in the order in which they were sent.
func (i *Import) publish(ctx context.Context, stream, subject string, data []byte) error {
	f, err := i.js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: slices.Clone(data)}, jetstream.WithRetryAttempts(0))
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	i.last[stream]++
	i.acks = append(i.acks, f)
	if len(i.acks) < maxPending/2 {
		return nil
	}
	return i.await(ctx, maxPending/4)
}

// acknowledgedIn is how long one acknowledgement may take; chosen, far above the
// 4 to 9 s in which a cluster elects a leader (measured).
const acknowledgedIn = time.Minute

// await waits until only so many acknowledgements are missing.
func (i *Import) await(ctx context.Context, left int) error {
	// A leader that is gone acknowledges nothing, and nobody does in its place.
	patience := time.NewTimer(acknowledgedIn)
	defer patience.Stop()
	for len(i.acks) > left {
		patience.Reset(acknowledgedIn)
		select {
		case <-i.acks[0].Ok():
		case err := <-i.acks[0].Err():
			return fmt.Errorf("%s: %w", i.acks[0].Msg().Subject, full(err))
		case <-patience.C:
			return fmt.Errorf("%s: no acknowledgement for %s: restore once more", i.acks[0].Msg().Subject, acknowledgedIn)
		case <-ctx.Done():
			return fmt.Errorf("no acknowledgement: %w", ctx.Err())
		}
		i.acks = i.acks[1:]
	}
	return nil
}

// Finish begins the recovery of the store, in an epoch that comes after that of the backup and after is's, and sees that
// all that was written is there. Nobody opens the store before Done.
func (i *Import) Finish(ctx context.Context, is *orders.Recovery) error {
	if i.installation == nil {
		return errors.New("restore: the backup has no installation")
	}
	is.Epoch = max(is.Epoch, i.epoch) + 1
	err := is.Check()
	if err == nil {
		err = i.append(ctx, streamEntries, subjectRecovery, is)
	}
	if err == nil {
		err = errors.Join(i.publish(ctx, streamEntries, subjectInstallation, i.installation), i.await(ctx, 0))
	}
	if err == nil {
		err = i.checkPlaces(ctx)
	}
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	i.epoch = is.Epoch
	return nil
}

// Done says that the restore is over: the store can be opened from then on.
// Finish has returned nil before. After an error it
// may be said or not; the next restore finds out. It returns the watermark of the store.
func (i *Import) Done(ctx context.Context) (*Watermark, error) {
	done := i.begun
	done.Done = true
	err := i.checkPlaces(ctx)
	if err == nil {
		err = i.say(ctx, done, i.last[streamEntries])
	}
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	mark, err := newClient(i.js, i.cfg).marks(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	mark.Epoch = i.epoch
	return mark, nil
}

// checkPlaces sees that the streams have what was written to them and nothing
// else: so every revocation and every claim has the place that it is to have.
func (i *Import) checkPlaces(ctx context.Context) error {
	for _, name := range kept {
		stream, err := i.js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		if got, want := stream.CachedInfo().State.LastSeq, i.last[name]; got != want {
			return fmt.Errorf("stream %s: ends at sequence %d, want %d: somebody else writes to this store; stop all provisioners", name, got, want)
		}
	}
	return nil
}

// AppendRevocation adds a revocation of a journal, and reports whether the backup did not have it.
func (i *Import) AppendRevocation(ctx context.Context, r *trust.Revocation) (added bool, err error) {
	if i.revoked[r.ID] {
		return false, nil
	}
	i.revoked[r.ID] = true
	return true, i.append(ctx, streamRevocations, subjectRevocation+r.LogKey(), r)
}

func (i *Import) append(ctx context.Context, stream, subject string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return i.publish(ctx, stream, subject, b)
}
