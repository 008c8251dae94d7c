package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"muster/jwt"
)

// someClaims is a store with as many entries of one token's log, and nothing else.
type someClaims struct {
	Store
	*memory
}

func (s someClaims) Claims(ctx context.Context, tid jwt.TokenID, after Revision, each func(*ClaimEntry, Revision) error) error {
	return s.memory.Claims(ctx, tid, after, each)
}

func (s someClaims) AppendClaims(ctx context.Context, tid jwt.TokenID, e *ClaimEntry, after Revision) (Revision, error) {
	return s.memory.AppendClaims(ctx, tid, e, after)
}

func (s someClaims) LastClaims(context.Context) (Revision, error) {
	return Revision(len(s.log)), nil
}

func (s someClaims) AllClaims(ctx context.Context, after Revision, each func(jwt.TokenID, *ClaimEntry, Revision) error) error {
	return s.memory.Claims(ctx, "t", after, func(e *ClaimEntry, at Revision) error { return each("t", e, at) })
}

// failing is a journal that has taken no claims, and fails as often as it says.
type failing struct {
	recording
	times int
}

var errNoSpace = errors.New("no space left on device")

func (j *failing) AppendClaims(claims ...*JournaledClaims) error {
	if j.times > 0 {
		j.times--
		return errNoSpace
	}
	return j.recording.AppendClaims(claims...)
}

func (j *failing) ClaimsThrough() (through Revision, ok bool) { return Revision(len(j.at)), true }

// TestWhatTheJournalMayHaveMissed appends a claim with each outcome: one that may be in the
// store, and not in the journal, is looked for.
func TestWhatTheJournalMayHaveMissed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		store  error
		times  int // that the journal fails
		missed bool
	}{
		"written":                   {},
		"the journal's disk full":   {times: 1, missed: true},
		"the store did not answer":  {store: context.DeadlineExceeded, missed: true},
		"somebody else came first":  {store: ErrConflict},
		"the store has no room":     {store: ErrStoreFull},
		"the store could not do it": {store: fmt.Errorf("%w: read-only", ErrNotStored)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &memory{append: func() error { return tt.store }}
			lacks := newLacking()
			log := claimLog(someClaims{memory: m}, &failing{times: tt.times}, lacks)
			_, err := log.AppendClaims(t.Context(), "t", &ClaimEntry{Schema: ClaimSchema, Claims: []TokenClaim{{Key: "k"}}}, 0)
			if got := lacks.missed.Load(); got != tt.missed {
				t.Errorf("missed %v after %v, want %v", got, err, tt.missed)
			}
		})
	}
}

// TestAHoleIsFilledWithoutAnotherClaim has the journal's disk fail for a claim and for a
// while after it, when nobody claims anything any more.
func TestAHoleIsFilledWithoutAnotherClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, j := &memory{}, &failing{times: 3}
		p := &Provisioner{cfg: Config{Store: someClaims{memory: m}, Journal: j, Log: slog.New(slog.DiscardHandler)}, lacks: newLacking()}
		log := claimLog(p.cfg.Store, j, p.lacks)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = p.fillJournal(ctx) }()
		if _, err := log.AppendClaims(ctx, "t", &ClaimEntry{Schema: ClaimSchema, Claims: []TokenClaim{{Key: "k"}}}, 0); !errors.Is(err, errNoSpace) {
			t.Fatalf("append = %v, want %v", err, errNoSpace)
		}
		<-time.After(4 * fillAgain)
		synctest.Wait()
		if fmt.Sprint(j.at) != "[1]" || p.lacks.missed.Load() {
			t.Errorf("journaled %v, missed %v, want the claim, once", j.at, p.lacks.missed.Load())
		}
	})
}

// recording is a journal that tells what was written to it.
type recording struct {
	Journal
	at []Revision
}

func (r *recording) AppendClaims(claims ...*JournaledClaims) error {
	for _, c := range claims {
		r.at = append(r.at, c.At)
	}
	return nil
}
