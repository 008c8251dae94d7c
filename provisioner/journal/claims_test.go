package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/provisioner"
	"muster/provisioner/journal"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// claim returns an entry of a token's log at its place.
func claim(at provisioner.Revision) *provisioner.JournaledClaims {
	return &provisioner.JournaledClaims{Token: "00112233445566778899aabbccddeeff", At: at, Entry: &provisioner.ClaimEntry{
		Schema: provisioner.ClaimSchema, Claims: []provisioner.TokenClaim{{Key: "k", Identity: "web1.example.net", Attempt: fmt.Sprint(at), At: noon}},
	}}
}

// places returns where the claims are that the journal has after a place.
func places(t *testing.T, j *journal.Journal, after provisioner.Revision) (places []provisioner.Revision) {
	t.Helper()
	claims, err := j.ClaimsAfter(after)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range claims {
		places = append(places, c.At)
	}
	return places
}

func through(t *testing.T, j *journal.Journal, want provisioner.Revision) {
	t.Helper()
	if got, ok := j.ClaimsThrough(); !ok || got != want {
		t.Errorf("claims through %d, %v, want %d", got, ok, want)
	}
}

func TestClaimsAreKeptFromWhereTheyBegin(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "revocations.journal")
	j := open(t, path)
	if err := j.AppendClaims(claim(1)); err != nil {
		t.Fatal(err)
	}
	if _, ok := j.ClaimsThrough(); ok || j.Installation() != "" || places(t, j, 0) != nil {
		t.Error("claims of no store")
	}
	if err := errors.Join(j.Begin(journal.From{Installation: "i", Claims: 5, At: noon}), j.AppendClaims(claim(5), claim(6)), j.AppendClaims(claim(9), claim(8), claim(6))); err != nil {
		t.Fatal(err)
	}
	through(t, j, 6) // 7 is on its way, or was never journaled
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, path)
	through(t, j, 6)
	if j.Installation() != "i" {
		t.Errorf("installation %q", j.Installation())
	}
	if err := j.AppendClaims(claim(7), claim(8)); err != nil {
		t.Fatal(err)
	}
	through(t, j, 9)
	if diff := cmp.Diff([]provisioner.Revision{7, 8, 9}, places(t, j, 6)); diff != "" {
		t.Errorf("places, each once and in order:\n%s", diff)
	}
	// After a restore that has lost some, places begin anew.
	if err := errors.Join(j.Begin(journal.From{Installation: "i", Claims: 2, At: noon, Lost: true}), j.AppendClaims(claim(3))); err != nil {
		t.Fatal(err)
	}
	through(t, j, 3)
	if diff := cmp.Diff([]provisioner.Revision{3}, places(t, j, 0)); diff != "" {
		t.Errorf("places after a restore:\n%s", diff)
	}
}

// TestAPlaceThatWasGivenTwice has a store lose its end, and give the places there to others:
// they are journaled as well, each once.
func TestAPlaceThatWasGivenTwice(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "revocations.journal")
	j := open(t, path)
	other := claim(2)
	other.Entry.Claims[0].Identity = "web2.example.net"
	if err := j.Begin(journal.From{Installation: "i", At: noon}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := j.AppendClaims(claim(1), claim(2), claim(3)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(j.AppendClaims(other), j.AppendClaims(other), j.AppendClaims(claim(2))); err != nil {
			t.Fatal(err)
		}
		through(t, j, 3)
		claims, err := j.ClaimsAfter(0)
		if diff := cmp.Diff([]*provisioner.JournaledClaims{claim(1), claim(2), other, claim(3)}, claims); diff != "" || err != nil {
			t.Errorf("claims, %v (-want +got):\n%s", err, diff)
		}
		lines := 0
		if err := j.Each(func(*journal.Line) error { lines++; return nil }); err != nil || lines != 5 {
			t.Errorf("%d lines, %v, want one for each", lines, err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j = open(t, path)
	}
}

// TestAPlaceThatIsGivenAnewLongAfterIsKept has a store lose hundreds of claims at its end, and
// give their places to others: each of those is journaled as well, once, whether the journal
// stays open meanwhile or is opened again.
func TestAPlaceThatIsGivenAnewLongAfterIsKept(t *testing.T) {
	t.Parallel()
	for _, reopened := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "revocations.journal")
		j := open(t, path)
		if err := j.Begin(journal.From{Installation: "i", At: noon}); err != nil {
			t.Fatal(err)
		}
		const all, kept = 400, 100
		for at := provisioner.Revision(1); at <= all; at++ {
			if err := j.AppendClaims(claim(at)); err != nil {
				t.Fatal(err)
			}
		}
		if reopened {
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			j = open(t, path)
		}
		var want []*provisioner.JournaledClaims
		for at := provisioner.Revision(1); at <= all; at++ {
			if want = append(want, claim(at)); at > kept {
				other := claim(at)
				other.Entry.Claims[0].Attempt = "another"
				if err := errors.Join(j.AppendClaims(other), j.AppendClaims(other)); err != nil {
					t.Fatal(err)
				}
				want = append(want, other)
			}
		}
		claims, err := j.ClaimsAfter(0)
		if diff := cmp.Diff(want, claims); diff != "" || err != nil {
			t.Errorf("claims of a journal, opened again %v: %v (-want +got):\n%s", reopened, err, diff)
		}
	}
}

// TestTheNewestClaimsAreRemembered asks for the newest ones, which came in any order, also
// of a journal that is opened again.
func TestTheNewestClaimsAreRemembered(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "revocations.journal")
	j := open(t, path)
	if err := errors.Join(j.AppendClaims(claim(1)), j.Begin(journal.From{Installation: "i", Claims: 5, At: noon})); err != nil {
		t.Fatal(err)
	}
	if got := j.ClaimsLately(); len(got) > 0 {
		t.Errorf("%d claims of no store", len(got))
	}
	const all, most = 200, 64
	for at := provisioner.Revision(all); at > 5; at-- { // the newest first
		if err := j.AppendClaims(claim(at)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		got := j.ClaimsLately()
		if len(got) != most || got[0].At != all-most+1 || got[most-1].At != all {
			t.Errorf("%d claims, want the last %d of %d", len(got), most, all)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j = open(t, path)
	}
	if err := j.Begin(journal.From{Installation: "i", Claims: all, At: noon, Lost: true}); err != nil {
		t.Fatal(err)
	}
	if got := j.ClaimsLately(); len(got) > 0 {
		t.Errorf("%d claims of other places, after a restore", len(got))
	}
}

// TestWhatStandsForClaimsIsKeptOnce asks a journal for what stands for its entries: of all that
// it had when it was opened and that are of the present count, in the order of the store, once.
func TestWhatStandsForClaimsIsKeptOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "revocations.journal")
	j := open(t, path)
	if got := j.ClaimSums(); len(got) > 0 {
		t.Errorf("%d of an empty journal", len(got))
	}
	other := claim(7)
	other.Entry.Claims[0].Attempt = "another"
	if err := errors.Join(j.Begin(journal.From{Installation: "i", At: noon}), j.AppendClaims(claim(1)), j.Begin(journal.From{Installation: "i", Claims: 5, At: noon}),
		j.AppendClaims(claim(8)), j.AppendClaims(claim(6)), j.AppendClaims(claim(7)), j.AppendClaims(other)); err != nil {
		t.Fatal(err)
	}
	if got := j.ClaimSums(); len(got) > 0 {
		t.Errorf("%d of what was written since", len(got))
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, path)
	want := []provisioner.ClaimSum{claim(6).Sum(), claim(7).Sum(), other.Sum(), claim(8).Sum()}
	if got := j.ClaimSums(); !slices.Equal(got, want) {
		t.Errorf("sums %v, want %v", got, want)
	}
	if got := j.ClaimSums(); len(got) > 0 {
		t.Errorf("%d, asked again", len(got))
	}
}

// TestEverythingIsAnEntryOfItsOwn writes one line of each kind, and reads them in
// their order; revocations are those only.
func TestEverythingIsAnEntryOfItsOwn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "revocations.journal")
	j := open(t, path)
	takeover := &provisioner.Takeover{Identity: "web1.example.net", Key: "k", Reason: provisioner.ReasonGrant, At: noon}
	signer := &provisioner.SignerEntry{Schema: provisioner.SignerSchema, ID: "0000000000000000000000000000000000000000000000000000000000000000", Removed: true, By: "operator", At: noon}
	allowance := &provisioner.Allowance{
		Schema: provisioner.AllowanceSchema, ID: "a", Pattern: "db*.net", At: noon, Cause: provisioner.Cause{By: "operator"},
	}
	own, other := journal.Joined{Provisioner: "p1", Journal: "j1", At: noon}, journal.Joined{Provisioner: "p2", Journal: "j2", At: noon}
	err := errors.Join(j.Begin(journal.From{Installation: "i", At: noon}), j.Own(own), j.Join(other), j.Forget(journal.Alone{At: noon}),
		j.Mark(journal.Backup{ID: "b", At: noon}), j.AppendSigner(signer), j.AppendAllowance(allowance), j.Append(entry("a")),
		j.AppendTakeover(takeover), j.AppendClaims(claim(1)))
	if err != nil {
		t.Fatal(err)
	}
	var got []journal.Line
	if err := j.Each(func(l *journal.Line) error { got = append(got, *l); return nil }); err != nil {
		t.Fatal(err)
	}
	want := []journal.Line{
		{From: &journal.From{Installation: "i", At: noon}}, {Owner: &own}, {Joined: &other}, {Alone: &journal.Alone{At: noon}}, {Backup: &journal.Backup{ID: "b", At: noon}}, {Signer: signer}, {Allowance: allowance}, {Revocation: entry("a")},
		{Takeover: takeover}, {Claims: claim(1)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a"}, ids(t, j)); diff != "" {
		t.Errorf("revocations:\n%s", diff)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if got := open(t, path).Owner(); got != own {
		t.Errorf("owner %+v, want %+v", got, own)
	}
	for _, bad := range []string{
		`{"owner":{"provisioner":"p1","at":"2026-03-01T12:00:00Z"}}`, `{"joined":{"journal":"j1","at":"2026-03-01T12:00:00Z"}}`,
		`{"backup":{"id":"b","at":"2026-03-01T12:00:00Z"},"from":{"installation":"i","claims":0,"at":"2026-03-01T12:00:00Z"}}`,
		`{"backup":{"at":"2026-03-01T12:00:00Z"}}`, `{"claims":{"tid":"x","at":0}}`, `{"allowance":{"schema":1,"id":"a","pattern":"["}}`, `{"takeover":{"identity":"WEB","key":"k"}}`, `{}`, `{"else":1}`,
	} {
		path := filepath.Join(t.TempDir(), "bad.journal")
		if err := os.WriteFile(path, []byte(bad+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := journal.Open(path); err == nil || !strings.Contains(err.Error(), "line 1: no entry") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestManyWhoClaim appends from many goroutines, which share writes: each finds
// its own on disk when it is told so.
func TestManyWhoClaim(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "revocations.journal")
	j := open(t, path)
	if err := j.Begin(journal.From{Installation: "i", At: noon}); err != nil {
		t.Fatal(err)
	}
	const writers, each = 16, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				at := provisioner.Revision(n*writers + w + 1)
				if err := j.AppendClaims(claim(at)); err != nil {
					t.Error(err)
					return
				}
				b, err := os.ReadFile(path)
				if err != nil || !strings.Contains(string(b), fmt.Sprintf(`"at":%d,`, at)) {
					t.Errorf("claim %d is not in the file (%v)", at, err)
				}
			}
		})
	}
	wg.Wait()
	through(t, j, writers*each)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	through(t, open(t, path), writers*each)
	if err := j.AppendClaims(claim(writers*each + 1)); err == nil {
		t.Error("a closed journal takes claims")
	}
}
