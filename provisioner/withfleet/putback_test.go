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
