package provisioner

import (
	"context"
	"crypto/ed25519"
	"errors"
	"testing"
	"time"

	"muster/jwt"
)

// shownSigners is a log that shows entries, and whether they are on its disk.
type shownSigners struct {
	entries []*SignerEntry
	broken  error
}

func (l *shownSigners) NextSigner(_ context.Context, after Sequence) (*SignerEntry, Sequence, error) {
	if int(after) >= len(l.entries) {
		return nil, 0, nil
	}
	return l.entries[after], after + 1, nil
}

func (l *shownSigners) PutSigner(context.Context, *SignerEntry) (Sequence, error) {
	return 0, errors.New("not needed")
}

// signerEntry returns one that adds a signer with a key of its own.
func signerEntry(t *testing.T, name string) *SignerEntry {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := jwt.MarshalPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	e, err := (&NewSigner{Public: b, Name: name}).entry()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestSignersThatAreNotOnDisk has a store show two changes that it could not
// sync, and come back without them: the removal counts, the addition never does,
// and neither hides what is written to its place afterwards.
func TestSignersThatAreNotOnDisk(t *testing.T) {
	t.Parallel()
	old, lost, later := signerEntry(t, "old"), signerEntry(t, "lost"), signerEntry(t, "later")
	removal := &SignerEntry{Schema: old.Schema, ID: old.ID, Name: old.Name, Removed: true, By: "a", Why: "b", At: time.Now()}
	log := &shownSigners{entries: []*SignerEntry{old}}
	s, err := NewSigners(SignersConfig{Store: log, StoreBroken: func() error { return log.broken }})
	if err != nil {
		t.Fatal(err)
	}
	counts := func(when string, want map[*SignerEntry]bool) {
		t.Helper()
		if err := s.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := make(map[jwt.SignerID]bool)
		for _, i := range s.List() {
			got[i.ID] = !i.Removed
		}
		for e, counts := range want {
			if got[e.ID] != counts {
				t.Errorf("%s: whether %s counts is %v", when, e.Name, !counts)
			}
		}
	}
	counts("at first", map[*SignerEntry]bool{old: true})
	log.entries, log.broken = append(log.entries, removal, lost), errors.New("sync: input/output error")
	for range 2 {
		counts("while it is broken", map[*SignerEntry]bool{old: false, lost: false})
	}
	log.entries, log.broken = append(log.entries[:1:1], later), nil
	counts("after its restart", map[*SignerEntry]bool{old: false, lost: false, later: true})
}
