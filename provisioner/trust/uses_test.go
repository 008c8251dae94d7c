package trust_test

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
	"testing/synctest"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/trust"
)

// claimLog is a log of claims in memory, of one token.
type claimLog struct {
	trust.ClaimLog

	mu      sync.Mutex
	log     []*trust.ClaimEntry
	append  func() error  // called before each append; may be nil
	unknown error         // of reads
	far     time.Duration // time to read an entry
}

func (m *claimLog) Claims(ctx context.Context, _ jwt.TokenID, after trust.Revision,
	each func(*trust.ClaimEntry, trust.Revision) error,
) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unknown != nil {
		return m.unknown
	}
	for at := int(after); at < len(m.log); at++ {
		if m.far > 0 {
			time.Sleep(m.far) //nolint:forbidigo // moves the bubble's clock
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := each(m.log[at], trust.Revision(at+1)); err != nil {
			return err
		}
	}
	return nil
}

func (m *claimLog) AppendClaims(_ context.Context, _ jwt.TokenID, e *trust.ClaimEntry, after trust.Revision,
) (trust.Revision, error) {
	if m.append != nil {
		if err := m.append(); err != nil {
			return 0, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if int(after) != len(m.log) {
		return 0, trust.ErrConflict
	}
	m.log = append(m.log, e)
	return trust.Revision(len(m.log)), nil
}

func usesOf(m *claimLog) *trust.Uses { return trust.NewUses(m, slog.New(slog.DiscardHandler)) }

func claimBy(key int, attempt string) *trust.TokenClaim {
	return &trust.TokenClaim{Key: fmt.Sprint(key), Identity: "web1.example.net", Attempt: attempt, At: time.Unix(1, 0)}
}

// TestUsesNeverExceedTheLimit has three processes claim and release at random, with unacknowledged writes that happened
// or not.
func TestUsesNeverExceedTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit, keys = 3, 8
		m := &claimLog{}
		var lost sync.Mutex
		lottery := rand.New(rand.NewPCG(1, 1))
		m.append = func() error {
			lost.Lock()
			defer lost.Unlock()
			if lottery.IntN(5) == 0 {
				return errors.New("no acknowledgement")
			}
			return nil
		}
		token := &trust.TokenInfo{ID: "t", Uses: limit}
		var all sync.WaitGroup
		for process := range 3 {
			u := usesOf(m)
			for key := range keys {
				all.Go(func() {
					for try := range 20 {
						attempt := fmt.Sprint(process, key, try)
						err := u.Claim(t.Context(), token, claimBy(key, attempt))
						if errors.Is(err, trust.ErrUsedUp) {
							continue
						}
						if err != nil {
							t.Error(err)
						}
						r := &trust.TokenRelease{Key: fmt.Sprint(key), Identity: "web1.example.net", Attempt: attempt}
						if err := u.Release(t.Context(), token, r); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		all.Wait()
		var book trust.UseCount
		most := 0
		for i, e := range m.log {
			book.Apply(e, trust.Revision(i+1))
			if most = max(most, book.Held); book.Held > limit {
				t.Fatalf("%d uses are held after entry %d, the limit is %d", book.Held, i+1, limit)
			}
		}
		if book.Held != 0 || most != limit {
			t.Errorf("%d uses are held in the end, and %d at most, want 0 and %d", book.Held, most, limit)
		}
	})
}

// TestReleaseIsOfOneAttempt releases one of two claims of a key.
func TestReleaseIsOfOneAttempt(t *testing.T) {
	t.Parallel()
	entry := func(claims []string, releases ...trust.TokenRelease) *trust.ClaimEntry {
		e := &trust.ClaimEntry{Schema: trust.ClaimSchema, Releases: releases}
		for _, a := range claims {
			e.Claims = append(e.Claims, *claimBy(1, a))
		}
		return e
	}
	one := func(a string) trust.TokenRelease {
		return trust.TokenRelease{Key: "1", Identity: "web1.example.net", Attempt: a}
	}
	all := trust.TokenRelease{Key: "1", Identity: "web1.example.net", All: true}
	unrelated := []trust.TokenRelease{{Key: "1", Identity: "web2", All: true},
		{Key: "2", Identity: "web1.example.net", All: true}}
	tests := map[string]struct {
		log  []*trust.ClaimEntry
		want int
	}{
		"no claim":                {nil, 0},
		"two attempts of one key": {[]*trust.ClaimEntry{entry([]string{"a"}), entry([]string{"b"})}, 1},
		"one of them released":    {[]*trust.ClaimEntry{entry([]string{"a", "b"}), entry(nil, one("a"))}, 1},
		"the same one twice": {[]*trust.ClaimEntry{entry([]string{"a", "b"}), entry(nil, one("a")),
			entry(nil, one("a"))}, 1},
		"both": {[]*trust.ClaimEntry{entry([]string{"a", "b"}),
			entry(nil, one("a"), one("b"))}, 0},
		"all":                            {[]*trust.ClaimEntry{entry([]string{"a", "b"}), entry(nil, all)}, 0},
		"all, and one in the same entry": {[]*trust.ClaimEntry{entry([]string{"a"}), entry([]string{"b"}, all)}, 1},
		"another name's and key's":       {[]*trust.ClaimEntry{entry([]string{"a"}), entry(nil, unrelated...)}, 1},
		"a release before its claim":     {[]*trust.ClaimEntry{entry(nil, one("a")), entry([]string{"a"})}, 1},
		"a later attempt's": {[]*trust.ClaimEntry{entry([]string{"a"}), entry(nil, one("a")),
			entry([]string{"b"})}, 1},
	}
	for name, tt := range tests {
		var b trust.UseCount
		for i, e := range tt.log {
			b.Apply(e, trust.Revision(i+1))
			b.Apply(e, trust.Revision(i+1)) // an applied entry
		}
		if b.Held != tt.want {
			t.Errorf("%s: %d uses are held, want %d", name, b.Held, tt.want)
		}
	}
}

// TestClaimsOfOneTokenAreWrittenTogether delays the first write until all requests wait.
func TestClaimsOfOneTokenAreWrittenTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const waiting = 522
		first, going := make(chan struct{}), make(chan struct{})
		m := &claimLog{append: func() error {
			select {
			case first <- struct{}{}:
				<-going
			default:
			}
			return nil
		}}
		u, token := usesOf(m), &trust.TokenInfo{ID: "t", Uses: waiting + 1}
		var all sync.WaitGroup
		post := func(i int) {
			all.Go(func() {
				if err := u.Claim(t.Context(), token, claimBy(i, fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			})
		}
		post(0)
		<-first
		for i := range waiting {
			post(i + 1)
		}
		synctest.Wait()
		close(going)
		all.Wait()
		if len(m.log) != 4 || m.log[0].Token != token || m.log[1].Token != nil {
			t.Errorf("%d entries, want 4, of which the first alone describes the token", len(m.log))
		}
	})
}

// TestCanceledRequestDelaysNoOther cancels the request whose write began, before its outcome is known.
func TestCanceledRequestDelaysNoOther(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]bool{"written": true, "not written": false} {
		synctest.Test(t, func(t *testing.T) {
			m := &claimLog{}
			u, token := usesOf(m), &trust.TokenInfo{ID: "t", Uses: 3}
			ctx, cancel := context.WithCancel(t.Context())
			calls := 0
			m.append = func() error {
				if calls++; calls > 1 {
					return nil
				}
				if written {
					m.log = append(m.log,
						&trust.ClaimEntry{Schema: trust.ClaimSchema, Claims: []trust.TokenClaim{*claimBy(1, "a")}})
				}
				cancel()
				return errors.New("no acknowledgement")
			}
			if err := u.Claim(ctx, token, claimBy(1, "a")); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: the first: %v", name, err)
			}
			if err := u.Claim(t.Context(), token, claimBy(2, "b")); err != nil {
				t.Errorf("%s: the second: %v", name, err)
			}
			var book trust.UseCount
			claims := 0
			for i, e := range m.log {
				book.Apply(e, trust.Revision(i+1))
				claims += len(e.Claims)
			}
			if book.Held != 2 || claims != 2 { // once each, although the first was tried twice
				t.Errorf("%s: %d uses are held by %d claims, want 2", name, book.Held, claims)
			}
		})
	}
}

// TestRefusalReadsTheLogFirst has another process release the last use.
func TestRefusalReadsTheLogFirst(t *testing.T) {
	t.Parallel()
	m := &claimLog{}
	u, token := usesOf(m), &trust.TokenInfo{ID: "t", Uses: 1}
	if err := u.Claim(t.Context(), token, claimBy(1, "a")); err != nil {
		t.Fatal(err)
	}
	if err := u.Claim(t.Context(), token, claimBy(2, "b")); !errors.Is(err, trust.ErrUsedUp) {
		t.Errorf("a second key: %v, want %v", err, trust.ErrUsedUp)
	}
	released := trust.TokenRelease{Key: "1", Identity: "web1.example.net", All: true}
	m.log = append(m.log, &trust.ClaimEntry{Schema: trust.ClaimSchema, Releases: []trust.TokenRelease{released}})
	if err := u.Claim(t.Context(), token, claimBy(2, "b")); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

// TestUnreadableLogIsReportedAtOnce lets a conflict be followed by a read that fails.
func TestUnreadableLogIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	for name, uses := range map[string]int{"a conflict": 1, "a token that looks used up": 0} {
		u := usesOf(&claimLog{unknown: gone, log: []*trust.ClaimEntry{{}}})
		if err := u.Claim(t.Context(), &trust.TokenInfo{ID: "t", Uses: uses}, claimBy(1, "a")); !errors.Is(err, gone) {
			t.Errorf("%s: %v, want %v", name, err, gone)
		}
	}
}

// TestLongLogIsReadOverSeveralRequests claims a use of a token with thousands in a new process with a slow store. No
// single request has the time to read the log.
func TestLongLogIsReadOverSeveralRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, token := &claimLog{}, &trust.TokenInfo{ID: "t", Uses: 1 << 20}
		for i := range 1000 {
			m.log = append(m.log,
				&trust.ClaimEntry{Schema: trust.ClaimSchema, Claims: []trust.TokenClaim{*claimBy(i, fmt.Sprint(i))}})
		}
		m.far = 50 * time.Millisecond
		u := usesOf(m)
		for try := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			err := u.Claim(ctx, token, claimBy(5000, fmt.Sprint("again", try)))
			cancel()
			if err == nil {
				return
			}
		}
		t.Error("the claim was not written in three requests of 30 s, want the log read in 50")
	})
}

// TestBatchFitsIntoAMessage builds the largest possible entry.
func TestBatchFitsIntoAMessage(t *testing.T) {
	t.Parallel()
	e := trust.ClaimEntry{Schema: trust.ClaimSchema}
	for range trust.MaxBatch {
		e.Claims = append(e.Claims, trust.TokenClaim{
			Key:      strings.Repeat("f", 64),
			Identity: wire.Identity(strings.Repeat("a", wire.MaxIdentityBytes)),
			Attempt:  wire.NewID(),
			At:       time.Now().UTC().Truncate(time.Second),
			Source:   strings.Repeat("\x01", trust.MaxSourceBytes),
		})
	}
	e.Token = &trust.TokenInfo{
		JTI:        strings.Repeat("\x01", trust.MaxJTIBytes),
		Identities: []wire.Pattern{wire.Pattern(strings.Repeat("a", jwt.MaxTokenBytes))},
	}
	if b, err := json.Marshal(e); err != nil || len(b) > 512<<10 {
		t.Errorf("the largest entry has %d bytes, %v, want 512 KiB or less", len(b), err)
	}
}

// TestInvalidEntries has one edit each of a good entry.
func TestInvalidEntries(t *testing.T) {
	t.Parallel()
	good := func() *trust.ClaimEntry {
		return &trust.ClaimEntry{
			Schema:   trust.ClaimSchema,
			Claims:   []trust.TokenClaim{*claimBy(1, "a")},
			Releases: []trust.TokenRelease{{Key: "k", Identity: "web1", Attempt: "a"}},
		}
	}
	if err := good().Check(); err != nil {
		t.Error(err)
	}
	for name, edit := range map[string]func(*trust.ClaimEntry){
		"another schema":              func(e *trust.ClaimEntry) { e.Schema++ },
		"nothing":                     func(e *trust.ClaimEntry) { e.Claims, e.Releases = nil, nil },
		"a claim of no key":           func(e *trust.ClaimEntry) { e.Claims[0].Key = "" },
		"a claim for no name":         func(e *trust.ClaimEntry) { e.Claims[0].Identity = "" },
		"a claim by no attempt":       func(e *trust.ClaimEntry) { e.Claims[0].Attempt = "" },
		"a claim at no time":          func(e *trust.ClaimEntry) { e.Claims[0].At = time.Time{} },
		"a release of no key":         func(e *trust.ClaimEntry) { e.Releases[0].Key = "" },
		"a release for no name":       func(e *trust.ClaimEntry) { e.Releases[0].Identity = "" },
		"a release of nothing":        func(e *trust.ClaimEntry) { e.Releases[0].Attempt = "" },
		"a release of one and of all": func(e *trust.ClaimEntry) { e.Releases[0].All = true },
	} {
		e := good()
		edit(e)
		if err := e.Check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
