package provisioner

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// ghostSigners is a log whose writes fail while it is broken, and show all the same, as
// those of a disk that fails do until the broker is started again.
type ghostSigners struct{ shownSigners }

func (l *ghostSigners) PutSigner(_ context.Context, e *SignerEntry, _ Revision) (Revision, error) {
	l.entries = append(l.entries, e)
	return Revision(len(l.entries)), l.broken
}

// TestARemovalThatWasLostIsWrittenAgain removes a signer while the disk fails, and
// again when the store is back without it.
func TestARemovalThatWasLostIsWrittenAgain(t *testing.T) {
	t.Parallel()
	stolen, other := signerEntry(t, "stolen"), signerEntry(t, "other")
	log := &ghostSigners{shownSigners{entries: []*SignerEntry{stolen, other}}}
	s, err := NewSigners(SignersConfig{Store: log, StoreBroken: func() error { return log.broken }})
	if err != nil {
		t.Fatal(err)
	}
	p := &Provisioner{cfg: Config{Signers: s, Now: time.Now, Emit: func(Event) {}, Log: slog.New(slog.DiscardHandler)}}
	if err := s.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	log.broken = errors.New("sync: input/output error")
	if _, err := p.RemoveSigner(t.Context(), stolen.ID, Cause{By: "anna"}); !errors.Is(err, log.broken) {
		t.Fatalf("a removal that is not on disk: %v, want %v", err, log.broken)
	}
	if err := s.look(t.Context()); err != nil { // Run does, five times a second
		t.Fatal(err)
	}
	log.entries, log.broken = log.entries[:2:2], nil // restarted without it
	if err := s.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.RemoveSigner(t.Context(), stolen.ID, Cause{By: "anna"}); err != nil {
		t.Fatal(err)
	}
	if len(log.entries) != 3 {
		t.Error("the removal was acknowledged and is not in the store: the next start trusts the signer again")
	}
}

// ghostOperators is a log that shows what is written to it while that fails.
type ghostOperators struct {
	entries []*OperatorEntry
	broken  error
}

func (l *ghostOperators) NextOperator(_ context.Context, after Sequence) (*OperatorEntry, Sequence, error) {
	if int(after) >= len(l.entries) {
		return nil, 0, nil
	}
	return l.entries[after], after + 1, nil
}

func (l *ghostOperators) PutOperator(_ context.Context, e *OperatorEntry, _ Revision) (Revision, error) {
	l.entries = append(l.entries, e)
	return Revision(len(l.entries)), l.broken
}

// TestAnOperatorsRemovalThatWasLostIsWrittenAgain is the same of an operator.
func TestAnOperatorsRemovalThatWasLostIsWrittenAgain(t *testing.T) {
	t.Parallel()
	log := &ghostOperators{entries: []*OperatorEntry{{Schema: OperatorSchema, Name: "eve", By: "anna", At: time.Now()}}}
	o, err := NewOperators(OperatorsConfig{Store: log, StoreBroken: func() error { return log.broken }})
	if err != nil {
		t.Fatal(err)
	}
	p := &Provisioner{cfg: Config{Operators: o, Now: time.Now, Emit: func(Event) {}, Log: slog.New(slog.DiscardHandler)}}
	if err := o.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	log.broken = errors.New("sync: input/output error")
	if err := p.RemoveOperator(t.Context(), "eve", Cause{By: "anna"}); !errors.Is(err, log.broken) {
		t.Fatalf("a removal that is not on disk: %v, want %v", err, log.broken)
	}
	if err := o.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	log.entries, log.broken = log.entries[:1:1], nil // restarted without it
	for range 2 {
		if err := p.RemoveOperator(t.Context(), "eve", Cause{By: "anna"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(log.entries) != 2 {
		t.Errorf("%d entries, want the removal once: the next start lets them in again", len(log.entries)-1)
	}
}

// ghostAllowances is an allow-list whose writes fail while it is broken, and show all the same.
type ghostAllowances struct {
	entries []*Allowance
	broken  error
}

func (l *ghostAllowances) Allowance(_ context.Context, p wire.Pattern) (a *Allowance, at Revision, err error) {
	for i, e := range l.entries {
		if e.Pattern == p {
			a, at = e, Revision(i+1)
		}
	}
	return a, at, nil
}

func (l *ghostAllowances) PutAllowance(_ context.Context, a *Allowance, after Revision) error {
	if _, at, _ := l.Allowance(context.Background(), a.Pattern); at != after {
		return ErrConflict
	}
	l.entries = append(l.entries, a)
	return l.broken
}

func (l *ghostAllowances) NextAllowance(_ context.Context, after Sequence) (*Allowance, Sequence, error) {
	if int(after) >= len(l.entries) {
		return nil, 0, nil
	}
	return l.entries[after], after + 1, nil
}

func (l *ghostAllowances) Allowances(_ context.Context, after Sequence, each func(*Allowance, Sequence, error) error) error {
	return scanned(l.entries, after, each)
}

// scanned calls each for the entries after a place, as a store does.
func scanned[E any](entries []E, after Sequence, each func(E, Sequence, error) error) error {
	for int(after) < len(entries) {
		after++
		if err := each(entries[after-1], after, nil); err != nil {
			return err
		}
	}
	return nil
}

// allowStore is a store of nothing else.
type allowStore struct {
	Store
	*ghostAllowances
}

func (s allowStore) Allowance(ctx context.Context, p wire.Pattern) (*Allowance, Revision, error) {
	return s.ghostAllowances.Allowance(ctx, p)
}

func (s allowStore) PutAllowance(ctx context.Context, a *Allowance, after Revision) error {
	return s.ghostAllowances.PutAllowance(ctx, a, after)
}

func (s allowStore) NextAllowance(ctx context.Context, after Sequence) (*Allowance, Sequence, error) {
	return s.ghostAllowances.NextAllowance(ctx, after)
}

func (s allowStore) Allowances(ctx context.Context, after Sequence, each func(*Allowance, Sequence, error) error) error {
	return s.ghostAllowances.Allowances(ctx, after, each)
}

// TestNamesThatWereNotAllowedGetNobodyIn allows names while the disk fails, which is
// an error; then the store is back without the entry.
func TestNamesThatWereNotAllowedGetNobodyIn(t *testing.T) {
	t.Parallel()
	l := &ghostAllowances{}
	log := slog.New(slog.DiscardHandler)
	p := &Provisioner{cfg: Config{Store: allowStore{ghostAllowances: l}, Now: time.Now, Emit: func(Event) {}, Log: log, AllowsAll: func() bool { return false },
		Alarms: NewAlarms(AlarmConfig{})}, allowances: newAllowances(l, nil, func() error { return l.broken }, log)}
	l.broken = errors.New("sync: input/output error")
	if _, err := p.AllowNames(t.Context(), "web*.example.net", 0, 0, false, Cause{By: "anna"}); !errors.Is(err, l.broken) {
		t.Fatalf("an entry that is not on disk: %v, want %v", err, l.broken)
	}
	if err := p.allowances.look(t.Context()); err != nil { // Run does, every second
		t.Fatal(err)
	}
	l.entries, l.broken = nil, nil // restarted without it
	if err := p.allowances.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := p.DisallowNames(t.Context(), "web*.example.net", Cause{By: "anna"})
	if e := p.allowances.match(holder{"k", "web1.example.net"}, time.Now()); e != nil {
		t.Errorf("remove says %v, and the entry goes on letting names in", err)
	}
}

// ghostPauses is a log of pauses.
type ghostPauses struct {
	entries []*Pause
	broken  error
}

func (l *ghostPauses) NextPause(_ context.Context, after Sequence) (*Pause, Sequence, error) {
	if int(after) >= len(l.entries) {
		return nil, 0, nil
	}
	return l.entries[after], after + 1, nil
}

func (l *ghostPauses) PutPause(_ context.Context, s *Pause, _ Revision) error {
	l.entries = append(l.entries, s)
	return l.broken
}

func (l *ghostPauses) Pauses(_ context.Context, after Sequence, each func(*Pause, Sequence, error) error) error {
	return scanned(l.entries, after, each)
}

// pauseStore is a store of nothing else.
type pauseStore struct {
	Store
	*ghostPauses
}

func (s pauseStore) PutPause(ctx context.Context, e *Pause, after Revision) error {
	return s.ghostPauses.PutPause(ctx, e, after)
}
func (s pauseStore) NextPause(ctx context.Context, after Sequence) (*Pause, Sequence, error) {
	return s.ghostPauses.NextPause(ctx, after)
}

func (s pauseStore) Pauses(ctx context.Context, after Sequence, each func(*Pause, Sequence, error) error) error {
	return s.ghostPauses.Pauses(ctx, after, each)
}

// TestAPauseAfterAFailedDisk resumes while the disk fails, which is an error; the
// store comes back paused, and whoever pauses then has it in force.
func TestAPauseAfterAFailedDisk(t *testing.T) {
	t.Parallel()
	l := &ghostPauses{}
	log := slog.New(slog.DiscardHandler)
	p := &Provisioner{cfg: Config{Store: pauseStore{ghostPauses: l}, Now: time.Now, Emit: func(Event) {}, Log: log, Alarms: NewAlarms(AlarmConfig{})}, pauses: newPauses(l, func() error { return l.broken }, log)}
	if _, err := p.Pause(t.Context(), "", false, Cause{By: "anna"}); err != nil {
		t.Fatal(err)
	}
	l.broken = errors.New("sync: input/output error")
	if err := p.Resume(t.Context(), "", Cause{By: "anna"}); !errors.Is(err, l.broken) {
		t.Fatalf("a resumption that is not on disk: %v, want %v", err, l.broken)
	}
	p.followPauses(t.Context()) // Run does, five times a second
	l.entries, l.broken = l.entries[:1:1], nil
	p.followPauses(t.Context())
	if p.Paused() == nil {
		t.Error("the store says that enrollment is paused, and nodes are let in")
	}
	if _, err := p.Pause(t.Context(), "", false, Cause{By: "anna"}); err != nil {
		t.Fatal(err)
	}
	if p.Paused() == nil {
		t.Error("paused again, and nodes are let in")
	}
}

// ghostAnswers is a log of verdicts that shows what is not on its disk.
type ghostAnswers struct {
	AnswerStore
	entries []*Answer
}

func (l *ghostAnswers) NextAnswer(_ context.Context, after Sequence) (*Answer, Sequence, error) {
	if int(after) >= len(l.entries) {
		return nil, 0, nil
	}
	return l.entries[after], after + 1, nil
}

func (l *ghostAnswers) Answers(_ context.Context, after Sequence, each func(*Answer, Sequence, error) error) error {
	return scanned(l.entries, after, each)
}

// TestARejectionOutlivesAFailedDisk has a store show that a rejected key is forgotten,
// and come back without that.
func TestARejectionOutlivesAFailedDisk(t *testing.T) {
	t.Parallel()
	h := holder{"k", "web1.example.net"}
	l := &ghostAnswers{entries: []*Answer{{KeyHash: h.key, Identity: h.identity, Verdict: VerdictReject}}}
	var broken error
	as := newAnswers(l, func() error { return broken }, slog.New(slog.DiscardHandler), func(holder) {})
	look := func() {
		t.Helper()
		if err := as.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	look()
	broken = errors.New("sync: input/output error")
	l.entries = append(l.entries, &Answer{KeyHash: h.key, Identity: h.identity, Verdict: VerdictNone})
	look()
	broken, l.entries = nil, l.entries[:1:1] // restarted without it
	look()
	if as.rejected(h) == nil {
		t.Error("the store says that the key is rejected, and it is not")
	}
}

// ghostRevocations is a log of revocations of a provisioner that looks at it, and at which
// others append. While it is deaf it takes nothing.
type ghostRevocations struct {
	shownLog
	broken, deaf error
}

func (l *ghostRevocations) AppendRevocation(ctx context.Context, e *Revocation) (Sequence, error) {
	if l.deaf != nil {
		return 0, l.deaf
	}
	return l.shownLog.AppendRevocation(ctx, e)
}

// ids are those of the entries, in order.
func (l *ghostRevocations) ids() string {
	var ids []string
	for _, e := range l.entries {
		ids = append(ids, e.ID)
	}
	return strings.Join(ids, " ")
}

// revocationsOf returns what follows the log, and a function that does it once.
func revocationsOf(t *testing.T, l *ghostRevocations, j Journal) (r *Revocations, look func()) {
	t.Helper()
	r = newRevocations(l, j, func() error { return l.broken }, slog.New(slog.DiscardHandler))
	return r, func() { // Run does, five times a second
		t.Helper()
		if err := r.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = r.repeat(t.Context(), 0) // of a deaf log it says so
		r.write(t.Context())
	}
}

// idJournal is a journal of revocations that leaves out what it has.
type idJournal struct {
	Journal
	ids []string
}

func (j *idJournal) Append(entries ...*Revocation) error {
	for _, e := range entries {
		if !slices.Contains(j.ids, e.ID) {
			j.ids = append(j.ids, e.ID)
		}
	}
	return nil
}

// TestARevocationThatABrokenStoreShows reads what another provisioner has revoked while some
// stream is broken, and has the broker restarted, with the entry or without it.
func TestARevocationThatABrokenStoreShows(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]int{"is kept": 2, "is lost": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, j := &ghostRevocations{}, &idJournal{}
			r, look := revocationsOf(t, l, j)
			l.entries = append(l.entries, nodeEntry("before", RevokedNode, "1", "k1"))
			look()
			l.broken = errors.New("sync: input/output error")
			l.entries = append(l.entries, nodeEntry("meanwhile", RevokedNode, "2", "k2"))
			for range 3 {
				look()
			}
			if r.Key("k2") == nil || l.ids() != "before meanwhile" {
				t.Errorf("in force by %v, the log has %q, want nothing appended that it shows", r.Key("k2"), l.ids())
			}
			l.entries, l.broken = l.entries[:kept:kept], nil // restarted
			for range 3 {
				look()
			}
			if !r.stored("meanwhile") || l.ids() != "before meanwhile" {
				t.Errorf("has its place %v, the log has %q, want it there once", r.stored("meanwhile"), l.ids())
			}
			if !slices.Equal(j.ids, []string{"before", "meanwhile"}) {
				t.Errorf("the journal has %q: a restored store would forget the other", j.ids)
			}
		})
	}
}

// TestOneThatABrokenStoreShowsIsMadeOnce revokes here while another stream is broken: the
// entry is in the log, and gets its place after the restart.
func TestOneThatABrokenStoreShowsIsMadeOnce(t *testing.T) {
	t.Parallel()
	l := &ghostRevocations{broken: errors.New("sync: input/output error")}
	r, look := revocationsOf(t, l, nil)
	if err := r.add(t.Context(), nodeEntry("r", RevokedNode, "1", "k1"), nil); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		look()
	}
	l.broken = nil
	look()
	if !r.stored("r") || l.ids() != "r" {
		t.Errorf("has its place %v, the log has %q, want it there once", r.stored("r"), l.ids())
	}
}

// TestWhatABrokenStoreShowsIsNotAcknowledged asks again for a revocation that the log shows
// and has not on its disk.
func TestWhatABrokenStoreShowsIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	l := &ghostRevocations{broken: errors.New("sync: input/output error"), deaf: context.DeadlineExceeded}
	r, look := revocationsOf(t, l, nil)
	id := jwt.TokenID(strings.Repeat("0", 32))
	l.entries = append(l.entries, &Revocation{Schema: RevocationSchema, ID: "r", Kind: RevokedToken, Token: id, By: "ben"})
	look()
	p := &Provisioner{revocations: r}
	if err := p.RevokeToken(t.Context(), id, Cause{By: "anna"}); !errors.Is(err, ErrPending) {
		t.Errorf("revoke token = %v, want %v", err, ErrPending)
	}
	l.broken, l.deaf, l.entries = nil, nil, nil // restarted without it
	if err := p.RevokeToken(t.Context(), id, Cause{By: "anna"}); err != nil || l.ids() != "r" {
		t.Errorf("revoke token = %v, the log has %q, want it appended", err, l.ids())
	}
}

// TestARetirementAroundWhatABrokenStoreShows retires a name here, which the store does not
// take, before or after it shows that another provisioner has revoked it.
func TestARetirementAroundWhatABrokenStoreShows(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before     bool // the retirement
		kept       int  // entries, over the restart
		open, want string
	}{
		"before, is kept": {true, 1, "r", "r"}, // what others have decided since stays
		"before, is lost": {true, 0, "r", "r"},
		"after, is kept":  {false, 1, "r", "r t"}, // the revocation does not come behind it
		"after, is lost":  {false, 0, "r", "r t"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &ghostRevocations{broken: errors.New("sync: input/output error")}
			r, look := revocationsOf(t, l, nil)
			retire := func() {
				l.deaf = context.DeadlineExceeded
				if err := r.add(t.Context(), nodeEntry("t", RetiredNode, "1", ""), nil); !errors.Is(err, ErrPending) {
					t.Fatalf("retire = %v, want %v", err, ErrPending)
				}
				l.deaf = nil
			}
			if tt.before {
				retire()
			}
			l.entries = append(l.entries, nodeEntry("r", RevokedNode, "1", "k1"))
			look()
			if !tt.before {
				retire()
			}
			look()
			if l.ids() != tt.open {
				t.Errorf("the log has %q while it is broken, want %q", l.ids(), tt.open)
			}
			l.entries, l.broken = l.entries[:tt.kept:tt.kept], nil // restarted
			for range 3 {
				look()
			}
			if l.ids() != tt.want || (r.Key("k1") == nil) != (tt.want == "r t") {
				t.Errorf("the log has %q, the key is revoked by %v, want %q", l.ids(), r.Key("k1"), tt.want)
			}
		})
	}
}
