package provisioner

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"muster/internal/wire"
)

// TestWhatWasReadBeforeItWasRemoved has a request take in who has used an entry of the
// allow-list that was read before it was removed, or replaced: it stays so.
func TestWhatWasReadBeforeItWasRemoved(t *testing.T) {
	t.Parallel()
	as := newAllowances(nil, nil, slog.New(slog.DiscardHandler))
	first := &Allowance{ID: "1", Pattern: "web*", Uses: 3, At: time.Unix(1, 0)}
	used := *first
	used.UsedBy = []AllowanceUse{{Identity: "web1", KeyHash: "k"}}
	as.apply(first)
	as.used(&used)
	if kept := as.kept["web*"]; kept != &used {
		t.Errorf("kept %+v, want its use", kept)
	}
	as.used(first)
	if kept := as.kept["web*"]; kept != &used {
		t.Errorf("kept %+v, want no use forgotten", kept)
	}
	second := &Allowance{ID: "2", Pattern: "web*", At: time.Unix(2, 0)}
	as.apply(second)
	as.used(&used)
	if kept := as.kept["web*"]; kept != second {
		t.Errorf("kept %+v, want the one that has replaced it", kept)
	}
	as.apply(&Allowance{ID: "2", Pattern: "web*", At: time.Unix(3, 0), Removed: true})
	as.used(second)
	if kept := as.kept["web*"]; kept != nil {
		t.Errorf("kept %+v after it was removed", kept)
	}
}

// watchedAllowances is an allow-list that calls step between any two steps of a look.
type watchedAllowances struct {
	allowanceLog
	step   func()
	silent error // what a look meets, if it is not nil
}

func (l *watchedAllowances) NextAllowance(ctx context.Context, after Sequence) (*Allowance, Sequence, error) {
	if l.silent != nil {
		return nil, 0, l.silent
	}
	if l.step != nil {
		l.step()
	}
	return l.allowanceLog.NextAllowance(ctx, after)
}

// TestALookShowsNothingThatIsOver has names allowed and not allowed any more, and an entry
// used up, between two looks: the next one comes to what is over before it comes to what
// ended it, and nobody gets in meanwhile.
func TestALookShowsNothingThatIsOver(t *testing.T) {
	t.Parallel()
	l := &watchedAllowances{}
	as := newAllowances(l, nil, slog.New(slog.DiscardHandler))
	put := func(a *Allowance) {
		t.Helper()
		_, after, err := l.Allowance(t.Context(), a.Pattern)
		if err == nil {
			err = as.put(t.Context(), a, after)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(&Allowance{ID: "1", Pattern: "gone", At: time.Unix(1, 0)})
	put(&Allowance{ID: "1", Pattern: "gone", At: time.Unix(2, 0), Removed: true})
	put(&Allowance{ID: "2", Pattern: "once*", Uses: 1, At: time.Unix(1, 0)})
	used := &Allowance{ID: "2", Pattern: "once*", Uses: 1, At: time.Unix(1, 0), UsedBy: []AllowanceUse{{Identity: "once1", KeyHash: "k"}}}
	l.entries = append(l.entries, used) // as an attempt does that has just got in
	as.used(used)
	looked := false
	l.step = func() {
		looked = true
		for _, name := range []wire.Identity{"gone", "once2"} {
			if a := as.match(holder{"other", name}, time.Unix(3, 0)); a != nil {
				t.Errorf("a look lets %s in by %+v", name, a)
			}
		}
	}
	if err := as.look(t.Context()); err != nil || !looked {
		t.Fatalf("look = %v, in steps %v", err, looked)
	}
	l.step()
}

// TestWhatIsRemovedUnreadStaysRemoved has another provisioner allow names, and they are
// removed here before that is read, while nothing can be: the next look comes to the entry
// first. What is added after the removal counts.
func TestWhatIsRemovedUnreadStaysRemoved(t *testing.T) {
	t.Parallel()
	l := &watchedAllowances{}
	as := newAllowances(l, nil, slog.New(slog.DiscardHandler))
	l.entries = append(l.entries, &Allowance{ID: "1", Pattern: "web*", At: time.Unix(1, 0)})
	l.silent = context.DeadlineExceeded
	if err := as.put(t.Context(), &Allowance{ID: "2", Pattern: "web*", At: time.Unix(2, 0), Removed: true}, 1); err != nil {
		t.Fatal(err)
	}
	l.silent = nil
	match := func() *Allowance { return as.match(holder{"k", "web1"}, time.Unix(9, 0)) }
	l.step = func() {
		if a := match(); a != nil {
			t.Errorf("a look lets a name in by %+v, which was removed", a)
		}
	}
	if err := as.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.step()
	l.step = nil
	l.entries = append(l.entries, &Allowance{ID: "3", Pattern: "web*", At: time.Unix(2, 1)})
	if err := as.look(t.Context()); err != nil || match() == nil {
		t.Errorf("look = %v, and what was added since lets nobody in", err)
	}
}

// watchedAnswers is a log of verdicts that calls step between any two steps of a look.
type watchedAnswers struct {
	answerLog
	step func()
}

func (l *watchedAnswers) NextAnswer(ctx context.Context, after Sequence) (*Answer, Sequence, error) {
	if l.step != nil {
		l.step()
	}
	return l.answerLog.NextAnswer(ctx, after)
}

func (l *watchedAnswers) PutAnswer(_ context.Context, a *Answer, _ Revision) error {
	l.entries = append(l.entries, a)
	return nil
}

// TestALookLiftsNoRejection has a rejected key forgotten and rejected again between two
// looks: it is rejected all the time that the next one takes.
func TestALookLiftsNoRejection(t *testing.T) {
	t.Parallel()
	h := holder{"k", "web1.example.net"}
	l := &watchedAnswers{}
	as := newAnswers(l, slog.New(slog.DiscardHandler), func(holder) {})
	for _, v := range []Verdict{VerdictReject, VerdictNone, VerdictReject} {
		if err := as.put(t.Context(), &Answer{KeyHash: h.key, Identity: h.identity, Verdict: v}, 0); err != nil {
			t.Fatal(err)
		}
	}
	looked := false
	l.step = func() {
		looked = true
		if as.rejected(h) == nil {
			t.Error("a look lets a rejected key in")
		}
	}
	if err := as.look(t.Context()); err != nil || !looked {
		t.Fatalf("look = %v, in steps %v", err, looked)
	}
	l.step()
}
