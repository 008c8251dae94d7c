package provisioner_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
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
