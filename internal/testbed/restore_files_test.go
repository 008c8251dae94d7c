package testbed_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/journal"
)

// retiredInJournalAlone is a retirement of a provisioner that ended before the store had it.
func retiredInJournalAlone(t *testing.T, f *testbed.Fleet, id wire.Identity, serial string, at time.Time) {
	t.Helper()
	j, err := journal.Open(journalOf(f))
	if err != nil {
		t.Fatal(err)
	}
	err = j.Append(&provisioner.Revocation{Schema: provisioner.RevocationSchema, ID: wire.NewID(), Kind: provisioner.RetiredNode, At: at, By: "another",
		Node: id, Certificates: []provisioner.RevokedCertificate{{Serial: serial, Issuer: "aa", NotAfter: at.Add(time.Hour)}}})
	if err = errors.Join(err, j.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestARestoreLiftsNoRevocation has a retirement in a journal alone, since its provisioner ended before the
// store had it, and a revocation of the node that came after it. A start would leave it out.
func TestARestoreLiftsNoRevocation(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	stolen := f.Node("stolen.example.net")
	enrolled := f.Enroll(stolen)
	f.Apply(stolen, enrolled)
	retired := f.Clock.Now()
	f.Clock.Advance(time.Minute)
	if err := f.Daemon().Operator().RevokeNode(f.Context(), wire.Identity(stolen.Identity), provisioner.Cause{By: "tester", Why: "stolen"}); err != nil {
		t.Fatal(err)
	}
	file := backUp(t, f)
	loseStore(t, f)
	for range 2 { // and is named once
		retiredInJournalAlone(t, f, wire.Identity(stolen.Identity), enrolled.Serial, retired)
	}
	out, err := restoring(f, file).Run(f.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(out.LeftOut, []string{stolen.Identity}) || out.Revocations != 0 {
		t.Errorf("left out %v, %d from the journal; want the retirement left out", out.LeftOut, out.Revocations)
	}
	f.Start()
	f.Restored()
	if code := f.Refused(f.Node(stolen.Identity)); code != wire.CodeIdentityRevoked {
		t.Errorf("the name of who was revoked: %q, want %s", code, wire.CodeIdentityRevoked)
	}
	f.Check()
}
