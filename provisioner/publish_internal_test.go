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
	put   func() error // why the write fails
	read  func()       // runs before a read
	shown *Record
}

func (u *unsynced) Put(_ context.Context, r *Record, _ Revision) (Revision, error) {
	u.shown = r
	return 0, u.put()
}

func (u *unsynced) Record(context.Context, wire.Identity) (*Record, Revision, error) {
	u.read()
	return u.shown, 1, nil
}

// TestWhatIsNotSyncedIsNotPublished has a write fail that can be read all the
// same: it is not taken for done if anybody says that the store failed, however
// short a time that was so.
func TestWhatIsNotSyncedIsNotPublished(t *testing.T) {
	t.Parallel()
	cause := errors.New("sync: input/output error")
	lost := errors.New("no acknowledgement")
	tests := map[string]struct {
		put     error
		alarm   bool // raised by the write
		cleared bool // before the read
		broken  error
		want    bool // it is done
	}{
		"acknowledgement lost":         {put: lost, want: true},
		"alarm":                        {put: lost, alarm: true},
		"alarm that is over":           {put: lost, alarm: true, cleared: true},
		"the broker says so":           {put: lost, broken: cause},
		"the broker answers that":      {put: errors.Join(ErrNotStored, cause)},
		"somebody's write is in front": {put: ErrConflict, want: true}, // ours, of before
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alarms := NewAlarms(AlarmConfig{})
			var broken error
			s := &unsynced{
				put: func() error {
					broken = tt.broken
					if tt.alarm {
						alarms.Raise(t.Context(), wire.CodeStoreUnavailable, cause)
					}
					return tt.put
				},
				read: func() {
					if tt.cleared {
						alarms.Clear(t.Context(), wire.CodeStoreUnavailable)
					}
				},
			}
			p := &Provisioner{cfg: Config{Store: s, Alarms: alarms, Log: slog.New(slog.DiscardHandler), StoreTrouble: func() {}, StoreBroken: func() error { return broken }}}
			now := time.Now()
			offer := &Issued{Serial: "a1", KeyHash: "k1", DER: []byte{1}, NotBefore: now, NotAfter: now.Add(time.Hour), Digest: "d1", OfferedAt: now}
			r := &Record{Schema: RecordSchema, Identity: "web1.example.net", State: StateEnrolled, Next: offer, Lineage: []string{"k1"}, Attempt: "1",
				FirstEnrolledAt: now, UpdatedAt: now}
			err := p.publish(t.Context(), r, 0, nil)
			if tt.want && err != nil {
				t.Errorf("publish = %v, want it done", err)
			}
			var refusal *Refusal
			if !tt.want && (!errors.As(err, &refusal) || refusal.Code != wire.CodeStoreUnavailable) {
				t.Errorf("publish = %v, want %s", err, wire.CodeStoreUnavailable)
			}
		})
	}
}
