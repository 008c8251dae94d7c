package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/provisioner/trust"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/store"
)

const (
	token1 jwt.TokenID = "00112233445566778899aabbccddeeff"
	token2 jwt.TokenID = "ffeeddccbbaa99887766554433221100"
)

func claims(attempt string) *trust.ClaimEntry {
	return &trust.ClaimEntry{Schema: trust.ClaimSchema, Claims: []trust.TokenClaim{
		{Key: "k1", Identity: web1, Attempt: attempt, At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
			Source: "192.0.2.1"},
	}}
}

// tail returns the attempts of a token's log after a revision, and the newest revision.
func tail(t *testing.T, s *site, st *store.Store, tid jwt.TokenID, after trust.Revision,
) (attempts []string, newest trust.Revision) {
	t.Helper()
	err := st.Claims(s.ctx, tid, after, func(e *trust.ClaimEntry, at trust.Revision) error {
		if at <= newest || at <= after {
			t.Errorf("revision %d after %d", at, max(newest, after))
		}
		newest = at
		for _, c := range e.Claims {
			attempts = append(attempts, c.Attempt)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return attempts, newest
}

// TestClaimsAreAppendedInOrder writes two logs, on every revision but the newest.
func TestClaimsAreAppendedInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, stop := start(t, dir)
	st := s.open(t, ours)
	if got, at := tail(t, s, st, token1, 0); got != nil || at != 0 {
		t.Errorf("a log that is not there: %v at %d", got, at)
	}
	add := func(tid jwt.TokenID, attempt string, after trust.Revision) trust.Revision {
		t.Helper()
		at, err := st.AppendClaims(s.ctx, tid, claims(attempt), after)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	first := add(token1, "a1", 0)
	other := add(token2, "b1", 0)
	second := add(token1, "a2", first)
	for name, tt := range map[string]struct {
		tid   jwt.TokenID
		after trust.Revision
	}{
		"as if there were none": {token1, 0}, "on an earlier one": {token1, first}, "on another log's": {token1, other},
		"on ours, for another":   {token2, second},
		"on one from the future": {token1, second + 1},
	} {
		if at, err := st.AppendClaims(s.ctx, tt.tid, claims("late"), tt.after); !errors.Is(err, trust.ErrConflict) ||
			at != 0 {
			t.Errorf("%s: AppendClaims = %d, %v, want %v", name, at, err, trust.ErrConflict)
		}
	}
	third := add(token1, "a3", trust.AnyRevision) // unconditional
	check := func(after trust.Revision, want []string) {
		t.Helper()
		if got, at := tail(t, s, st, token1, after); !slices.Equal(got, want) || len(want) > 0 && at != third {
			t.Errorf("after %d: %v to %d, want %v to %d", after, got, at, want, third)
		}
	}
	for range 2 {
		check(0, []string{"a1", "a2", "a3"})
		check(first, []string{"a2", "a3"})
		check(other, []string{"a2", "a3"})
		check(second, []string{"a3"})
		check(third, nil)
		check(third+100, nil)
		// And by another process, on the same disk.
		stop()
		s, stop = start(t, dir)
		st = s.open(t, ours)
	}
	want := claims("a1")
	var got *trust.ClaimEntry
	enough := errors.New("enough")
	if err := st.Claims(s.ctx, token1, 0,
		func(e *trust.ClaimEntry, _ trust.Revision) error { got = e; return enough }); !errors.Is(err, enough) {
		t.Errorf("Claims = %v, want the error of its caller", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entry (-written +read):\n%s", diff)
	}
	all := []string{fmt.Sprint(token1, "a1", first), fmt.Sprint(token2, "b1", other), fmt.Sprint(token1, "a2", second),
		fmt.Sprint(token1, "a3", third)}
	var read []string
	if err := st.AllClaims(s.ctx, func(tid jwt.TokenID, e *trust.ClaimEntry, at trust.Revision) error {
		read = append(read, fmt.Sprint(tid, e.Claims[0].Attempt, at))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(read, all) {
		t.Errorf("AllClaims = %v, want %v", read, all)
	}
}

// TestClaimsAreNeverDeleted writes more than a bucket would keep, and tries to delete and purge.
func TestClaimsAreNeverDeleted(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	const many = 3 * store.History
	var after trust.Revision
	for i := range many {
		var err error
		if after, err = st.AppendClaims(s.ctx, token1, claims(fmt.Sprint(i)), after); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := s.js.Stream(s.ctx, "MUSTER_CLAIMS")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(s.ctx, 1); err == nil {
		t.Error("a claim was deleted")
	}
	if err := stream.Purge(s.ctx); err == nil {
		t.Error("all claims were purged")
	}
	if got, _ := tail(t, s, st, token1, 0); len(got) != many || got[0] != "0" || got[many-1] != fmt.Sprint(many-1) {
		t.Errorf("%d claims are left, want %d", len(got), many)
	}
}

// TestInvalidClaimsAreErrors writes invalid messages into a log. None is read as an entry or as the log's end.
func TestInvalidClaimsAreErrors(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	for i, c := range []struct{ data, want string }{
		{"", "end of JSON"},
		{"null", "schema 0, want 1"},
		{"hello", "invalid character 'h'"},
		{`{"schema":2,"claims":[{"key":"k","identity":"web1","attempt":"a","at":"2026-03-01T12:00:00Z"}]}`,
			"schema 2, want 1"},
		{`{"schema":1}`, "neither a claim nor a release"},
		{`{"schema":1,"claims":[{"key":"k","identity":"web1","at":"2026-03-01T12:00:00Z"}]}`, "is incomplete"},
	} {
		tid := jwt.TokenID(fmt.Sprintf("%032x", i))
		if _, err := s.js.Publish(s.ctx, "muster.claims."+string(tid), []byte(c.data)); err != nil {
			t.Fatal(err)
		}
		if err := st.Claims(s.ctx, tid, 0, func(*trust.ClaimEntry, trust.Revision) error { return nil }); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q reads as claims: %v, want %s", c.data, err, c.want)
		}
	}
	if err := st.AllClaims(s.ctx,
		func(jwt.TokenID, *trust.ClaimEntry, trust.Revision) error { return nil }); err == nil ||
		!strings.Contains(err.Error(), "sequence 1: ") {
		t.Errorf("AllClaims passes over what it does not understand: %v", err)
	}
	if at, err := st.AppendClaims(s.ctx, token1, &trust.ClaimEntry{Schema: trust.ClaimSchema}, 0); err == nil ||
		errors.Is(err, trust.ErrConflict) {
		t.Errorf("an empty entry is written at %d, %v", at, err)
	}
	s.conn.Close()
	if err := st.Claims(s.ctx, token1, 0, func(*trust.ClaimEntry, trust.Revision) error { return nil }); !errors.Is(err,
		nats.ErrConnectionClosed) {
		t.Errorf("Claims on a closed connection are none: %v, want %v", err, nats.ErrConnectionClosed)
	}
}

// TestRecordsAndHistory reads the newest record of each node, and all revisions of one.
func TestRecordsAndHistory(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	newest := func() (got []string) {
		t.Helper()
		if err := st.Records(s.ctx, func(r *provisioner.Record, at trust.Revision) error {
			got = append(got, fmt.Sprint(r.Identity, " ", r.Attempt, " ", at))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		return got
	}
	if got := newest(); got != nil {
		t.Errorf("records of an unknown node = %v", got)
	}
	if h, complete, err := st.History(s.ctx, web1); h != nil || !complete || err != nil {
		t.Errorf("history of an unknown node = %v, %v, %v", h, complete, err)
	}
	var after trust.Revision
	for i := range store.History + 5 {
		after = put(t, s, st, record(web1, fmt.Sprint("a", i)), after)
		if i > 1 && i < store.History-2 {
			continue
		}
		h, complete, err := st.History(s.ctx, web1)
		if err != nil || complete != (i < store.History-2) || len(h) != min(i+1, store.History) ||
			h[len(h)-1].Revision != after || h[len(h)-1].Record.Attempt != fmt.Sprint("a", i) {
			t.Fatalf("history after %d revisions: %d, complete %v, %v", i+1, len(h), complete, err)
		}
	}
	b := put(t, s, st, record(web2, "b"), 0)
	if got, want := newest(), []string{fmt.Sprint(web1, " a", store.History+4, " ", after),
		fmt.Sprint(web2, " b ", b)}; !slices.Equal(got, want) {
		t.Errorf("newest records = %v, want %v", got, want)
	}
	if _, err := s.js.Publish(s.ctx, "muster.node."+web2.SubjectToken(), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if h, _, err := st.History(s.ctx, web2); err == nil || !strings.Contains(err.Error(), "invalid character 'h'") {
		t.Errorf("a history with something else in it: %v, %v", h, err)
	}
	if err := st.Records(s.ctx, func(*provisioner.Record, trust.Revision) error { return nil }); err == nil ||
		!strings.Contains(err.Error(), "invalid character 'h'") {
		t.Errorf("records with something else among them: %v", err)
	}
}

// TestFirstNoteOfATokenStays notes the same tokens in several processes.
func TestFirstNoteOfATokenStays(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	if got, err := st.NotedToken(s.ctx, token1); got != nil || err != nil {
		t.Errorf("a note that is not there = %v, %v", got, err)
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	note := func(tid jwt.TokenID, seen time.Time) *trust.TokenInfo {
		return &trust.TokenInfo{ID: tid, Signer: "5b1f", SignerName: "ops", JTI: "a.*>",
			Identities: []wire.Pattern{"web*"}, IssuedAt: at, FirstSeen: seen}
	}
	st.NoteToken(note(token1, at))
	var noting sync.WaitGroup
	for i := range 10 {
		noting.Go(func() {
			st.NoteToken(note(token1, at.Add(time.Duration(i+1)*time.Hour)))
			st.NoteToken(note(token2, at))
		})
	}
	noting.Wait()
	if _, err := s.js.Publish(s.ctx, "muster.entry.token.last", []byte("{}")); err != nil { // after all of them
		t.Fatal(err)
	}
	got, err := st.NotedToken(s.ctx, token1)
	if diff := cmp.Diff(note(token1, at), got); diff != "" || err != nil {
		t.Errorf("note, %v (-written +read):\n%s", err, diff)
	}
	var all []string
	if err := st.NotedTokens(s.ctx,
		func(i *trust.TokenInfo) error { all = append(all, string(i.ID)); return nil }); err != nil {
		t.Fatal(err)
	}
	if slices.Sort(all); !slices.Equal(all, []string{"", string(token1), string(token2)}) {
		t.Errorf("noted %v", all)
	}
	entries, err := s.js.Stream(s.ctx, "MUSTER_ENTRIES")
	if err != nil {
		t.Fatal(err)
	}
	info, err := entries.Info(s.ctx, jetstream.WithSubjectFilter("muster.entry.token.*"))
	if err != nil || info.State.Subjects["muster.entry.token."+string(token1)] != 1 ||
		info.State.Subjects["muster.entry.token."+string(token2)] != 1 {
		t.Errorf("messages by subject: %v, %v", info.State.Subjects, err)
	}
	b, err := json.Marshal(got)
	if err != nil || strings.Contains(string(b), "expires_at") {
		t.Errorf("as JSON: %s, %v", b, err)
	}
}
