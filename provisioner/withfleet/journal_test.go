package provisioner_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/operate"
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
	if _, err := f.Daemon().Orders().Nodes.Grant(f.Context(), "web3.example.net", operate.GrantOrder{}, provisioner.Cause{By: "tester"}); err != nil {
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
