package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/store"
)

// crowd concurrent writes are enough for a batch.
const crowd = 64

// gathering returns a store with a crowd of requests in hand. A patient one waits for all of them.
func (s *site) gathering(t testing.TB, patient bool) *store.Store {
	t.Helper()
	inHand := new(atomic.Int64)
	inHand.Store(crowd)
	st, err := store.Open(s.ctx, store.Config{Conn: s.conn, CAFingerprint: ours, InHand: inHand})
	if err != nil {
		t.Fatal(err)
	}
	if patient {
		st.Patient()
	}
	return st
}

// An outcome is the result of one Put.
type outcome struct {
	record   *provisioner.Record
	revision trust.Revision
	err      error
}

// atOnce makes a crowd of concurrent writes, and returns the outcomes.
func atOnce(ctx context.Context, st *store.Store, one func(i int) (*provisioner.Record, trust.Revision)) []outcome {
	outcomes := make([]outcome, crowd)
	var writers sync.WaitGroup
	for i := range outcomes {
		writers.Go(func() {
			r, after := one(i)
			revision, err := st.Put(ctx, r, after)
			outcomes[i] = outcome{r, revision, err}
		})
	}
	writers.Wait()
	return outcomes
}

// agree compares outcomes with the store: acknowledged writes are there at their revision, conflicts and refused writes
// are not, and the rest may be either. It returns the number of each.
func (s *site) agree(t *testing.T, outcomes []outcome) (written, refused, unknown int) {
	t.Helper()
	stored := make(map[string]trust.Revision)
	st := s.open(t, ours)
	err := st.Revisions(s.ctx, "", func(r *provisioner.Record, revision trust.Revision) error {
		if at, ok := stored[r.Attempt]; ok {
			t.Errorf("attempt %s is there twice, at %d and %d", r.Attempt, at, revision)
		}
		stored[r.Attempt] = revision
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		at, ok := stored[o.record.Attempt]
		switch {
		case o.err == nil:
			written++
			if at != o.revision {
				t.Errorf("%s: written as %d, found at %d", o.record.Attempt, o.revision, at)
			}
		case errors.Is(o.err, trust.ErrConflict), errors.Is(o.err, trust.ErrStoreFull):
			refused++
			if ok {
				t.Errorf("%s: %v, and it is there at %d", o.record.Attempt, o.err, at)
			}
		default:
			unknown++
		}
	}
	return written, refused, unknown
}

// inBatches returns how many of the stored records came in a batch.
func (s *site) inBatches(t *testing.T) (n int) {
	t.Helper()
	stream, err := s.js.Stream(s.ctx, "MUSTER_NODES")
	if err != nil {
		t.Fatal(err)
	}
	for sequence := uint64(1); sequence <= stream.CachedInfo().State.LastSeq; sequence++ {
		m, err := stream.GetMsg(s.ctx, sequence)
		if err != nil {
			t.Fatal(err)
		}
		if m.Header.Get("Nats-Batch-Id") != "" {
			n++
		}
	}
	return n
}

func node(i int) wire.Identity { return wire.Identity(fmt.Sprintf("node%d.example.net", i)) }

func fresh(i int) (*provisioner.Record, trust.Revision) {
	return record(node(i), fmt.Sprint("a", i)), 0
}

// TestConcurrentWritesAreBatched writes a first and then a second record of each node, on the acknowledged revision.
func TestConcurrentWritesAreBatched(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	st := s.gathering(t, true)
	first := atOnce(s.ctx, st, fresh)
	second := atOnce(s.ctx, st, func(i int) (*provisioner.Record, trust.Revision) {
		return record(node(i), fmt.Sprint("b", i)), first[i].revision
	})
	if written, _, _ := s.agree(t, append(first, second...)); written != 2*crowd {
		t.Errorf("%d written, want %d: %v", written, 2*crowd, append(first, second...))
	}
	if n := s.inBatches(t); n != 2*crowd {
		t.Errorf("%d of %d came in a batch", n, 2*crowd)
	}
}

// TestConflictFailsNoOtherWrite puts conflicting writes into the middle of a batch.
func TestConflictFailsNoOtherWrite(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	st := s.gathering(t, true)
	late := func(i int) bool { return i%20 == 7 }
	outcomes := atOnce(s.ctx, st, func(i int) (*provisioner.Record, trust.Revision) {
		r, after := fresh(i)
		if late(i) {
			after = 1000
		}
		return r, after
	})
	s.agree(t, outcomes)
	for i, o := range outcomes {
		if late(i) != errors.Is(o.err, trust.ErrConflict) || !late(i) && o.err != nil {
			t.Errorf("Put %d = %v, late: %v", i, o.err, late(i))
		}
	}
}

// TestWritesOfOneRecordShareNoBatch writes the same record on the same revision many times at once.
func TestWritesOfOneRecordShareNoBatch(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	st := s.gathering(t, false)
	outcomes := atOnce(s.ctx, st, func(i int) (*provisioner.Record, trust.Revision) {
		return record(web1, fmt.Sprint("a", i)), 0
	})
	if written, refused, _ := s.agree(t, outcomes); written != 1 || refused != crowd-1 {
		t.Errorf("%d written, %d refused, want 1 and %d", written, refused, crowd-1)
	}
}

// TestFullStoreRefusesBatches fills the store: a refused write has written nothing, alone or in a batch.
func TestFullStoreRefusesBatches(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	st := s.gathering(t, true)
	stream, err := s.js.Stream(s.ctx, "MUSTER_NODES")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxBytes, cfg.Discard = 10_000, jetstream.DiscardNew
	if _, err := s.js.UpdateStream(s.ctx, cfg); err != nil {
		t.Fatal(err)
	}
	written, refused, unknown := s.agree(t, atOnce(s.ctx, st, fresh))
	if written == 0 || written == crowd || written+refused+unknown != crowd {
		t.Errorf("%d written, %d refused, %d unknown, want some and not all written", written, refused, unknown)
	}
}

// TestAbandonedWritesDelayNoOthers cancels writers at every stage. Their writes may be stored or not, and later writes
// succeed.
func TestAbandonedWritesDelayNoOthers(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	st := s.gathering(t, false)
	var outcomes []outcome
	for round := range 10 {
		ctx, cancel := context.WithCancel(s.ctx)
		var began atomic.Int64
		outcomes = append(outcomes, atOnce(ctx, st, func(i int) (*provisioner.Record, trust.Revision) {
			if began.Add(1) == int64(round*crowd/10) {
				cancel()
			}
			return record(node(round*crowd+i), fmt.Sprint("a", round, "-", i)), 0
		})...)
		cancel()
	}
	for _, o := range outcomes {
		if o.err != nil && !errors.Is(o.err, context.Canceled) {
			t.Errorf("Put(%s) = %v", o.record.Attempt, o.err)
		}
	}
	last := atOnce(s.ctx, st, func(i int) (*provisioner.Record, trust.Revision) {
		return record(node(-1-i), fmt.Sprint("z", i)), 0
	})
	for _, o := range last {
		if o.err != nil {
			t.Errorf("Put(%s) = %v", o.record.Attempt, o.err)
		}
	}
	s.agree(t, append(outcomes, last...))
}

// TestLoneWriteDoesNotWait writes alone although a crowd is in hand and does not come.
func TestLoneWriteDoesNotWait(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	st := s.gathering(t, false)
	put(t, s, st, record(web1, "a"), 0)
	inHand := new(atomic.Int64)
	inHand.Store(1)
	patient, err := store.Open(s.ctx, store.Config{Conn: s.conn, CAFingerprint: ours, InHand: inHand})
	if err != nil {
		t.Fatal(err)
	}
	patient.Patient()
	put(t, s, patient, record(web2, "a"), 0)
}

// TestOutcomesHoldAcrossBrokerRestarts ends the broker under writers again and again. Their outcomes hold in the next
// broker.
func TestOutcomesHoldAcrossBrokerRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var outcomes []outcome
	for round := range 4 {
		s, stop := start(t, dir)
		st := s.gathering(t, round%2 == 0)
		ctx, cancel := context.WithCancel(s.ctx)
		ending := make(chan struct{})
		var stopping sync.WaitGroup
		stopping.Go(func() {
			<-ending
			if round%2 == 0 {
				s.conn.Close() // acknowledgements are lost
			} else if err := s.broker.Stop(s.ctx); err != nil {
				t.Error(err)
			}
			cancel()
		})
		var began atomic.Int64
		outcomes = append(outcomes, atOnce(ctx, st, func(i int) (*provisioner.Record, trust.Revision) {
			if began.Add(1) == crowd-1 {
				close(ending)
			}
			return record(node(round*crowd+i), fmt.Sprint("a", round, "-", i)), 0
		})...)
		stopping.Wait()
		stop()
	}
	s, _ := start(t, dir)
	written, refused, unknown := s.agree(t, outcomes)
	if refused != 0 {
		t.Errorf("%d written, %d refused, %d unknown: nothing was in the way of any", written, refused, unknown)
	}
}
