package provisioner

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"muster/jwt"
)

// distant is a log that is some time away.
type distant struct {
	*memory
	way time.Duration // there, and back
}

func (d distant) Claims(ctx context.Context, tid jwt.TokenID, after Revision, each func(*ClaimEntry, Revision) error) error {
	<-time.After(d.way)
	defer func() { <-time.After(d.way) }()
	if err := ctx.Err(); err != nil {
		return err
	}
	return d.memory.Claims(ctx, tid, after, each)
}

func (d distant) AppendClaims(ctx context.Context, tid jwt.TokenID, e *ClaimEntry, after Revision) (Revision, error) {
	<-time.After(d.way)
	defer func() { <-time.After(d.way) }()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return d.memory.AppendClaims(ctx, tid, e, after)
}

// TestTheDistantGetTheirTurn has a process that is a hundred times as far away as
// another one claim uses of a token of which the other one claims all the time.
func TestTheDistantGetTheirTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		token := &TokenInfo{ID: "t", Uses: 1 << 30}
		near := newLedgers(distant{m, time.Millisecond}, slog.New(slog.DiscardHandler), time.Now)
		far := newLedgers(distant{m, 100 * time.Millisecond}, slog.New(slog.DiscardHandler), time.Now)
		ctx, cancel := context.WithCancel(t.Context())
		var claiming sync.WaitGroup
		defer claiming.Wait()
		defer cancel()
		nears := 0
		claiming.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := near.post(t.Context(), claimOf(i, token)); err != nil {
					t.Errorf("the near one: %v", err)
				}
				nears++
			}
		})
		for i := range 10 {
			began := time.Now()
			limit, done := context.WithTimeout(t.Context(), 5*time.Second)
			if err := far.post(limit, claimOf(-1-i, token)); err != nil {
				t.Fatalf("the far one, claim %d, after %v: %v", i, time.Since(began), err)
			}
			done()
			// A write that is lost, a read, another one, the entry that asks, a read, and a write.
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("claim %d took %v, want less than two seconds", i, took)
			}
		}
		cancel()
		claiming.Wait()
		if nears < 100 {
			t.Errorf("the near one claimed %d times meanwhile, want a hundred and more", nears)
		}
	})
}

// TestATurnIsWaitedFor has another process ask for a turn, and take it or die.
func TestATurnIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		after time.Duration // the other one writes; 0 for never
		least time.Duration // so long we wait
		most  time.Duration
	}{
		"taken": {after: time.Second, least: time.Second, most: time.Second + publishBackoff},
		"dead":  {least: turnFor, most: turnFor},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &memory{}
				token := &TokenInfo{ID: "t", Uses: 9}
				s := newLedgers(m, slog.New(slog.DiscardHandler), time.Now)
				if err := s.post(t.Context(), claimOf(0, token)); err != nil {
					t.Fatal(err)
				}
				m.log = append(m.log, newTurn("other", time.Now()))
				began := time.Now()
				if tt.after > 0 {
					time.AfterFunc(tt.after, func() {
						if _, err := m.AppendClaims(t.Context(), "t", &ClaimEntry{Schema: ClaimSchema, Claims: []TokenClaim{*claimOf(1, token).claim}}, 2); err != nil {
							t.Error(err)
						}
					})
				}
				if err := s.post(t.Context(), claimOf(2, token)); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < tt.least || took > tt.most {
					t.Errorf("our claim took %v, want %v to %v", took, tt.least, tt.most)
				}
			})
		})
	}
}

// TestTheLine puts several into it.
func TestTheLine(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var l line
	at := func(after time.Duration) time.Time { return now.Add(after) }
	first := func() string {
		for _, who := range []string{"a", "b", "c"} {
			if l.before(who, now) == 0 {
				return who
			}
		}
		return ""
	}
	claim := &ClaimEntry{Schema: ClaimSchema, Claims: []TokenClaim{{}}}
	if l.apply(claim, now); l.before("c", now) != 0 {
		t.Error("an empty line keeps somebody waiting")
	}
	l.apply(newTurn("a", now), now)
	l.apply(newTurn("b", now), now)
	l.apply(newTurn("a", now), now) // a message that came twice
	if got := fmt.Sprint(first(), l.before("c", at(time.Second))); got != "a2s" {
		t.Errorf("first, and how long others wait after a second: %s, want a2s", got)
	}
	if l.apply(claim, at(time.Second)); first() != "b" || l.before("c", at(time.Second)) != turnFor {
		t.Errorf("when the first has written, %q is, and others wait for %v; want b and %v", first(), l.before("c", at(time.Second)), turnFor)
	}
	if left := l.before("c", at(time.Second+turnFor)); left != 0 {
		t.Errorf("who asked and does not come keeps others for %v more", left)
	}
	if err := newTurn("a", now).Check(); err != nil {
		t.Error(err)
	}
	old := *newTurn("a", now)
	old.Turn = "" // as a provisioner reads it that knows nothing of turns
	var b book
	b.apply(claim, 1)
	if b.apply(&old, 2); old.Check() != nil || len(b.held) != 1 || b.at != 2 {
		t.Errorf("to others it is not an entry that changes nothing: %v, %d held", old.Check(), len(b.held))
	}
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

// TestATurnIsJournaledInItsPlace has a process ask for a turn that has not read what is
// in the log. A journal that had the end first would seem to have all before it.
func TestATurnIsJournaledInItsPlace(t *testing.T) {
	t.Parallel()
	token := &TokenInfo{ID: "t", Uses: 9}
	m := &memory{log: []*ClaimEntry{
		{Schema: ClaimSchema, Claims: []TokenClaim{*claimOf(1, token).claim}},
		{Schema: ClaimSchema, Claims: []TokenClaim{*claimOf(2, token).claim}},
	}}
	j := &recording{}
	log := claimLog(m, j, nil)
	if at, err := log.AppendClaims(t.Context(), "t", newTurn("us", time.Now()), AnyRevision); at != 3 || err != nil {
		t.Fatalf("asked at %d, %v, want 3", at, err)
	}
	if len(j.at) > 0 {
		t.Errorf("journaled before what is in front of it: %v", j.at)
	}
	if err := log.Claims(t.Context(), "t", 0, func(*ClaimEntry, Revision) error { return nil }); err != nil || fmt.Sprint(j.at) != "[1 2 3]" {
		t.Errorf("journaled when read: %v, %v", j.at, err)
	}
}
