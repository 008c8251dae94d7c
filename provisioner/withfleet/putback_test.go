package provisioner_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/journal"
)

// TestWhatTwoJournalsHaveIsAppendedAgain puts older files of the store back, which two
// provisioners have written to since, each with tokens of its own. The first to start puts
// there what its journal has, and keeps the places of the rest with nothing; the second
// one finds a store that is as long as its journal, in which its uses are not.
func TestWhatTwoJournalsHaveIsAppendedAgain(t *testing.T) {
	t.Parallel()
	theirs, err := journal.Open(filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close() })
	second := false
	f := testbed.New(t, testbed.Options{Journal: func(real provisioner.Journal) provisioner.Journal {
		if second { // each process has a journal of its own
			return theirs
		}
		return real
	}})
	if err := theirs.Begin(journal.From{Installation: f.Daemon().Store().Installation().ID, At: f.Clock.Now()}); err != nil {
		t.Fatal(err)
	}
	files, old := filepath.Join(f.Dir, "data", "broker"), filepath.Join(t.TempDir(), "broker")
	f.Stop()
	if err := os.CopyFS(old, os.DirFS(files)); err != nil {
		t.Fatal(err)
	}
	f.Start()
	other := func() *provisioner.Provisioner {
		second = true
		defer func() { second = false }()
		return another(t, f, nil)
	}
	node := func(name, token string) *simnode.Node {
		n := f.Node(name)
		n.Token = token
		return n
	}
	p := other()
	tokens := []string{f.Token(testbed.Limited(1)), f.Token(testbed.Limited(1)), f.Token(testbed.Limited(1))}
	first := node("web0.example.net", tokens[0])
	if code := codeAt(f, p, first); code != "" {
		t.Fatal(code)
	}
	if code := codeAt(f, p, node("web1.example.net", tokens[1])); code != "" {
		t.Fatal(code)
	}
	n := node("web2.example.net", tokens[2])
	f.Apply(n, f.Enroll(n))
	// One more use was claimed by a machine that died, and given back.
	released := f.Token(testbed.Limited(1))
	for _, e := range []*provisioner.ClaimEntry{
		{Claims: []provisioner.TokenClaim{{Key: "dead", Identity: "web3.example.net", Attempt: "dead", At: f.Clock.Now()}}},
		{Releases: []provisioner.TokenRelease{{Key: "dead", Identity: "web3.example.net", All: true, At: f.Clock.Now(), By: "ann"}}},
	} {
		e.Schema = provisioner.ClaimSchema
		at, err := f.Daemon().Store().AppendClaims(f.Context(), f.TokenID(released), e, provisioner.AnyRevision)
		if err == nil {
			err = theirs.AppendClaims(&provisioner.JournaledClaims{Token: f.TokenID(released), At: at, Entry: e})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	n = node("web4.example.net", f.Token(testbed.Limited(1)))
	f.Apply(n, f.Enroll(n))
	f.Stop()
	if err := errors.Join(os.RemoveAll(files), os.CopyFS(files, os.DirFS(old))); err != nil {
		t.Fatal(err)
	}
	f.Start()
	f.Restored()
	p = other()
	for i, token := range tokens {
		if code := codeAt(f, p, node(fmt.Sprintf("thief%d.example.net", i), token)); code != wire.CodeTokenUsedUp {
			t.Errorf("the use of token %d, which a journal has: %q", i, code)
		}
	}
	if code := codeAt(f, p, first); code != "" {
		t.Errorf("who has spent it: %q", code)
	}
	if code := codeAt(f, p, node("web3.example.net", released)); code != "" {
		t.Errorf("the use that was given back: %q", code)
	}
	last, err := f.Daemon().Store().LastClaims(f.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.Stop()
	f.Start()
	other() // finds all of it, if not where it was
	if again, err := f.Daemon().Store().LastClaims(f.Context()); err != nil || again != last {
		t.Errorf("%d claims after another start, want %d (%v)", again, last, err)
	}
}

// TestWhatIsOlderThanTheNewestIsAppendedAgain puts older files of the store back, since which
// one of two provisioners has claimed uses that only it knows of, and then both many others. The
// first to start puts the newest of those into their places, so that the second finds nothing wrong
// with what it has lately. Nothing that has been spent is good again, nor is it taken twice.
func TestWhatIsOlderThanTheNewestIsAppendedAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	var ours, theirs provisioner.Journal
	second := false
	f := testbed.New(t, testbed.Options{Journal: func(real provisioner.Journal) provisioner.Journal {
		if second {
			return theirs
		}
		ours = real
		return real
	}})
	files, old := filepath.Join(f.Dir, "data", "broker"), filepath.Join(t.TempDir(), "broker")
	f.Stop()
	if err := os.CopyFS(old, os.DirFS(files)); err != nil {
		t.Fatal(err)
	}
	f.Start()
	open := func() *journal.Journal {
		t.Helper()
		j, err := journal.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		theirs = j
		return j
	}
	j := open()
	if err := j.Begin(journal.From{Installation: f.Daemon().Store().Installation().ID, At: f.Clock.Now()}); err != nil {
		t.Fatal(err)
	}
	claimed := func(token string, i int, info *provisioner.TokenInfo) *provisioner.JournaledClaims {
		t.Helper()
		e := &provisioner.ClaimEntry{Schema: provisioner.ClaimSchema, Token: info, Claims: []provisioner.TokenClaim{{
			Key: fmt.Sprintf("key%d", i), Identity: wire.Identity(fmt.Sprintf("web%d.example.net", i)), Attempt: wire.NewID(), At: f.Clock.Now().UTC(),
		}}}
		at, err := f.Daemon().Store().AppendClaims(f.Context(), f.TokenID(token), e, provisioner.AnyRevision)
		if err != nil {
			t.Fatal(err)
		}
		return &provisioner.JournaledClaims{Token: f.TokenID(token), At: at, Entry: e}
	}
	only, shared := f.Token(testbed.Limited(1)), f.Token(testbed.Limited(200))
	if err := j.AppendClaims(claimed(only, 0, &provisioner.TokenInfo{ID: f.TokenID(only), Uses: 1, FirstSeen: f.Clock.Now().UTC()})); err != nil {
		t.Fatal(err)
	}
	info := &provisioner.TokenInfo{ID: f.TokenID(shared), Uses: 200, FirstSeen: f.Clock.Now().UTC()}
	for i := range 100 {
		c := claimed(shared, i+1, info)
		info = nil // which the first one says
		if err := errors.Join(j.AppendClaims(c), ours.AppendClaims(c)); err != nil {
			t.Fatal(err)
		}
	}
	f.Stop()
	if err := errors.Join(os.RemoveAll(files), os.CopyFS(files, os.DirFS(old))); err != nil {
		t.Fatal(err)
	}
	f.Start()
	f.Restored()
	log := f.Daemon().Store()
	entries := func() (n int) {
		t.Helper()
		err := log.Claims(f.Context(), f.TokenID(only), 0, func(e *provisioner.ClaimEntry, _ provisioner.Revision) error { n += len(e.Claims); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for start := range 2 {
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j = open()
		second = true
		p := another(t, f, nil)
		second = false
		if start == 0 {
			f.Eventually("what only they have is appended again", func() bool { return entries() > 0 })
		}
		thief := f.Node("thief.example.net")
		thief.Token = only
		if code := codeAt(f, p, thief); code != wire.CodeTokenUsedUp {
			t.Errorf("the use that their journal has: %q", code)
		}
		if n := entries(); n != 1 {
			t.Errorf("%d claims of one use", n)
		}
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	f.Check()
}

// TestAPlaceOfTheJournalThatWasGivenTwice puts a store back whose end had been lost before,
// while its provisioner went on: what was claimed before and since is spent.
func TestAPlaceOfTheJournalThatWasGivenTwice(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	files, old := filepath.Join(f.Dir, "data", "broker"), filepath.Join(t.TempDir(), "broker")
	path := filepath.Join(f.Dir, "data", "revocations.journal")
	putBack := func() {
		t.Helper()
		if err := errors.Join(os.RemoveAll(files), os.CopyFS(files, os.DirFS(old))); err != nil {
			t.Fatal(err)
		}
	}
	text := func() string {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	f.Stop()
	if err := os.CopyFS(old, os.DirFS(files)); err != nil {
		t.Fatal(err)
	}
	before := text()
	tokens := []string{f.Token(testbed.Limited(1)), f.Token(testbed.Limited(1))}
	journaled := before
	for i, token := range tokens { // both at the first place
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		f.Start()
		n := f.Node(fmt.Sprintf("web%d.example.net", i))
		n.Token = token
		f.Apply(n, f.Enroll(n))
		f.Stop()
		journaled += strings.TrimPrefix(text(), before)
		putBack()
	}
	if n := strings.Count(journaled, `"at":1,`); n != 2 {
		t.Fatalf("%d claims at the first place", n)
	}
	if err := os.WriteFile(path, []byte(journaled), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second start finds what the first has appended
		f.Start()
		f.Restored()
		for i, token := range tokens {
			n := f.Node(fmt.Sprintf("thief%d.example.net", i))
			n.Token = token
			if code := f.Refused(n); code != wire.CodeTokenUsedUp {
				t.Errorf("the use of token %d, which the journal has: %q", i, code)
			}
		}
		last, err := f.Daemon().Store().LastClaims(f.Context())
		if err != nil || last != 2 {
			t.Errorf("%d claims in the store, want 2 (%v)", last, err)
		}
		f.Stop()
	}
	f.Start()
	f.Check()
}
