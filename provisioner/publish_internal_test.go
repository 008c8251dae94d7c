package provisioner

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"muster/internal/wire"
)

// unsynced is a store that shows what it could not sync, as JetStream does until
// its broker restarts.
type unsynced struct {
	Store
	alarms *Alarms
	shown  *Record
}

func (u *unsynced) Put(ctx context.Context, r *Record, _ Revision) (Revision, error) {
	u.shown = r
	err := errors.New("sync: input/output error")
	u.alarms.Raise(ctx, wire.CodeStoreUnavailable, err)
	return 0, err
}

func (u *unsynced) Record(context.Context, wire.Identity) (*Record, Revision, error) {
	return u.shown, 1, nil
}

// TestWhatIsNotSyncedIsNotPublished has a write fail that can be read all the
// same: it is not taken for done.
func TestWhatIsNotSyncedIsNotPublished(t *testing.T) {
	t.Parallel()
	alarms := NewAlarms(AlarmConfig{})
	p := &Provisioner{cfg: Config{Store: &unsynced{alarms: alarms}, Alarms: alarms, Log: slog.New(slog.DiscardHandler), StoreTrouble: func() {}}}
	now := time.Now()
	offer := &Issued{Serial: "a1", KeyHash: "k1", DER: []byte{1}, NotBefore: now, NotAfter: now.Add(time.Hour), Digest: "d1", OfferedAt: now}
	r := &Record{Schema: RecordSchema, Identity: "web1.example.net", State: StateEnrolled, Next: offer, Lineage: []string{"k1"}, Attempt: "1",
		FirstEnrolledAt: now, UpdatedAt: now}
	var refusal *Refusal
	if err := p.publish(t.Context(), r, 0, nil); !errors.As(err, &refusal) || refusal.Code != wire.CodeStoreUnavailable {
		t.Errorf("publish = %v, want %s", err, wire.CodeStoreUnavailable)
	}
	alarms.Clear(t.Context(), wire.CodeStoreUnavailable)
}
