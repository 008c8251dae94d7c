package provisioner

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"muster/internal/wire"
)

// entries of one identity, and of a token.
func nodeEntry(id string, kind RevocationKind, serial, key string) *Revocation {
	e := &Revocation{Schema: RevocationSchema, ID: id, Kind: kind, By: "operator", Node: "web1.example.net",
		Certificates: []RevokedCertificate{{Serial: serial, Issuer: "aa"}}}
	if key != "" {
		e.Keys = []string{key}
	}
	return e
}

// lateJournal is one that has entries which the log lacks.
type lateJournal struct {
	Journal
	entries []*Revocation
}

func (j *lateJournal) Entries() ([]*Revocation, error) { return j.entries, nil }
func (j *lateJournal) Append(...*Revocation) error     { return nil }

// TestARetirementThatComesLate starts a provisioner that ended before the store had one,
// which is in its journal: what others have decided since about the name stays.
func TestARetirementThatComesLate(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(e *Revocation, minutes int) *Revocation {
		e.At = noon.Add(time.Duration(minutes) * time.Minute)
		return e
	}
	for name, tt := range map[string]struct {
		log, journal []*Revocation
		owned        int // since when who has the name has it, in minutes; 0 without a record
		revoked      bool
	}{
		"revoked since":                  {[]*Revocation{at(nodeEntry("r", RevokedNode, "1", "k1"), 2)}, []*Revocation{at(nodeEntry("t", RetiredNode, "3", ""), 1)}, 0, true},
		"revoked before":                 {[]*Revocation{at(nodeEntry("r", RevokedNode, "1", "k1"), 1)}, []*Revocation{at(nodeEntry("t", RetiredNode, "3", ""), 2)}, 0, false},
		"nothing there":                  {nil, []*Revocation{at(nodeEntry("r", RevokedNode, "1", "k1"), 1), at(nodeEntry("t", RetiredNode, "3", ""), 2)}, 0, false},
		"known to the log":               {[]*Revocation{at(nodeEntry("t", RetiredNode, "3", ""), 1), at(nodeEntry("r", RevokedNode, "1", "k1"), 2)}, []*Revocation{at(nodeEntry("t", RetiredNode, "3", ""), 1)}, 0, true},
		"given to another machine since": {[]*Revocation{at(nodeEntry("r", RevokedNode, "1", "k1"), 1)}, []*Revocation{at(nodeEntry("t", RetiredNode, "3", ""), 2)}, 3, true},
		"of who has it in that second":   {[]*Revocation{at(nodeEntry("r", RevokedNode, "1", "k1"), 1)}, []*Revocation{at(nodeEntry("t", RetiredNode, "3", ""), 2)}, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &shownLog{entries: tt.log}
			r := newRevocations(log, &lateJournal{entries: tt.journal}, slog.New(slog.DiscardHandler))
			if tt.owned > 0 {
				r.owned = func(context.Context, wire.Identity) (time.Time, error) {
					return noon.Add(time.Duration(tt.owned) * time.Minute), nil
				}
			}
			if err := r.restore(t.Context()); err != nil {
				t.Fatal(err)
			}
			if e := r.Key("k1"); (e != nil) != tt.revoked {
				t.Errorf("the key is revoked by %v, the log has %d entries", e, len(log.entries))
			}
		})
	}
}

// TestWhatTheLogSays goes through sequences of entries, in the store at their
// place or, with place 0, only in this process, and looks at what is in force.
func TestWhatTheLogSays(t *testing.T) {
	t.Parallel()
	const id wire.Identity = "web1.example.net"
	type step struct {
		entry *Revocation
		at    Sequence // 0: pending
	}
	revoke, again := nodeEntry("r", RevokedNode, "1", "k1"), nodeEntry("s", RevokedNode, "2", "k2")
	retire, later := nodeEntry("t", RetiredNode, "3", ""), nodeEntry("u", RevokedNode, "4", "k1")
	tests := map[string]struct {
		steps   []step
		keys    string           // that are revoked, of k1 and k2
		serials string           // likewise of 1 to 4
		out     map[Sequence]int // by what the record has followed, whether an entry keeps the identity out
		through Sequence
		listed  int
	}{
		"nothing":                       {nil, "", "", map[Sequence]int{0: 0}, 0, 0},
		"revoked":                       {[]step{{revoke, 5}}, "k1", "1", map[Sequence]int{0: 1, 4: 1, 5: 0, 6: 0}, 5, 1},
		"revoked here only":             {[]step{{revoke, 0}}, "k1", "1", map[Sequence]int{0: 1, 99: 1}, 0, 0},
		"revoked here, then everywhere": {[]step{{revoke, 0}, {revoke, 5}}, "k1", "1", map[Sequence]int{4: 1, 5: 0}, 5, 1},
		"an entry that is there twice counts first": {[]step{{revoke, 5}, {revoke, 9}}, "k1", "1", map[Sequence]int{5: 0}, 5, 1},
		"revoked twice":                          {[]step{{revoke, 5}, {again, 6}}, "k1k2", "12", map[Sequence]int{5: 1, 6: 0}, 6, 2},
		"retired":                                {[]step{{revoke, 5}, {retire, 6}}, "", "13", map[Sequence]int{0: 0, 5: 0}, 6, 2},
		"retired here only: nothing is free yet": {[]step{{revoke, 5}, {retire, 0}}, "k1", "13", map[Sequence]int{0: 1, 5: 0}, 5, 1},
		"retired, then revoked":                  {[]step{{retire, 5}, {later, 6}}, "k1", "34", map[Sequence]int{0: 1, 5: 1, 6: 0}, 6, 2},
		"revoked here while somebody retires it: the revocation comes after": {
			[]step{{revoke, 5}, {later, 0}, {retire, 6}, {later, 7}}, "k1", "134", map[Sequence]int{6: 1, 7: 0}, 7, 3},
		"and before it has its place": {[]step{{revoke, 5}, {later, 0}, {retire, 6}}, "k1", "134", map[Sequence]int{6: 1, 99: 1}, 6, 2},
		"a retirement leaves others' keys": {
			[]step{{&Revocation{Schema: 1, ID: "o", Kind: RevokedNode, Node: "web2.example.net", Keys: []string{"k1"}}, 4}, {revoke, 5}, {retire, 6}},
			"k1", "13", map[Sequence]int{6: 0}, 6, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRevocations(nil, nil, slog.New(slog.DiscardHandler))
			for _, s := range tt.steps {
				if s.at == 0 {
					r.pend(s.entry)
				} else {
					r.see(placed{s.entry, s.at})
				}
			}
			keys, serials := "", ""
			for _, k := range []string{"k1", "k2"} {
				if r.Key(k) != nil {
					keys += k
				}
			}
			for _, s := range []string{"1", "2", "3", "4"} {
				if r.Serial(s) != nil {
					serials += s
				}
			}
			if keys != tt.keys || serials != tt.serials {
				t.Errorf("revoked are keys %q and certificates %q, want %q and %q", keys, serials, tt.keys, tt.serials)
			}
			for followed, want := range tt.out {
				if by := r.outstanding(id, &Record{RevokedThrough: followed}); (by != nil) != (want == 1) {
					t.Errorf("a record through %d is kept out by %v, want %d", followed, by, want)
				}
			}
			if got := r.standing(id).at; got != tt.through {
				t.Errorf("newest at %d, want %d", got, tt.through)
			}
			if list := r.certificates("aa"); len(list) != tt.listed {
				t.Errorf("%d certificates for the CRL, want %d", len(list), tt.listed)
			}
		})
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	cause := errors.New("no answer")
	var a age
	if err := a.check("x"); !errors.Is(err, ErrRevocationsUnknown) {
		t.Errorf("never looked: %v", err)
	}
	a.looked(time.Now(), cause)
	if err := a.check("x"); !errors.Is(err, ErrRevocationsUnknown) || !errors.Is(err, cause) {
		t.Errorf("looked in vain: %v", err)
	}
	a.looked(time.Now(), nil)
	if err := a.check("x"); err != nil {
		t.Errorf("just looked: %v", err)
	}
	a.looked(time.Now(), cause)
	if err := a.check("x"); err != nil {
		t.Errorf("one look in vain: %v", err)
	}
	// What counts is when the look began that succeeded.
	a.looked(time.Now().Add(-MaxAge-time.Millisecond), nil)
	if err := a.check("x"); !errors.Is(err, ErrRevocationsUnknown) {
		t.Errorf("a look that took too long: %v", err)
	}
}

// shownLog is a log of revocations that shows what was appended, in order.
type shownLog struct{ entries []*Revocation }

func (s *shownLog) NextRevocation(_ context.Context, after Sequence) (*Revocation, Sequence, error) {
	if int(after) >= len(s.entries) {
		return nil, 0, nil
	}
	return s.entries[after], after + 1, nil
}

func (s *shownLog) Revocations(_ context.Context, after Sequence, each func(*Revocation, Sequence) error) error {
	for i, e := range s.entries[after:] {
		if err := each(e, after+Sequence(i)+1); err != nil {
			return err
		}
	}
	return nil
}

func (s *shownLog) AppendRevocation(_ context.Context, e *Revocation) (Sequence, error) {
	s.entries = append(s.entries, e)
	return Sequence(len(s.entries)), nil
}

func (s *shownLog) SupplementRevocation(ctx context.Context, e *Revocation, _ Sequence) (Sequence, error) {
	return s.AppendRevocation(ctx, e)
}

// TestAnEntryThatIsInTheLogTwice is of a log of which a restore has kept a place with the entry
// before: what the entry lacks comes behind both.
func TestAnEntryThatIsInTheLogTwice(t *testing.T) {
	t.Parallel()
	e := &Revocation{Schema: RevocationSchema, ID: "a", Kind: RetiredNode, Node: "web1.example.net", By: "operator"}
	r := newRevocations(&shownLog{entries: []*Revocation{e, e}}, nil, slog.New(slog.DiscardHandler))
	if err := r.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := &Revocation{Node: e.Node, Certificates: []RevokedCertificate{{Serial: "1f"}}}
	if lacks, stands, tail := r.lacks(want, r.standing(e.Node)); !lacks || !stands || tail != 2 {
		t.Errorf("lacks %v, stands %v, tail %d, want 2", lacks, stands, tail)
	}
}

// notedJournal is a journal of revocations alone, each of which it tells of.
type notedJournal struct {
	Journal
	written chan []*Revocation
}

func (j *notedJournal) Append(entries ...*Revocation) error {
	j.written <- entries
	return nil
}

// notedLog is a log that tells of what was appended.
type notedLog struct {
	shownLog
	appended chan *Revocation
}

func (n *notedLog) AppendRevocation(ctx context.Context, e *Revocation) (Sequence, error) {
	at, err := n.shownLog.AppendRevocation(ctx, e)
	n.appended <- e
	return at, err
}

// TestARevocationIsWrittenWhileConnectionsAreDropped revokes where the broker that is told
// to drop connections does not answer: were this the end of the process, the order would not
// be lost. Who ordered it waits for both.
func TestARevocationIsWrittenWhileConnectionsAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, s := &notedJournal{written: make(chan []*Revocation, 1)}, &notedLog{appended: make(chan *Revocation, 1)}
		r := newRevocations(s, j, slog.New(slog.DiscardHandler))
		answers, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- r.add(t.Context(), nodeEntry("r", RevokedNode, "1", "k1"), func() {
				if r.Key("k1") == nil {
					t.Error("connections are dropped before the entry is in force")
				}
				<-answers
			})
		}()
		synctest.Wait() // until nothing moves any more
		if len(j.written) != 1 || len(s.appended) != 1 {
			t.Errorf("while connections are dropped the journal has %d entries and the store %d, want 1 and 1", len(j.written), len(s.appended))
		}
		select {
		case err := <-done:
			t.Errorf("add = %v before the connections were dropped", err)
		default:
		}
		close(answers)
		if err := <-done; err != nil {
			t.Errorf("add = %v", err)
		}
	})
}
