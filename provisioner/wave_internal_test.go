package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// orderLogs is a store of what operators have said, which counts how it is asked.
type orderLogs struct {
	Store
	pauses     pauseLog
	answers    answerLog
	allowances allowanceLog

	asked, scanned int
	held           string        // what it does not answer about, whatever the context says
	hold           chan struct{} // until this is closed
}

func (l *orderLogs) ask(what string) {
	l.asked++
	if what == l.held {
		<-l.hold
	}
}

func (l *orderLogs) NextPause(ctx context.Context, after Sequence) (*Pause, Sequence, error) {
	l.ask("pauses")
	return l.pauses.NextPause(ctx, after)
}

func (l *orderLogs) Pauses(ctx context.Context, after Sequence, each func(*Pause, Sequence, error) error) error {
	l.scanned++
	return l.pauses.Pauses(ctx, after, each)
}

func (l *orderLogs) NextAnswer(ctx context.Context, after Sequence) (*Answer, Sequence, error) {
	l.ask("verdicts")
	return l.answers.NextAnswer(ctx, after)
}

func (l *orderLogs) Answers(ctx context.Context, after Sequence, each func(*Answer, Sequence, error) error) error {
	l.scanned++
	return l.answers.Answers(ctx, after, each)
}

func (l *orderLogs) NextAllowance(ctx context.Context, after Sequence) (*Allowance, Sequence, error) {
	l.ask("allow-list")
	return l.allowances.NextAllowance(ctx, after)
}

func (l *orderLogs) Allowances(ctx context.Context, after Sequence, each func(*Allowance, Sequence, error) error) error {
	l.scanned++
	return l.allowances.Allowances(ctx, after, each)
}

// follower returns a provisioner that follows the logs, and a look at each of them.
func (l *orderLogs) follower() (p *Provisioner, looks map[string]func(context.Context) error) {
	log := slog.New(slog.DiscardHandler)
	p = &Provisioner{pauses: newPauses(l, log), answers: newAnswers(l, log, func(holder) {}), allowances: newAllowances(l, nil, log)}
	return p, map[string]func(context.Context) error{"pauses": p.pauses.look, "verdicts": p.answers.look, "allow-list": p.allowances.look}
}

// say adds an entry of each kind about one site, key and name.
func (l *orderLogs) say(i int) {
	name := wire.Identity(fmt.Sprintf("web%d.example.net", i))
	l.pauses.entries = append(l.pauses.entries, &Pause{Site: jwt.Site(fmt.Sprint("site", i))})
	l.answers.entries = append(l.answers.entries, &Answer{Identity: name, KeyHash: "k", Verdict: VerdictReject})
	l.allowances.entries = append(l.allowances.entries, &Allowance{ID: "1", Pattern: wire.Pattern(name)})
}

// unsay ends what say has said.
func (l *orderLogs) unsay(i int) {
	name := wire.Identity(fmt.Sprintf("web%d.example.net", i))
	l.pauses.entries = append(l.pauses.entries, &Pause{Site: jwt.Site(fmt.Sprint("site", i)), Resumed: true})
	l.answers.entries = append(l.answers.entries, &Answer{Identity: name, KeyHash: "k", Verdict: VerdictNone})
	l.allowances.entries = append(l.allowances.entries, &Allowance{ID: "1", Pattern: wire.Pattern(name), Removed: true})
}

// known is how many of each kind are in force.
func known(p *Provisioner) [3]int {
	return [3]int{len(p.pauses.list()), len(p.answers.list()), len(p.allowances.list())}
}

// TestAWaveOfOrdersIsReadAtOnce has another provisioner reject, allow and pause many, and take
// one of each back: with a question for each, at a store that is far, who looks would be out
// of date before its end, and nobody be admitted meanwhile.
func TestAWaveOfOrdersIsReadAtOnce(t *testing.T) {
	t.Parallel()
	l := &orderLogs{}
	p, looks := l.follower()
	const wave = 500
	for i := range wave {
		l.say(i)
	}
	l.unsay(0)
	for what, look := range looks {
		l.asked = 0
		if err := look(t.Context()); err != nil || l.asked > lookOneByOne {
			t.Errorf("%s: look = %v with %d questions for %d entries", what, err, l.asked, wave+1)
		}
	}
	if got, want := known(p), [3]int{wave - 1, wave - 1, wave - 1}; got != want {
		t.Errorf("%v pauses, rejections and names are in force, want %v", got, want)
	}
	l.say(wave)
	l.scanned = 0
	for what, look := range looks {
		l.asked = 0
		if err := look(t.Context()); err != nil || l.asked > 2 {
			t.Errorf("%s: look = %v with %d questions for one entry", what, err, l.asked)
		}
	}
	if got, want := known(p), [3]int{wave, wave, wave}; got != want || l.scanned > 0 {
		t.Errorf("%v are in force, want %v; all read %d times for one entry", got, want, l.scanned)
	}
}

// TestWhoWaitsForALookGivesUp has a look at what operators said take for ever, as one does
// at a store that is far: a request that needs what it reads is told so, by its own end or
// else in time, and the next one gets in once the store answers.
func TestWhoWaitsForALookGivesUp(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"pauses", "verdicts", "allow-list"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &orderLogs{held: what, hold: make(chan struct{})}
				p, looks := l.follower()
				go func() { _ = looks[what](t.Context()) }()
				synctest.Wait()
				if err := p.ensureOrders(t.Context()); !errors.Is(err, ErrRevocationsUnknown) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a request while somebody looks: %v, want %v", err, ErrRevocationsUnknown)
				}
				over, cancel := context.WithCancel(t.Context())
				cancel()
				if err := p.ensureOrders(over); !errors.Is(err, ErrRevocationsUnknown) || !errors.Is(err, context.Canceled) {
					t.Errorf("a request that is over: %v, want %v", err, ErrRevocationsUnknown)
				}
				close(l.hold)
				synctest.Wait()
				if err := p.ensureOrders(t.Context()); err != nil {
					t.Errorf("a request once the store answers: %v", err)
				}
			})
		})
	}
}

// endless is a log of verdicts that grows as fast as it is read, one at a time.
type endless struct{ answerLog }

func (*endless) NextAnswer(ctx context.Context, after Sequence) (*Answer, Sequence, error) {
	select {
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	case <-time.After(50 * time.Millisecond): // the way to the store and back
		return &Answer{Identity: web1, Verdict: VerdictApprove}, after + 1, nil
	}
}

func (*endless) Answers(ctx context.Context, _ Sequence, _ func(*Answer, Sequence, error) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestALookForARequestEnds has a request look at a log of which there is no end. What it has
// read by then is not read again.
func TestALookForARequestEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := (&orderLogs{}).follower()
		p.answers = newAnswers(&endless{}, slog.New(slog.DiscardHandler), func(holder) {})
		last := Sequence(0)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // as the service gives it
			err := p.ensureOrders(ctx)
			if !errors.Is(err, ErrRevocationsUnknown) || ctx.Err() != nil {
				t.Errorf("ensureOrders = %v, and of the request's time: %v; want %v before it is over", err, ctx.Err(), ErrRevocationsUnknown)
			}
			cancel()
			if p.answers.last <= last {
				t.Errorf("read to %d, and then to %d", last, p.answers.last)
			}
			last = p.answers.last
			<-time.After(LookEvery) // a look that failed is not repeated at once
		}
	})
}
