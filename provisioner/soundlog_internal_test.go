package provisioner

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"muster/internal/wire"
)

// TestWhatIsNotSyncedIsNotClaimed has the write of a claim fail that can be read
// all the same: its attempt may not go on, neither then nor when the store has
// been restarted without it, and then its place in the log is another's.
func TestWhatIsNotSyncedIsNotClaimed(t *testing.T) {
	t.Parallel()
	cause := errors.New("sync: input/output error")
	tests := map[string]func(alarms *Alarms, broken *error) error{
		"alarm": func(alarms *Alarms, _ *error) error {
			alarms.Raise(t.Context(), wire.CodeStoreUnavailable, cause)
			return errors.New("no acknowledgement")
		},
		"the broker says so":      func(_ *Alarms, broken *error) error { *broken = cause; return errors.New("no acknowledgement") },
		"the broker answers that": func(*Alarms, *error) error { return errors.Join(ErrNotStored, cause) },
	}
	for name, fails := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			alarms := NewAlarms(AlarmConfig{})
			var broken error
			m := &memory{}
			token := &TokenInfo{ID: "t", Uses: 1}
			ghost := claimOf(1, token)
			m.append = func() error { // shows it, and fails
				m.log = append(m.log, &ClaimEntry{Schema: ClaimSchema, Claims: []TokenClaim{*ghost.claim}})
				return fails(alarms, &broken)
			}
			s := newLedgers(&soundLog{m, alarms, func() error { return broken }}, slog.New(slog.DiscardHandler), time.Now)
			if err := s.post(ctx, ghost); err == nil || errors.Is(err, errUsedUp) {
				t.Errorf("claim = %v, want that nobody knows", err)
			}
			// Restarted without it; another process has written to its place.
			alarms.Clear(ctx, wire.CodeStoreUnavailable)
			m.append, m.log, broken = nil, []*ClaimEntry{{Schema: ClaimSchema, Claims: []TokenClaim{*claimOf(2, token).claim}}}, nil
			if err := s.post(ctx, claimOf(1, token)); !errors.Is(err, errUsedUp) {
				t.Errorf("claim of a token whose one use is another's = %v, want %v", err, errUsedUp)
			}
		})
	}
}

// TestALogThatHasLostItsEndIsCountedAnew is of a store that was restarted
// without what it had shown, unknown to us: claims go on.
func TestALogThatHasLostItsEndIsCountedAnew(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := &memory{}
	s := newLedgers(m, slog.New(slog.DiscardHandler), time.Now)
	token := &TokenInfo{ID: "t", Uses: 2}
	for i := range 2 {
		if err := s.post(ctx, claimOf(i, token)); err != nil {
			t.Fatal(err)
		}
	}
	m.log = m.log[:1]
	again := claimOf(0, token)
	again.claim.Attempt = "b0"
	if err := s.post(ctx, again); err != nil {
		t.Fatalf("claim after the log has lost its end = %v", err)
	}
	if err := s.post(ctx, claimOf(2, token)); err != nil {
		t.Errorf("claim of the use that was lost = %v", err)
	}
	if err := s.post(ctx, claimOf(3, token)); !errors.Is(err, errUsedUp) {
		t.Errorf("claim of one more = %v, want %v", err, errUsedUp)
	}
}
