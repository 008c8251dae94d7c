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

var errNoAnswer = errors.New("no answer")

// unanswered is a log of verdicts that does not say what it takes.
type unanswered struct{ ghostAnswers }

func (l *unanswered) PutAnswer(_ context.Context, a *Answer, _ Revision) error {
	l.entries = append(l.entries, a)
	return errNoAnswer
}

// A followedOrder is an order that the store does not answer, in a log that somebody follows.
type followedOrder struct {
	untold *untold
	give   func(tell func()) error
	look   func() error
	lose   func() (come func()) // what was given is not in the log, until come has it there
	broken *error               // what Config.StoreBroken says
}

// keptBack takes all out of a log, and returns what puts it there.
func keptBack[E any](entries *[]E) (come func()) {
	kept := *entries
	*entries = nil
	return func() { *entries = append(*entries, kept...) }
}

// followedOrders returns one for every log.
func followedOrders(t *testing.T) map[string]followedOrder {
	t.Helper()
	ctx, log := t.Context(), slog.New(slog.DiscardHandler)
	broken := new(error)
	isBroken := func() error { return *broken }

	signers := &ghostSigners{shownSigners{broken: errNoAnswer}}
	s, err := NewSigners(SignersConfig{Store: signers, StoreBroken: isBroken})
	if err != nil {
		t.Fatal(err)
	}
	signer := signerEntry(t, "racks")
	signer.By, signer.Why = "anna", "new racks"
	operators := &ghostOperators{broken: errNoAnswer}
	o, err := NewOperators(OperatorsConfig{Store: operators, StoreBroken: isBroken})
	if err != nil {
		t.Fatal(err)
	}
	allowed := &ghostAllowances{broken: errNoAnswer}
	as := newAllowances(allowed, nil, isBroken, log)
	verdicts := &unanswered{}
	an := newAnswers(verdicts, isBroken, log, func(holder) {})
	paused := &ghostPauses{broken: errNoAnswer}
	p := &Provisioner{cfg: Config{Store: pauseStore{ghostPauses: paused}}, pauses: newPauses(paused, isBroken, log)}
	return map[string]followedOrder{
		"a signer": {&s.untold, func(tell func()) error { return s.put(ctx, signer, time.Now(), tell) },
			func() error { return s.look(ctx) }, func() func() { return keptBack(&signers.entries) }, broken},
		"an operator": {&o.untold, func(tell func()) error {
			return o.put(ctx, &OperatorEntry{Schema: OperatorSchema, Name: "eve", By: "anna", Why: "gone", Removed: true}, time.Now(), tell)
		}, func() error { return o.look(ctx) }, func() func() { return keptBack(&operators.entries) }, broken},
		"the allow-list": {&as.untold, func(tell func()) error { return as.put(ctx, &Allowance{Pattern: "web*"}, 0, tell) },
			func() error { return as.look(ctx) }, func() func() { return keptBack(&allowed.entries) }, broken},
		"a verdict": {&an.untold, func(tell func()) error {
			return an.put(ctx, &Answer{KeyHash: "k", Identity: "web1.example.net", Verdict: VerdictReject}, 0, tell)
		}, func() error { return an.look(ctx) }, func() func() { return keptBack(&verdicts.entries) }, broken},
		"a pause": {&p.pauses.untold, func(tell func()) error { return p.putPause(ctx, &Pause{Schema: PauseSchema}, AnyRevision, tell) },
			func() error { return p.pauses.look(ctx) }, func() func() { return keptBack(&paused.entries) }, broken},
	}
}

// TestAnOrderThatNeverComesIsForgotten has the store not answer orders, which those who
// follow its logs do not meet. They are remembered for as long as they may come, or the
// store may hide them, and no longer; and one that comes is told, once.
func TestAnOrderThatNeverComesIsForgotten(t *testing.T) {
	t.Parallel()
	for name, comes := range map[string]time.Duration{"never": 0, "late": untoldFor - time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for log, o := range followedOrders(t) {
					told := 0
					look := func() {
						t.Helper()
						if err := o.look(); err != nil && !errors.Is(err, errNoAnswer) {
							t.Fatalf("%s: %v", log, err)
						}
					}
					is := func(when string, remembered, tellings int) {
						t.Helper()
						if n := len(o.untold.open); n != remembered || told != tellings {
							t.Errorf("%s: %s: %d remembered and told %d times, want %d and %d", log, when, n, told, remembered, tellings)
						}
					}
					look()
					if err := o.give(func() { told++ }); !errors.Is(err, errNoAnswer) {
						t.Fatalf("%s: order = %v, want %v", log, err, errNoAnswer)
					}
					come := o.lose()
					look()
					is("as it is given", 1, 0)
					<-time.After(untoldFor - time.Second)
					if comes > 0 {
						come()
						look()
						is("as it is there", 0, 1)
						continue
					}
					look()
					is("as it may be there yet", 1, 0)
					<-time.After(2 * time.Second)
					*o.broken = errors.New("sync: input/output error")
					look()
					is("as the store may come back with it", 1, 0)
					*o.broken = nil
					look()
					is("as it will not come any more", 0, 0)
				}
			})
		})
	}
}

// TestAnOrderThatTakesLongIsTold has a store that takes longer for an order than those are
// remembered that will not come, and a look that goes through in between.
func TestAnOrderThatTakesLongIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, written := range map[string]func(context.Context) (bool, error){
			"followed": nil,
			"asked":    func(context.Context) (bool, error) { return false, nil },
		} {
			u, told := &untold{}, 0
			err := u.write("an order", func() { told++ }, written, func() error {
				<-time.After(2 * untoldFor)
				u.read(time.Now())
				u.ask(t.Context())
				return nil
			})
			if err != nil || told != 1 || len(u.open) != 0 {
				t.Errorf("%s: %v, told %d times, %d remembered, want it told once", name, err, told, len(u.open))
			}
		}
	})
}

// TestAnOrderWithoutRoomIsForgotten has a full store, which has made no write.
func TestAnOrderWithoutRoomIsForgotten(t *testing.T) {
	t.Parallel()
	u := &untold{}
	err := u.writeEntry("an order", func() { t.Error("told") }, func() error { return ErrStoreFull })
	if !errors.Is(err, ErrStoreFull) || len(u.open) != 0 {
		t.Errorf("%v, %d remembered, want none", err, len(u.open))
	}
}

// TestARetirementThatIsLeftOutIsForgotten has a retirement wait for the store for hours, and then
// be left out since others have decided about the name.
func TestARetirementThatIsLeftOutIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		r := newRevocations(nil, nil, func() error { return nil }, log)
		p := &Provisioner{revocations: r}
		e := &Revocation{ID: wire.NewID(), Kind: RetiredNode, Node: "web1.example.net"}
		r.pend(e)
		p.rememberRevocation(e, func() { t.Error("told") })
		asked := func(when string, remembered int) {
			t.Helper()
			p.untold.ask(t.Context())
			if n := len(p.untold.open); n != remembered {
				t.Errorf("%s: %d remembered, want %d", when, n, remembered)
			}
		}
		<-time.After(3 * time.Hour)
		asked("as it waits", 1)
		r.drop(e)
		asked("as it is left out", 0)
	})
}

// TestAttemptsAtARecordAreForgotten tries again and again to keep a node out at a store that
// does not answer its record's writes: those that may be made are remembered, and what is
// made is told once.
func TestAttemptsAtARecordAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const id, every = "web1.example.net", 5 * time.Second
		u, attempts := &untoldRecords{}, []string(nil)
		before := &Record{Identity: id, Attempt: "of somebody else"}
		for range 1000 {
			if u.wrote(before, time.Now()) {
				t.Fatal("somebody else's is told")
			}
			attempt := wire.NewID()
			u.add(id, attempt)
			attempts = append(attempts, attempt)
			<-time.After(every)
		}
		if n, most := len(u.open[id]), int(untoldFor/every)+1; n > most {
			t.Errorf("%d attempts are remembered, want %d at most", n, most)
		}
		ours := &Record{Identity: id, Attempt: attempts[len(attempts)-int(untoldFor/every)+1]}
		if !u.wrote(ours, time.Now()) || u.wrote(ours, time.Now()) || len(u.open) != 0 {
			t.Errorf("not told once, %d are remembered", len(u.open))
		}
	})
}
