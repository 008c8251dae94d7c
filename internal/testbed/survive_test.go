package testbed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/journal"
)

// aFullJournal is a journal whose disk is full while full says so.
type aFullJournal struct {
	provisioner.Journal
	full atomic.Bool
}

var errFull = errors.New("no space left on device")

func (j *aFullJournal) AppendSigner(e *provisioner.SignerEntry) error {
	if j.full.Load() {
		return errFull
	}
	return j.Journal.AppendSigner(e)
}

func (j *aFullJournal) AppendOperator(e *provisioner.OperatorEntry) error {
	if j.full.Load() {
		return errFull
	}
	return j.Journal.AppendOperator(e)
}

func (j *aFullJournal) AppendAllowance(a *provisioner.Allowance) error {
	if j.full.Load() {
		return errFull
	}
	return j.Journal.AppendAllowance(a)
}

// TestARemovalThatTheJournalDidNotTake fills the journal's disk for a moment: what was
// removed meanwhile is in it once there is room, and does not come back by a restore.
func TestARemovalThatTheJournalDidNotTake(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"the process lives": false, "another start": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := &aFullJournal{}
			f := testbed.New(t, testbed.Options{Journal: func(real provisioner.Journal) provisioner.Journal { j.Journal = real; return j }})
			o := &operators{t, f}
			o.add("anna", provisioner.RoleAdmin)
			allow(t, f, "web*.net", 0)
			signer, err := f.Daemon().Operator().AddSigner(f.Context(), provisioner.NewSigner{Name: "build", Public: o.key()}, testbed.Operator())
			if err != nil {
				t.Fatal(err)
			}
			file := backUp(t, f)
			j.full.Store(true)
			o.remove("anna")
			disallow(t, f, "web*.net")
			if _, err := f.Daemon().Operator().RemoveSigner(f.Context(), signer.ID, testbed.Operator()); err != nil {
				t.Fatal(err)
			}
			j.full.Store(false)
			if again {
				f.Stop()
				f.Start()
			}
			f.Eventually("the journal has them", func() bool {
				gone := 0
				for _, e := range j.Signers() {
					if e.ID == signer.ID && e.Removed {
						gone++
					}
				}
				for _, e := range j.Operators() {
					if e.Removed {
						gone++
					}
				}
				for _, a := range j.Allowances() {
					if a.Removed {
						gone++
					}
				}
				return gone == 3
			})
			loseStore(t, f)
			out, err := restoring(f, file).Run(f.Context())
			if err != nil {
				t.Fatal(err)
			}
			if out.Lost != "" {
				t.Errorf("lost: %s", out.Lost)
			}
			f.Start()
			if got := o.are(); len(got) > 0 {
				t.Errorf("operators %v", got)
			}
			if got := allowed(t, f); len(got) > 0 {
				t.Errorf("allowed %v", got)
			}
			list, err := f.Daemon().Operator().ListSigners(f.Context())
			if err != nil || !slices.ContainsFunc(list, func(s provisioner.SignerInfo) bool { return s.ID == signer.ID && s.Removed }) {
				t.Errorf("a removed signer is good again: %+v, %v", list, err)
			}
		})
	}
}

// aFullStore has no room for what operators order.
type aFullStore struct{ provisioner.Store }

func (aFullStore) PutSigner(context.Context, *provisioner.SignerEntry, provisioner.Revision) (provisioner.Revision, error) {
	return 0, provisioner.ErrStoreFull
}

func (aFullStore) PutOperator(context.Context, *provisioner.OperatorEntry, provisioner.Revision) (provisioner.Revision, error) {
	return 0, provisioner.ErrStoreFull
}

func (aFullStore) PutAllowance(context.Context, *provisioner.Allowance, provisioner.Revision) error {
	return provisioner.ErrStoreFull
}

// TestWhatIsNewAndHasNoRoomIsNotRestored adds a signer, an operator and an entry of the
// allow-list after a backup, while the store has no room: whoever asks is told so, and they are not in
// force after a restore. What was added when there was room is.
func TestWhatIsNewAndHasNoRoomIsNotRestored(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	o := &operators{t, f}
	add := func(p *provisioner.Provisioner, name string) (errs []error) {
		_, err := p.AddSigner(f.Context(), provisioner.NewSigner{Name: name, Public: o.key()}, testbed.Operator())
		errs = append(errs, err)
		_, err = p.AddOperator(f.Context(), provisioner.NewOperator{Name: name, Role: provisioner.RoleAdmin, Public: o.key()}, testbed.Operator())
		errs = append(errs, err)
		_, err = p.AllowNames(f.Context(), name+"*.example.net", 0, 0, false, testbed.Operator())
		return append(errs, err)
	}
	full := f.Provisioner(func(s provisioner.Store) provisioner.Store { return aFullStore{s} })
	file := backUp(t, f)
	for _, err := range add(full, "refused") {
		if !errors.Is(err, provisioner.ErrStoreFull) {
			t.Errorf("added without room: %v, want %v", err, provisioner.ErrStoreFull)
		}
	}
	if err := errors.Join(add(f.Daemon().Operator(), "taken")...); err != nil {
		t.Fatal(err)
	}
	loseStore(t, f)
	if out, err := restoring(f, file).Run(f.Context()); err != nil || out.Lost != "" {
		t.Fatalf("restore: %+v, %v", out, err)
	}
	f.Start()
	if got := fmt.Sprint(storedSigners(t, f), o.are(), allowed(t, f)); got != "[taken] map[taken:admin] [taken*.example.net]" {
		t.Errorf("in force after a restore: signers, operators, names %s", got)
	}
	f.Check()
}

// aStoreBackedUp calls backUp before each write that operators order.
type aStoreBackedUp struct {
	provisioner.Store
	backUp func()
}

func (s aStoreBackedUp) PutSigner(ctx context.Context, e *provisioner.SignerEntry, after provisioner.Revision) (provisioner.Revision, error) {
	s.backUp()
	return s.Store.PutSigner(ctx, e, after)
}

func (s aStoreBackedUp) PutOperator(ctx context.Context, e *provisioner.OperatorEntry, after provisioner.Revision) (provisioner.Revision, error) {
	s.backUp()
	return s.Store.PutOperator(ctx, e, after)
}

func (s aStoreBackedUp) PutAllowance(ctx context.Context, a *provisioner.Allowance, after provisioner.Revision) error {
	s.backUp()
	return s.Store.PutAllowance(ctx, a, after)
}

// TestWhatIsOrderedWhileABackupBeginsIsRestored has a backup made when an order is on its way into the
// store, and is not there yet. Whoever gave it is told that it is done, so it is in force after a restore.
func TestWhatIsOrderedWhileABackupBeginsIsRestored(t *testing.T) {
	t.Parallel()
	type order = func(context.Context, *provisioner.Provisioner) error
	type orders = []order
	const signer, operator, pattern = "other", "anna", "web*.example.net"
	key := (&operators{t: t}).key()
	addSigner := func(ctx context.Context, p *provisioner.Provisioner) error {
		_, err := p.AddSigner(ctx, provisioner.NewSigner{Name: signer, Public: key}, testbed.Operator())
		return err
	}
	removeSigner := func(ctx context.Context, p *provisioner.Provisioner) error {
		signers, err := p.ListSigners(ctx)
		for _, s := range signers {
			if s.Name == signer {
				_, err = p.RemoveSigner(ctx, s.ID, testbed.Operator())
			}
		}
		return err
	}
	addOperator := func(role provisioner.OperatorRole) order {
		return func(ctx context.Context, p *provisioner.Provisioner) error {
			_, err := p.AddOperator(ctx, provisioner.NewOperator{Name: operator, Role: role, Public: key}, testbed.Operator())
			return err
		}
	}
	removeOperator := func(ctx context.Context, p *provisioner.Provisioner) error {
		return p.RemoveOperator(ctx, operator, testbed.Operator())
	}
	allow := func(ctx context.Context, p *provisioner.Provisioner) error {
		_, err := p.AllowNames(ctx, pattern, 0, 0, false, testbed.Operator())
		return err
	}
	disallow := func(ctx context.Context, p *provisioner.Provisioner) error {
		return p.DisallowNames(ctx, pattern, testbed.Operator())
	}
	viewer, admin := addOperator(provisioner.RoleViewer), addOperator(provisioner.RoleAdmin)
	for name, tt := range map[string]struct {
		before orders
		order  order
		want   string // signers, operators, names
	}{
		"a signer is new":            {nil, addSigner, "[other] map[] []"},
		"a signer is removed":        {orders{addSigner}, removeSigner, "[] map[] []"},
		"a signer is added again":    {orders{addSigner, removeSigner}, addSigner, "[other] map[] []"},
		"an operator is new":         {nil, viewer, "[] map[anna:viewer] []"},
		"an operator is changed":     {orders{viewer}, admin, "[] map[anna:admin] []"},
		"an operator is added again": {orders{viewer, removeOperator}, viewer, "[] map[anna:viewer] []"},
		"a name is new":              {nil, allow, "[] map[] [web*.example.net]"},
		"a name is allowed again":    {orders{allow, disallow}, allow, "[] map[] [web*.example.net]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{DefaultPolicy: true})
			for _, order := range tt.before {
				if err := order(f.Context(), f.Daemon().Operator()); err != nil {
					t.Fatal(err)
				}
			}
			file := ""
			if err := tt.order(f.Context(), f.Provisioner(func(s provisioner.Store) provisioner.Store {
				return aStoreBackedUp{s, func() { file = backUp(t, f) }}
			})); err != nil {
				t.Fatal(err)
			}
			loseStore(t, f)
			if out, err := restoring(f, file).Run(f.Context()); err != nil || out.Lost != "" {
				t.Fatalf("restore: %+v, %v", out, err)
			}
			f.Start()
			if got := fmt.Sprint(storedSigners(t, f), (&operators{t, f}).are(), allowed(t, f)); got != tt.want {
				t.Errorf("in force after a restore: signers, operators, names %s, want %s", got, tt.want)
			}
			f.Check()
		})
	}
}

// storedSigners returns the names of the signers of the store that count.
func storedSigners(t *testing.T, f *testbed.Fleet) (names []string) {
	t.Helper()
	signers, err := f.Daemon().Operator().ListSigners(f.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range signers {
		if s.Source == provisioner.SignerOfStore && !s.Removed {
			names = append(names, s.Name)
		}
	}
	return names
}

// TestARestoreByAClockThatIsBehindFreezesAll restores with losses on a machine whose clock
// is not set: tokens that were signed until the backup are frozen all the same.
func TestARestoreByAClockThatIsBehindFreezesAll(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	_, nodes := limitedNodes(t, f, 1, 2)
	file := backUp(t, f)
	f.Apply(nodes[0], f.Enroll(nodes[0]))
	loseStore(t, f)
	if err := os.Remove(journalOf(f)); err != nil {
		t.Fatal(err)
	}
	r := restoring(f, file)
	r.AcceptLostSince = time.Unix(1, 0)
	r.Now = func() time.Time { return f.Clock.Now().Add(-365 * 24 * time.Hour) } // a machine that is new, before its clock is set
	if _, err := r.Run(f.Context()); err != nil {
		t.Fatal(err)
	}
	f.Start()
	if code := f.Refused(nodes[1]); code != wire.CodeTokenFrozen {
		t.Errorf("the only use of a token is given out a second time: %q", code)
	}
}

// TestAJournalThatWasAwayForAStartIsNotAll starts once without the journal's disk: what was
// done then is in another journal, and a backup from before is not complete with this one.
func TestAJournalThatWasAwayForAStartIsNotAll(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	o := &operators{t, f}
	o.add("anna", provisioner.RoleAdmin)
	nodes := f.Nodes(1)
	f.Apply(nodes[0], f.Enroll(nodes[0]))
	file := backUp(t, f)
	f.Stop()
	away := journalOf(f) + ".away" // its disk is not mounted yet
	if err := os.Rename(journalOf(f), away); err != nil {
		t.Fatal(err)
	}
	f.Start()
	o.remove("anna")
	op := f.Daemon().Operator()
	if _, err := op.GrantNode(f.Context(), wire.Identity(nodes[0].Identity), provisioner.GrantOrder{}, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	other := f.Node(nodes[0].Identity)
	f.Apply(other, f.Enroll(other))
	f.Stop()
	if err := os.Rename(away, journalOf(f)); err != nil {
		t.Fatal(err)
	}
	f.Start()
	f.Stop()
	loseStore(t, f)
	out, err := restoring(f, file).Run(f.Context())
	if err != nil {
		if !strings.Contains(err.Error(), "--accept-lost-since") {
			t.Errorf("restored: %v, want that it is not complete", err)
		}
		return
	}
	f.Start()
	t.Errorf("restored as complete (lost: %q); operators %v; first owner of the name: %q", out.Lost, o.are(), f.Refused(nodes[0]))
}

// TestASignerRemovedInAnotherJournalStaysRemoved restores with the journal of another
// provisioner, in which a signer was removed that ours has added.
func TestASignerRemovedInAnotherJournalStaysRemoved(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	o := &operators{t, f}
	file := backUp(t, f)
	signer, err := f.Daemon().Operator().AddSigner(f.Context(), provisioner.NewSigner{Name: "build", Public: o.key()}, testbed.Operator())
	if err != nil {
		t.Fatal(err)
	}
	f.Stop()
	// Another provisioner removes it, whose journal does not know of the backup.
	path := filepath.Join(t.TempDir(), "journal")
	j, err := journal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	at := f.Clock.Now().Add(time.Minute).UTC().Truncate(time.Second)
	gone := &provisioner.SignerEntry{Schema: provisioner.SignerSchema, ID: signer.ID, Name: "build", At: at, Removed: true, By: "tester"}
	if err := errors.Join(j.Own(journal.Joined{Provisioner: "second.fleet.test", Journal: "j", At: at}), j.AppendSigner(gone), j.Close()); err != nil {
		t.Fatal(err)
	}
	loseStore(t, f)
	r := restoring(f, file)
	r.Journals, r.AcceptLostSince = []string{path}, time.Unix(1, 0)
	if _, err := r.Run(f.Context()); err != nil {
		t.Fatal(err)
	}
	f.Start()
	list, err := f.Daemon().Operator().ListSigners(f.Context())
	if err != nil || !slices.ContainsFunc(list, func(s provisioner.SignerInfo) bool { return s.ID == signer.ID && s.Removed }) {
		t.Errorf("a removed signer is good again: %+v, %v", list, err)
	}
}

// TestABackupWithoutAJournalInItsPlace takes the journal's file away: a backup that could
// never be restored as complete is not made.
func TestABackupWithoutAJournalInItsPlace(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	if err := os.Remove(journalOf(f)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	_, write, err := f.Daemon().Backup(f.Context(), "tester")
	if err == nil {
		err = write(&b)
	}
	if err == nil || !strings.Contains(err.Error(), "removed or replaced") {
		t.Errorf("a backup that cannot be restored as complete: %v", err)
	}
}

// TestANameThatWasRetiredAfterItChangedHandsIsFree restores a backup in which the name is
// the first machine's: it was given to another one since, and then retired.
func TestANameThatWasRetiredAfterItChangedHandsIsFree(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	file := backUp(t, f)
	op := f.Daemon().Operator()
	if _, err := op.GrantNode(f.Context(), "web1.example.net", provisioner.GrantOrder{}, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	other := f.Node("web1.example.net")
	f.Apply(other, f.Enroll(other))
	if err := op.RetireNode(f.Context(), "web1.example.net", testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	loseStore(t, f)
	out, err := restoring(f, file).Run(f.Context())
	if err != nil || out.Takeovers != 0 {
		t.Errorf("%+v, %v, want no name that changed hands", out, err)
	}
	f.Start()
	f.Restored()
	f.Eventually("retired on record", func() bool { return f.Record(n.Identity).State == provisioner.StateRetired })
	third := f.Node("web1.example.net")
	f.Apply(third, f.Enroll(third))
	f.Check()
}

// TestClaimsBeyondAGapAreNotForgotten loses the store of a provisioner that was killed
// when it had journaled a claim and not yet the one before, and puts older files of it
// back. What is claimed after that is journaled as well.
func TestClaimsBeyondAGapAreNotForgotten(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ older, lacks int }{
		"the copy ends where the journal has all": {1, 2}, "the copy is older": {0, 2}, "the copy has what the journal lacks": {2, 2}, "the copy has nothing": {0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{})
			node := func(name, token string) *simnode.Node {
				n := f.Node(name)
				n.Token = token
				return n
			}
			tokens := []string{f.Token(testbed.Limited(1)), f.Token(testbed.Limited(1)), f.Token(testbed.Limited(1)), f.Token(testbed.Limited(1))}
			files, old := filepath.Join(f.Dir, "data", "broker"), filepath.Join(t.TempDir(), "broker")
			for i, token := range tokens[:3] {
				if i == tt.older {
					f.Stop()
					if err := os.CopyFS(old, os.DirFS(files)); err != nil {
						t.Fatal(err)
					}
					f.Start()
				}
				n := node(fmt.Sprintf("web%d.example.net", i), token)
				f.Apply(n, f.Enroll(n))
			}
			f.Stop()
			text, err := os.ReadFile(journalOf(f))
			if err != nil {
				t.Fatal(err)
			}
			kept := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(line string) bool {
				return strings.HasPrefix(line, `{"claims"`) && strings.Contains(line, fmt.Sprintf(`"at":%d,`, tt.lacks))
			})
			err = errors.Join(os.WriteFile(journalOf(f), []byte(strings.Join(kept, "")), 0o600), os.RemoveAll(files), os.CopyFS(files, os.DirFS(old)))
			if err != nil {
				t.Fatal(err)
			}
			f.Start()
			f.Restored()
			if code := f.Refused(node("thief.example.net", tokens[2])); code != wire.CodeTokenUsedUp {
				t.Errorf("a use that the journal has: %q", code)
			}
			file := backUp(t, f)
			n := node("web3.example.net", tokens[3])
			f.Apply(n, f.Enroll(n))
			restore(t, f, file, time.Time{})
			if code := f.Refused(node("thief.example.net", tokens[3])); code != wire.CodeTokenUsedUp {
				t.Errorf("a use of after the backup: %q", code)
			}
			f.Check()
		})
	}
}

// TestAJournalThatWasCopiedIntoItsPlaceIsRestoredFrom gives a copy of the journal its name while
// the provisioner runs, as an editor or rsync does: what is spent and revoked from then on
// is so after a restore.
func TestAJournalThatWasCopiedIntoItsPlaceIsRestoredFrom(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	_, nodes := limitedNodes(t, f, 1, 2)
	gone := f.Node("web1.example.net")
	f.Apply(gone, f.Enroll(gone))
	file := backUp(t, f)
	b, err := os.ReadFile(journalOf(f))
	if err == nil {
		err = errors.Join(os.WriteFile(journalOf(f)+".new", b, 0o600), os.Rename(journalOf(f)+".new", journalOf(f)))
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Apply(nodes[0], f.Enroll(nodes[0]))
	if err := f.Daemon().Operator().RevokeNode(f.Context(), wire.Identity(gone.Identity), testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	restore(t, f, file, time.Time{})
	if code := f.Refused(nodes[1]); code != wire.CodeTokenUsedUp {
		t.Errorf("a second node of a token of one use: %q", code)
	}
	if code := f.Refused(gone); code != wire.CodeIdentityRevoked {
		t.Errorf("a revoked node: %q", code)
	}
	f.Check()
}
