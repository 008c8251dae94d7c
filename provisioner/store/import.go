package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"muster/provisioner/orders"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/provisioner/trust"
)

// ErrNotEmpty means that a restore found data in its target.
var ErrNotEmpty = errors.New("store is not empty")

// ErrHalfRestored means that a restore was not completed. Restore again; serve nothing until then.
var ErrHalfRestored = errors.New("the restore was not completed")

// restoreAckTimeout is far above the 4 to 9 s of an election (measured).
const restoreAckTimeout = time.Minute

// An Import fills an empty store from a backup. It is for one goroutine. Serve nothing before Done has returned nil.
//
// A crash at any step is safe: the first write marks the store as being restored, and [Open] refuses a marked store.
// The next restore deletes it. The last write is the backup's installation.
type Import struct {
	cfg    Config
	client *client

	installation []byte // held back to the end
	epoch        uint64 // of the newest recovery
	last         map[string]uint64
	revoked      map[string]bool       // subjects
	firstErr     atomic.Pointer[error] // of the first write without acknowledgement
}

// NewImport prepares an empty store for the backup with this id. It returns [ErrNotEmpty] if the store has data that is
// not from an unfinished restore.
func NewImport(ctx context.Context, cfg Config, backup string) (*Import, error) {
	i := &Import{
		cfg:     cfg.withDefaults(),
		last:    make(map[string]uint64),
		revoked: make(map[string]bool),
	}
	if err := i.begin(ctx, backup); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	return i, nil
}

func (i *Import) begin(ctx context.Context, backup string) (err error) {
	failed := func(_ jetstream.JetStream, m *nats.Msg, err error) {
		err = fmt.Errorf("%s: %w", m.Subject, wrapFull(err))
		i.firstErr.CompareAndSwap(nil, &err)
	}
	i.client, err = connect(ctx, i.cfg, jetstream.WithPublishAsyncTimeout(restoreAckTimeout),
		jetstream.WithPublishAsyncErrHandler(failed))
	if err != nil {
		return err
	}
	if err := i.clear(ctx); err != nil {
		return err
	}
	for _, c := range streams(i.cfg.Replicas, i.cfg.Capacity, i.cfg.InputBytes) {
		if _, err := i.client.js.CreateStream(ctx, c); err != nil {
			return fmt.Errorf("stream %s: %w", c.Name, wrapFull(err))
		}
		if c.Name != streamEntries {
			continue
		}
		// Write the mark first, in case a provisioner opens the store.
		marked, err := json.Marshal(Installation{CreatedAt: i.cfg.Now().UTC().Truncate(time.Second), Restoring: backup})
		if err == nil {
			err = i.install(ctx, marked)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (i *Import) clear(ctx context.Context) error {
	var found []string
	messages := uint64(0)
	for _, c := range streams(i.cfg.Replicas, i.cfg.Capacity, i.cfg.InputBytes) {
		stream, err := i.client.js.Stream(ctx, c.Name)
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
		current, err := newestEntry[Installation](ctx, i.client, subjectInstallation)
		if err != nil {
			return err
		}
		if current == nil || current.Restoring == "" {
			return fmt.Errorf("%w: it has %d messages in %s", ErrNotEmpty, messages, strings.Join(found, ", "))
		}
	}
	for _, name := range slices.Backward(found) { // the stream with the mark goes last
		if err := i.client.js.DeleteStream(ctx, name); err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	return nil
}

// newestEntry returns the newest entry of subject, or nil. It works before the store is open.
func newestEntry[T any](ctx context.Context, c *client, subject string) (*T, error) {
	stream, err := retryUntilDone(ctx,
		func(ctx context.Context) (jetstream.Stream, error) { return c.js.Stream(ctx, streamEntries) })
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", subject, err)
	}
	c.handles[streamEntries] = stream
	entry, _, err := getLast[T](ctx, c, streamEntries, subject)
	return entry, err
}

func (i *Import) install(ctx context.Context, installation []byte) error {
	after := min(i.last[streamEntries], 1)
	_, err := publish(ctx, i.client.js, subjectInstallation, installation, after)
	if errors.Is(err, trust.ErrConflict) {
		return fmt.Errorf("%w: another process writes to stream %s: stop all provisioners", ErrNotEmpty, streamEntries)
	}
	i.last[streamEntries]++
	return err
}

// Message writes the next message of the backup; see [CheckMessage].
func (i *Import) Message(ctx context.Context, stream string, sequence uint64, subject string, data []byte) error {
	if err := CheckMessage(stream, sequence, subject, data); err != nil {
		return err
	}
	switch {
	case subject == subjectProbe:
		return nil
	case subject == subjectInstallation:
		i.installation = data
		return nil
	case subject == subjectRecovery:
		var r orders.Recovery
		if err := json.Unmarshal(data, &r); err != nil {
			return err
		}
		i.epoch = max(i.epoch, r.Epoch)
	case stream == streamRevocations:
		i.revoked[subject] = true
	}
	return i.publish(ctx, stream, subject, data)
}

// publish waits for acknowledgements only if many are missing.
func (i *Import) publish(ctx context.Context, stream, subject string, data []byte) error {
	_, err := i.client.js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: data}, jetstream.WithRetryAttempts(0),
		jetstream.WithStallWait(restoreAckTimeout))
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	i.last[stream]++
	return i.failed(ctx)
}

func (i *Import) failed(ctx context.Context) error {
	if failed := i.firstErr.Load(); failed != nil {
		return *failed
	}
	return ctx.Err()
}

// Finish writes the recovery, with a new epoch, and waits for all acknowledgements. Call Done next.
func (i *Import) Finish(ctx context.Context, recovery *orders.Recovery) error {
	if i.installation == nil {
		return errors.New("restore: the backup has no installation")
	}
	recovery.Epoch = max(recovery.Epoch, i.epoch) + 1
	err := recovery.Check()
	if err == nil {
		err = i.append(ctx, streamEntries, subjectRecovery, recovery)
	}
	if err == nil {
		select {
		case <-i.client.js.PublishAsyncComplete():
		case <-ctx.Done():
		}
		err = i.failed(ctx)
	}
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	i.epoch = recovery.Epoch
	return nil
}

// Done writes the installation, after which the store can be opened. After an error restore again.
func (i *Import) Done(ctx context.Context) (*Watermark, error) {
	err := i.checkSequences(ctx)
	if err == nil {
		err = i.install(ctx, i.installation)
	}
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	mark, err := i.client.marks(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	mark.Epoch = i.epoch
	return mark, nil
}

func (i *Import) checkSequences(ctx context.Context) error {
	found, err := i.client.marks(ctx, 0)
	if err != nil {
		return err
	}
	for _, name := range durableStreams {
		if got, want := found.Streams[name].Last, i.last[name]; got != want {
			return fmt.Errorf("stream %s ends at sequence %d, want %d: another process writes to this store: stop "+
				"all provisioners", name, got, want)
		}
	}
	return nil
}

// AppendRevocation adds a revocation from a journal, if the backup lacked it.
func (i *Import) AppendRevocation(ctx context.Context, r *trust.Revocation) (added bool, err error) {
	subject := subjectRevocation + r.LogKey()
	if i.revoked[subject] {
		return false, nil
	}
	i.revoked[subject] = true
	return true, i.append(ctx, streamRevocations, subject, r)
}

// Revocations returns how many revocations were written.
func (i *Import) Revocations() int { return len(i.revoked) }

func (i *Import) append(ctx context.Context, stream, subject string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return i.publish(ctx, stream, subject, b)
}
