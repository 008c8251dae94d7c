package provisioner_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// brokenJournal is a journal whose disk can be taken away from it.
type brokenJournal struct {
	provisioner.Journal
	broken atomic.Bool
}

var errJournalDisk = errors.New("no space left on the journal's disk")

func (j *brokenJournal) AppendClaims(claims ...*provisioner.JournaledClaims) error {
	if j.broken.Load() {
		return errJournalDisk
	}
	return j.Journal.AppendClaims(claims...)
}

func (j *brokenJournal) AppendTakeover(t *provisioner.Takeover) error {
	if j.broken.Load() {
		return errJournalDisk
	}
	return j.Journal.AppendTakeover(t)
}

// TestAUseThatIsNotJournaledIsNone takes the journal's disk away: nobody gets a
// certificate that a restored store would not know to be paid for. Everybody
// else goes on, and all do once the disk is back, at no second use.
func TestAUseThatIsNotJournaledIsNone(t *testing.T) {
	t.Parallel()
	broken := &brokenJournal{}
	f := testbed.New(t, testbed.Options{Journal: func(j provisioner.Journal) provisioner.Journal { broken.Journal = j; return broken }})
	limited, other, open := f.Node("web1.example.net"), f.Node("web2.example.net"), f.Node("web3.example.net")
	limited.Token = f.Token(testbed.Limited(1))
	other.Token = limited.Token
	broken.broken.Store(true)
	for range 2 {
		if code := f.Refused(limited); code != wire.CodeStoreUnavailable {
			t.Errorf("without a journal: %q", code)
		}
	}
	f.Apply(open, f.Enroll(open))
	if _, err := f.Daemon().Operator().GrantNode(f.Context(), "web3.example.net", provisioner.GrantOrder{}, provisioner.Cause{By: "tester"}); err != nil {
		t.Fatal(err)
	}
	if code := f.Refused(f.Node("web3.example.net")); code != wire.CodeStoreUnavailable {
		t.Errorf("a name that changes hands without a journal: %q", code)
	}
	f.Apply(open, f.Enroll(open))
	broken.broken.Store(false)
	f.Apply(limited, f.Enroll(limited))
	if code := f.Refused(other); code != wire.CodeTokenUsedUp {
		t.Errorf("a second key: %q", code)
	}
	f.Check()
}

// TestAClaimThatCouldNotBeJournaledIsNoHole takes the journal's disk away for one claim, whose
// node never comes back: the next one, of another token, would come behind a hole, which
// a restore cannot tell from uses that somebody has had.
func TestAClaimThatCouldNotBeJournaledIsNoHole(t *testing.T) {
	t.Parallel()
	broken := &brokenJournal{}
	f := testbed.New(t, testbed.Options{Journal: func(j provisioner.Journal) provisioner.Journal { broken.Journal = j; return broken }})
	first, second := f.Node("web1.example.net"), f.Node("web2.example.net")
	first.Token, second.Token = f.Token(testbed.Limited(1)), f.Token(testbed.Limited(1))
	broken.broken.Store(true)
	if code := f.Refused(first); code != wire.CodeStoreUnavailable {
		t.Errorf("without a journal: %q", code)
	}
	broken.broken.Store(false)
	f.Apply(second, f.Enroll(second))
	f.Eventually("the journal has what the store has", func() bool {
		last, err := f.Daemon().Store().LastClaims(f.Context())
		through, ok := broken.ClaimsThrough()
		return err == nil && ok && last > 1 && through == last
	})
	f.Check()
}

// TestWhatOthersClaimIsJournaledOnceItIsMuch has another provisioner of the store
// claim uses of a token that this one never serves: each claim of our own beyond
// them would be remembered until the next start.
func TestWhatOthersClaimIsJournaledOnceItIsMuch(t *testing.T) {
	t.Parallel()
	var journal provisioner.Journal
	f := testbed.New(t, testbed.Options{Journal: func(j provisioner.Journal) provisioner.Journal { journal = j; return j }})
	log, others := f.Daemon().Store(), wire.NewID()
	var g errgroup.Group
	g.SetLimit(64)
	for i := range 5000 {
		g.Go(func() error {
			_, err := log.AppendClaims(f.Context(), jwt.TokenID(others), &provisioner.ClaimEntry{Schema: provisioner.ClaimSchema, Releases: []provisioner.TokenRelease{
				{Key: fmt.Sprint(i), Identity: web1, Attempt: wire.NewID(), At: f.Clock.Now()},
			}}, provisioner.AnyRevision)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	through := func() provisioner.Revision { at, _ := journal.ClaimsThrough(); return at }
	if at := through(); at > 0 {
		t.Fatalf("journaled up to %d already", at)
	}
	n := f.Node(web1)
	n.Token = f.Token(testbed.Limited(1))
	f.Apply(n, f.Enroll(n))
	f.Eventually("the journal has what the store has", func() bool {
		last, err := log.LastClaims(f.Context())
		return err == nil && last > 5000 && through() == last
	})
}

// stuck is a journal on a disk that does not answer.
type stuck struct {
	provisioner.Journal
	is   atomic.Bool
	hang atomic.Int64 // writes that are waited for
	free chan struct{}
}

func (j *stuck) Append(entries ...*provisioner.Revocation) error {
	if j.is.Load() {
		j.hang.Add(1)
		<-j.free
	}
	return j.Journal.Append(entries...)
}

// TestAStuckJournalIsWaitedForByNobody: another provisioner has revoked a node, and the
// disk of the journal here does not answer. Who asks is served all the while, and within
// their time.
func TestAStuckJournalIsWaitedForByNobody(t *testing.T) {
	t.Parallel()
	j := &stuck{free: make(chan struct{})}
	f := testbed.New(t, testbed.Options{Journal: func(real provisioner.Journal) provisioner.Journal { j.Journal = real; return j }})
	free := sync.OnceFunc(func() { close(j.free) })
	t.Cleanup(free)
	j.is.Store(true)
	if _, err := f.Daemon().Store().AppendRevocation(f.Context(), &provisioner.Revocation{
		Schema: provisioner.RevocationSchema, ID: wire.NewID(), Kind: provisioner.RevokedToken, At: f.Clock.Now().UTC().Truncate(time.Second),
		By: "ann", Token: jwt.TokenID(strings.Repeat("ab", 16)),
	}); err != nil {
		t.Fatal(err)
	}
	f.Eventually("the journal is written to", func() bool { return j.hang.Load() > 0 })
	n := f.Node(web1)
	for began := time.Now(); time.Since(began) < provisioner.MaxAge+time.Second; {
		answered := make(chan error, 1)
		go func() {
			_, err := patiently(f, f.Daemon().Operator(), n, provisioner.Source{})
			answered <- err
		}()
		select {
		case err := <-answered:
			if err != nil {
				t.Fatalf("a node that is let in is answered %v, %v after the disk is stuck", err, time.Since(began))
			}
		case <-time.After(90 * time.Second):
			t.Errorf("a request with a minute's time is not answered after a minute and a half; alarms: %+v", f.Daemon().Alarms())
			free()
			<-answered
		}
	}
}

// lateWriter is a journal whose disk is full for the first entry of the allow-list, and
// which does something else before it takes that one.
type lateWriter struct {
	provisioner.Journal
	full    atomic.Bool
	before  func()
	removed chan struct{} // has room for what is told of removals that are in the journal
}

func (j *lateWriter) AppendAllowance(a *provisioner.Allowance) error {
	if j.full.CompareAndSwap(true, false) {
		return errJournalDisk
	}
	if !a.Removed {
		j.before()
	}
	err := j.Journal.AppendAllowance(a)
	if a.Removed {
		j.removed <- struct{}{}
	}
	return err
}

// TestARemovalIsTheLastThatTheJournalHas has names that are no more allowed just while the
// journal gets that they were, which it did not take at first: who dies then finds the
// removal as the last word at the next start.
func TestARemovalIsTheLastThatTheJournalHas(t *testing.T) {
	t.Parallel()
	j := &lateWriter{removed: make(chan struct{}, 8)}
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Journal: func(real provisioner.Journal) provisioner.Journal { j.Journal = real; return j }})
	p := f.Daemon().Operator()
	gone := make(chan error, 1)
	j.before = func() {
		go func() { gone <- p.DisallowNames(f.Context(), "web*.example.net", operator) }()
		select {
		case <-j.removed:
			t.Error("the journal has the removal before what was removed")
		case <-time.After(time.Second): // it waits for us, as it is to; else it took milliseconds
		}
	}
	j.full.Store(true)
	if _, err := p.AllowNames(f.Context(), "web*.example.net", 0, 0, false, operator); err != nil {
		t.Fatal(err)
	}
	if err := <-gone; err != nil {
		t.Fatal(err)
	}
	if last := j.Allowances(); len(last) != 1 || !last[0].Removed {
		t.Errorf("the journal says last %+v", last)
	}
	f.Check()
}

// fullJournal is one whose disk takes no revocations either.
type fullJournal struct{ brokenJournal }

func (j *fullJournal) Append(entries ...*provisioner.Revocation) error {
	if j.broken.Load() {
		return errJournalDisk
	}
	return j.Journal.Append(entries...)
}

// TestARevocationThatIsNotJournaledIsToldOf revokes a node while the journal's disk is full: it is out
// all the same, an alarm says what a restore would forget, and ends once that is written.
func TestARevocationThatIsNotJournaledIsToldOf(t *testing.T) {
	t.Parallel()
	full := &fullJournal{}
	f := testbed.New(t, testbed.Options{Journal: func(j provisioner.Journal) provisioner.Journal { full.Journal = j; return full }})
	stolen := f.Node("stolen.example.net")
	f.Apply(stolen, f.Enroll(stolen))
	full.broken.Store(true)
	if err := f.Daemon().Operator().RevokeNode(f.Context(), "stolen.example.net", provisioner.Cause{By: "tester"}); err != nil {
		t.Fatal(err)
	}
	if code := f.Refused(stolen); code != wire.CodeIdentityRevoked {
		t.Errorf("revoked, and %q", code)
	}
	if cause := f.WaitAlarm(provisioner.AlarmJournalBehind); !strings.Contains(cause, errJournalDisk.Error()) {
		t.Errorf("alarm because of %q, want %q", cause, errJournalDisk)
	}
	full.broken.Store(false)
	f.WaitNoAlarm(provisioner.AlarmJournalBehind)
	f.Check()
}
