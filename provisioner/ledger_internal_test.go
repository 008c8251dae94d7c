package provisioner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/jwt"
)

// TestTheCountIsKept runs random claims and releases of several books over one
// log, each of which counts on what it has seen: never are more uses held than
// there are, and every book that has read all comes to the same count.
func TestTheCountIsKept(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		uses := 1 + r.IntN(5)
		var log []*ClaimEntry
		ledgers := []*ledger{newLedger(nil, "t", nil), newLedger(nil, "t", nil), newLedger(nil, "t", nil)}
		catchUp := func(l *ledger) {
			for at := int(l.book.at); at < len(log); at++ {
				l.book.apply(log[at], trust.Revision(at+1))
			}
		}
		claims := []*TokenClaim{}
		for step := range 200 {
			l := ledgers[r.IntN(len(ledgers))]
			if r.IntN(2) == 0 {
				catchUp(l)
			}
			var batch []*posting
			for range 1 + r.IntN(4) {
				p := newPosting(&TokenInfo{ID: "t", Uses: uses})
				if r.IntN(3) > 0 || len(claims) == 0 {
					p.claim = &TokenClaim{Key: fmt.Sprint(r.IntN(8)), Identity: "web1", Attempt: fmt.Sprint(step, len(batch)), At: time.Now()}
				} else {
					c := claims[r.IntN(len(claims))]
					p.release = &TokenRelease{Key: c.Key, Identity: c.Identity, Attempt: c.Attempt}
				}
				batch = append(batch, p)
			}
			e, in, _ := l.plan(batch, false)
			if len(in) == 0 || int(l.book.at) != len(log) {
				continue // nothing to write, or a conflict
			}
			log = append(log, e)
			for i := range e.Claims {
				claims = append(claims, &e.Claims[i])
			}
			catchUp(l)
			if got := len(l.book.held); got > uses {
				t.Fatalf("seed %d: %d uses are held, the limit is %d", seed, got, uses)
			}
		}
		// What is held, counted in the slowest way there is.
		held := map[string]bool{}
		for i, e := range log {
			for _, c := range e.Claims {
				released := false
				for _, later := range log[i+1:] {
					for _, r := range later.Releases {
						released = released || r.Attempt == c.Attempt
					}
				}
				if !released {
					held[c.Key] = true
				}
			}
		}
		for _, l := range ledgers {
			catchUp(l)
			if len(l.book.held) != len(held) {
				t.Errorf("seed %d: %d uses are held, want %d", seed, len(l.book.held), len(held))
			}
			for _, e := range log {
				l.book.apply(e, 1) // once more takes nothing into account twice
			}
			if len(l.book.held) != len(held) {
				t.Errorf("seed %d: read again, %d uses are held, want %d", seed, len(l.book.held), len(held))
			}
		}
	}
}

// TestAReleaseIsOfOneAttempt releases one of two claims of a key.
func TestAReleaseIsOfOneAttempt(t *testing.T) {
	t.Parallel()
	entry := func(claims []string, releases ...TokenRelease) *ClaimEntry {
		e := &ClaimEntry{Schema: ClaimSchema, Releases: releases}
		for _, a := range claims {
			e.Claims = append(e.Claims, TokenClaim{Key: "k", Identity: "web1", Attempt: a})
		}
		return e
	}
	one := func(a string) TokenRelease { return TokenRelease{Key: "k", Identity: "web1", Attempt: a} }
	all := TokenRelease{Key: "k", Identity: "web1", All: true}
	tests := map[string]struct {
		log  []*ClaimEntry
		want int
	}{
		"no claim":                       {nil, 0},
		"two attempts of one key":        {[]*ClaimEntry{entry([]string{"a"}), entry([]string{"b"})}, 1},
		"one of them released":           {[]*ClaimEntry{entry([]string{"a", "b"}), entry(nil, one("a"))}, 1},
		"the same one twice":             {[]*ClaimEntry{entry([]string{"a", "b"}), entry(nil, one("a")), entry(nil, one("a"))}, 1},
		"both":                           {[]*ClaimEntry{entry([]string{"a", "b"}), entry(nil, one("a"), one("b"))}, 0},
		"all":                            {[]*ClaimEntry{entry([]string{"a", "b"}), entry(nil, all)}, 0},
		"all, and one in the same entry": {[]*ClaimEntry{entry([]string{"a"}), entry([]string{"b"}, all)}, 1},
		"another's":                      {[]*ClaimEntry{entry([]string{"a"}), entry(nil, TokenRelease{Key: "k", Identity: "web2", All: true}, TokenRelease{Key: "l", Identity: "web1", All: true})}, 1},
		"a release before its claim":     {[]*ClaimEntry{entry(nil, one("a")), entry([]string{"a"})}, 1},
		"released and claimed by a later attempt": {[]*ClaimEntry{entry([]string{"a"}), entry(nil, one("a")), entry([]string{"b"})}, 1},
	}
	for name, tt := range tests {
		var b book
		for i, e := range tt.log {
			b.apply(e, trust.Revision(i+1))
		}
		if got := len(b.held); got != tt.want {
			t.Errorf("%s: %d uses are held, want %d", name, got, tt.want)
		}
	}
}

// memory is a log of claims in memory, to see how it is used.
type memory struct {
	ClaimLog
	mu      sync.Mutex
	log     []*ClaimEntry
	append  func() error // asked before each append; nil for none
	reads   int
	unknown error // of reads
}

func (m *memory) Claims(_ context.Context, _ jwt.TokenID, after trust.Revision, each func(*ClaimEntry, trust.Revision) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if m.unknown != nil {
		return m.unknown
	}
	for at := int(after); at < len(m.log); at++ {
		if err := each(m.log[at], trust.Revision(at+1)); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) AppendClaims(_ context.Context, _ jwt.TokenID, e *ClaimEntry, after trust.Revision) (trust.Revision, error) {
	if m.append != nil {
		if err := m.append(); err != nil {
			return 0, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if after != AnyRevision && int(after) != len(m.log) {
		return 0, trust.ErrConflict
	}
	m.log = append(m.log, e)
	return trust.Revision(len(m.log)), nil
}

func claimOf(i int, token *TokenInfo) *posting {
	p := newPosting(token)
	p.claim = &TokenClaim{Key: fmt.Sprint(i), Identity: "web1.example.net", Attempt: fmt.Sprint("a", i), At: time.Unix(1, 0)}
	return p
}

// TestWhoWaitsIsWrittenTogether holds the first write back until everybody else
// waits: they go into as few entries as fit.
func TestWhoWaitsIsWrittenTogether(t *testing.T) {
	t.Parallel()
	const waiting = 2*maxBatch + 10
	m := &memory{}
	s := newLedgers(m, slog.New(slog.DiscardHandler), time.Now)
	token := &TokenInfo{ID: "t", Uses: waiting + 1}
	var posting sync.WaitGroup
	post := func(i int) {
		posting.Go(func() {
			if err := s.post(t.Context(), claimOf(i, token)); err != nil {
				t.Error(err)
			}
		})
	}
	// All others come while the first is being written, or some might share its entry.
	first := sync.OnceFunc(func() {
		for i := range waiting {
			post(i + 1)
		}
		for {
			l := s.enter("t")
			l.mu.Lock()
			n := len(l.queue)
			l.mu.Unlock()
			s.leave(l)
			if n == waiting {
				return
			}
		}
	})
	m.append = func() error { first(); return nil }
	post(0)
	posting.Wait()
	if len(m.log) != 4 || len(m.log[1].Claims) != maxBatch || m.reads > 0 {
		t.Errorf("%d entries, the second of %d claims, after %d reads: want 4 and %d, and no read", len(m.log), len(m.log[1].Claims), m.reads, maxBatch)
	}
	if m.log[0].Token != token || m.log[1].Token != nil {
		t.Error("the token is not described in the first entry alone")
	}
}

// TestWhoLeadsCanLeave ends the context of the one that writes for all, while
// the outcome of its write is not known: the next goes on.
func TestWhoLeadsCanLeave(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]bool{"written": true, "not written": false} {
		m := &memory{}
		s := newLedgers(m, slog.New(slog.DiscardHandler), time.Now)
		token := &TokenInfo{ID: "t", Uses: 3}
		ctx, cancel := context.WithCancel(t.Context())
		var second sync.WaitGroup
		calls := 0
		m.append = func() error {
			if calls++; calls > 1 {
				return nil
			}
			// The first leads; another claim comes while its write is under way.
			second.Go(func() {
				if err := s.post(t.Context(), claimOf(2, token)); err != nil {
					t.Errorf("%s: the second: %v", name, err)
				}
			})
			if written {
				m.mu.Lock()
				m.log = append(m.log, &ClaimEntry{Schema: ClaimSchema, Claims: []TokenClaim{*claimOf(1, token).claim}})
				m.mu.Unlock()
			}
			cancel()
			m.unknown = nil
			return errors.New("no acknowledgement")
		}
		err := s.post(ctx, claimOf(1, token))
		second.Wait()
		// What was written is found even then.
		if written != (err == nil) || !written && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the first: %v", name, err)
		}
		claims := 0
		for _, e := range m.log {
			claims += len(e.Claims)
		}
		if want := map[bool]int{true: 2, false: 1}[written]; claims != want {
			t.Errorf("%s: %d claims in the log, want %d", name, claims, want)
		}
	}
}

// TestWhatALeaderLeavesIsNotForgotten ends the leader's context while it writes
// for two others: they are where they were, and the next leader writes them.
func TestWhatALeaderLeavesIsNotForgotten(t *testing.T) {
	t.Parallel()
	m := &memory{}
	l := newLedger(m, "t", slog.New(slog.DiscardHandler))
	token := &TokenInfo{ID: "t", Uses: 3}
	first, gone, last := claimOf(1, token), claimOf(2, token), claimOf(3, token)
	l.queue = []*posting{first, gone, last}
	ctx, cancel := context.WithCancel(t.Context())
	m.append = func() error {
		l.withdraw(gone) // it waits no longer either
		cancel()
		return errors.New("no acknowledgement")
	}
	<-l.vacant
	l.lead(ctx)
	if len(l.queue) != 2 || l.queue[0] != first || l.queue[1] != last {
		t.Fatalf("%d are left in the queue, want the first and the last", len(l.queue))
	}
	m.append = nil
	<-l.vacant
	l.lead(t.Context())
	if err := errors.Join(<-first.done, <-last.done); err != nil || len(m.log) != 1 || len(m.log[0].Claims) != 2 {
		t.Errorf("%d entries, %v, want one with both", len(m.log), err)
	}
}

// TestARefusalReadsFirst releases the last use behind a ledger's back.
func TestARefusalReadsFirst(t *testing.T) {
	t.Parallel()
	m := &memory{}
	s := newLedgers(m, slog.New(slog.DiscardHandler), time.Now)
	token := &TokenInfo{ID: "t", Uses: 1}
	if err := s.post(t.Context(), claimOf(1, token)); err != nil {
		t.Fatal(err)
	}
	if err := s.post(t.Context(), claimOf(2, token)); !errors.Is(err, errUsedUp) {
		t.Errorf("a second key: %v, want %v", err, errUsedUp)
	}
	m.log = append(m.log, &ClaimEntry{Schema: ClaimSchema, Releases: []TokenRelease{{Key: "1", Identity: "web1.example.net", All: true}}})
	if err := s.post(t.Context(), claimOf(2, token)); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

// TestAnUnreadableLogIsToldToAllAtOnce lets a conflict be followed by a read that
// fails.
func TestAnUnreadableLogIsToldToAllAtOnce(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	m := &memory{unknown: gone, log: []*ClaimEntry{{}}}
	s := newLedgers(m, slog.New(slog.DiscardHandler), time.Now)
	if err := s.post(t.Context(), claimOf(1, &TokenInfo{ID: "t", Uses: 1})); !errors.Is(err, gone) || errors.Is(err, errUsedUp) {
		t.Errorf("post = %v, want %v", err, gone)
	}
	if err := s.post(t.Context(), claimOf(1, &TokenInfo{ID: "u", Uses: 0})); !errors.Is(err, gone) {
		t.Errorf("a token that looks used up, with a log that cannot be read: %v, want %v", err, gone)
	}
}

// TestIdleLedgersAreDropped expects memory only for tokens in use.
func TestIdleLedgersAreDropped(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	m := &memory{}
	s := newLedgers(m, slog.New(slog.DiscardHandler), func() time.Time { return now })
	held := s.enter("held")
	for i := range 100 {
		s.leave(s.enter(jwt.TokenID(fmt.Sprint(i))))
	}
	now = now.Add(ledgerIdle - time.Second)
	s.leave(s.enter("0"))
	now = now.Add(time.Second)
	s.swept = time.Time{}
	s.leave(s.enter("1"))
	if len(s.open) != 3 || s.open["0"] == nil || s.open["1"] == nil || s.open["held"] != held {
		t.Errorf("%d ledgers are left, want the one in use and the two of the last minute", len(s.open))
	}
	for i := range 3 * maxLedgers {
		s.leave(s.enter(jwt.TokenID(fmt.Sprint(i))))
		if len(s.open) > maxLedgers {
			t.Fatalf("%d ledgers, limit %d", len(s.open), maxLedgers)
		}
	}
	if s.open["held"] != held {
		t.Error("a ledger in use was dropped")
	}
}

// TestABatchFitsIntoAMessage builds the largest entry that there can be.
func TestABatchFitsIntoAMessage(t *testing.T) {
	t.Parallel()
	e := ClaimEntry{Schema: ClaimSchema}
	for range maxBatch {
		e.Claims = append(e.Claims, TokenClaim{
			Key: strings.Repeat("f", 64), Identity: wire.Identity(strings.Repeat("a", wire.MaxIdentityBytes)), Attempt: wire.NewID(),
			At: time.Now().UTC().Truncate(time.Second), Source: strings.Repeat("\x01", maxSourceBytes),
		})
	}
	e.Token = &TokenInfo{JTI: strings.Repeat("\x01", maxJTIBytes), Identities: []wire.Pattern{wire.Pattern(strings.Repeat("a", jwt.MaxTokenBytes))}}
	if b, err := json.Marshal(e); err != nil || len(b) > 512<<10 {
		t.Errorf("the largest entry has %d bytes, %v, want 512 KiB or less", len(b), err)
	}
}

// TestEntriesThatCannotBe has one edit each of a good entry.
func TestEntriesThatCannotBe(t *testing.T) {
	t.Parallel()
	good := func() *ClaimEntry {
		return &ClaimEntry{Schema: ClaimSchema, Claims: []TokenClaim{{Key: "k", Identity: "web1", Attempt: "a", At: time.Unix(1, 0)}},
			Releases: []TokenRelease{{Key: "k", Identity: "web1", Attempt: "a"}}}
	}
	if err := good().Check(); err != nil {
		t.Error(err)
	}
	for name, edit := range map[string]func(*ClaimEntry){
		"another schema":              func(e *ClaimEntry) { e.Schema++ },
		"nothing":                     func(e *ClaimEntry) { e.Claims, e.Releases = nil, nil },
		"a claim of no key":           func(e *ClaimEntry) { e.Claims[0].Key = "" },
		"a claim for nobody":          func(e *ClaimEntry) { e.Claims[0].Identity = "" },
		"a claim by no attempt":       func(e *ClaimEntry) { e.Claims[0].Attempt = "" },
		"a claim at no time":          func(e *ClaimEntry) { e.Claims[0].At = time.Time{} },
		"a release of no key":         func(e *ClaimEntry) { e.Releases[0].Key = "" },
		"a release for nobody":        func(e *ClaimEntry) { e.Releases[0].Identity = "" },
		"a release of nothing":        func(e *ClaimEntry) { e.Releases[0].Attempt = "" },
		"a release of one and of all": func(e *ClaimEntry) { e.Releases[0].All = true },
	} {
		e := good()
		edit(e)
		if err := e.Check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
