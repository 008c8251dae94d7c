package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/store"
)

// TestReopen says which losses of a disk a store mends, and which are for people.
func TestReopen(t *testing.T) {
	t.Parallel()
	lose := func(stream string) func(*testing.T, *site) {
		return func(t *testing.T, s *site) {
			if err := s.js.DeleteStream(s.ctx, stream); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := map[string]struct {
		lost func(*testing.T, *site)
		want error
	}{
		"nothing":   {func(*testing.T, *site) {}, nil},
		"events":    {lose("MUSTER_EVENTS"), nil},
		"attempts":  {lose("MUSTER_ATTEMPTS"), nil},
		"lifecycle": {lose("MUSTER_LIFECYCLE"), nil},
		"alive":     {lose("MUSTER_ALIVE"), nil},
		"records":   {lose("MUSTER_NODES"), store.ErrLost},
		"entries":   {lose("MUSTER_ENTRIES"), store.ErrLost},
		"the end of a log": {func(t *testing.T, s *site) {
			stream, err := s.js.Stream(s.ctx, "MUSTER_REVOCATIONS")
			if err != nil {
				t.Fatal(err)
			}
			config := stream.CachedInfo().Config
			lose(config.Name)(t, s)
			if _, err := s.js.CreateStream(s.ctx, config); err != nil {
				t.Fatal(err)
			}
		}, store.ErrShorter},
		"another store": {func(t *testing.T, s *site) {
			if _, err := s.js.Publish(s.ctx, "muster.entry.installation", []byte(`{"id":"another","ca":"`+ours+`"}`)); err != nil {
				t.Fatal(err)
			}
		}, store.ErrInstallation},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, s := newStore(t)
			revision := put(t, s, st, record(web1, "a"), 0)
			at, err := st.AppendRevocation(s.ctx, &provisioner.Revocation{Schema: provisioner.RevocationSchema, ID: "r1", Kind: provisioner.RevokedNode, By: "x", Node: web1})
			if err == nil {
				_, _, err = st.NextRevocation(s.ctx, at) // whoever has read it asks for what comes after
			}
			if err != nil {
				t.Fatal(err)
			}
			tt.lost(t, s)
			for range 2 { // looking again is harmless
				if err := st.Reopen(s.ctx); !errors.Is(err, tt.want) {
					t.Fatalf("Reopen = %v, want %v", err, tt.want)
				}
			}
			if tt.want != nil {
				return
			}
			if r, got, err := st.Record(s.ctx, web1); err != nil || r == nil || got != revision {
				t.Errorf("record = %v at %d, %v, want it at %d", r, got, err, revision)
			}
			if err := st.Report(s.ctx, provisioner.Event{Type: provisioner.EventAlarmRaised}); err != nil {
				t.Errorf("Report = %v", err)
			}
			if err := st.Report(s.ctx, provisioner.Event{Type: provisioner.EventAttempt}); err != nil {
				t.Errorf("Report = %v", err)
			}
		})
	}
}

// TestReportsAreKeptOnce repeats a report whose acknowledgement was lost.
func TestReportsAreKeptOnce(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	e := provisioner.Event{Type: provisioner.EventAlarmRaised, Time: time.Now(), Code: wire.CodeStorageLow, Attempt: wire.NewID()}
	for range 3 {
		if err := st.Report(s.ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	other := e
	other.Attempt = wire.NewID()
	if err := st.Report(s.ctx, other); err != nil {
		t.Fatal(err)
	}
	stream, err := s.js.Stream(s.ctx, "MUSTER_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("%d events, want 2", n)
	}
}

func TestTheClockMarkIsComparedAndSet(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	if m, after, err := st.ClockMark(s.ctx); m != nil || after != 0 || err != nil {
		t.Fatalf("ClockMark of a new store = %v at %d, %v", m, after, err)
	}
	first := &provisioner.ClockMark{Time: time.Unix(1000, 0).UTC()}
	revision, err := st.PutClockMark(s.ctx, first, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.PutClockMark(s.ctx, first, 0); !errors.Is(err, provisioner.ErrConflict) {
		t.Errorf("a second first mark = %v, want %v", err, provisioner.ErrConflict)
	}
	if m, after, err := st.ClockMark(s.ctx); err != nil || !m.Time.Equal(first.Time) || after != revision {
		t.Errorf("ClockMark = %v at %d, %v, want %v at %d", m, after, err, first, revision)
	}
}

// TestAProbeIsAWrite: a store whose connection is gone, or whose stream is, has
// none.
func TestAProbeIsAWrite(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	for range 100 { // more than the entry's history
		if err := st.Probe(s.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.js.DeleteStream(s.ctx, "MUSTER_ENTRIES"); err != nil {
		t.Fatal(err)
	}
	if err := st.Probe(s.ctx); err == nil || !strings.Contains(err.Error(), "probe store") {
		t.Errorf("Probe without a stream = %v, want an error", err)
	}
}

// TestFewerNamesThanBefore has records go from under an open store, which is a loss, and then a
// broker come back, whose disk may have lost them: that heals by itself.
func TestFewerNamesThanBefore(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	for _, id := range []wire.Identity{"web1.example.net", "web2.example.net"} {
		put(t, s, st, record(id, "a"), 0)
	}
	if err := st.Whole(s.ctx); err != nil {
		t.Fatal(err)
	}
	stream, err := s.js.Stream(s.ctx, "MUSTER_NODES")
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.MaxMsgs = 1
	if _, err := s.js.UpdateStream(s.ctx, config); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := st.Whole(s.ctx); !errors.Is(err, store.ErrLost) {
			t.Errorf("Whole = %v, want %v", err, store.ErrLost)
		}
	}
	if err := st.Reopen(s.ctx); err != nil {
		t.Fatal(err)
	}
	if err := st.Whole(s.ctx); err != nil {
		t.Errorf("after the broker came back: %v", err)
	}
}

// TestAStreamThatIsPutBack has streams of records deleted and made anew with what they had a while ago, as who restores
// one by the means of its server does: what was on as many subjects is not what it was.
func TestAStreamThatIsPutBack(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"MUSTER_NODES", "MUSTER_CLAIMS"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, s := newStore(t)
			const token = "00112233445566778899aabbccddeeff"
			revision := put(t, s, st, record(web1, "a"), 0)
			at, err := st.AppendClaims(s.ctx, token, claims("a1"), 0)
			if err != nil {
				t.Fatal(err)
			}
			stream, err := s.js.Stream(s.ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			before, err := stream.GetMsg(s.ctx, 1)
			if err != nil {
				t.Fatal(err)
			}
			put(t, s, st, record(web1, "b"), revision)
			if _, err := st.AppendClaims(s.ctx, token, claims("a2"), at); err != nil {
				t.Fatal(err)
			}
			if err := st.Whole(s.ctx); err != nil {
				t.Fatal(err)
			}
			if err := s.js.DeleteStream(s.ctx, name); err != nil {
				t.Fatal(err)
			}
			if _, err := s.js.CreateStream(s.ctx, stream.CachedInfo().Config); err != nil {
				t.Fatal(err)
			}
			if _, err := s.js.Publish(s.ctx, before.Subject, before.Data); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := st.Whole(s.ctx); !errors.Is(err, store.ErrLost) {
					t.Errorf("Whole = %v, want %v", err, store.ErrLost)
				}
			}
		})
	}
}
