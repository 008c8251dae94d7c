package testbed_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/testdisk"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/backup"
	"muster/provisioner/journal"
)

// TestARestoreOntoAnotherDisk has the broker's directory be on a file system of its
// own, as what is to be fast and large may be.
func TestARestoreOntoAnotherDisk(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("a.example.net")
	f.Apply(n, f.Enroll(n))
	file := backUp(t, f)
	loseStore(t, f)
	disk, err := os.MkdirTemp("/dev/shm", "muster-disk-")
	if err != nil {
		t.Skipf("no file system in memory: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(disk) })
	if err := os.Symlink(disk, filepath.Join(f.Dir, "data", "broker")); err != nil {
		t.Fatal(err)
	}
	r := restoring(f, file)
	r.Journals = []string{journalOf(f)} // named once more, which says nothing new
	if _, err := r.Run(f.Context()); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(disk)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "restoring" {
			t.Error("the place where the store was filled is left behind")
		}
	}
	f.Start()
	if f.Record(n.Identity) == nil {
		t.Error("the record is not there")
	}
	f.Check()
}

// TestARestoreThatFindsNoRoom restores to a disk that is nearly full: nothing is left
// of it, and it is done once there is room.
func TestARestoreThatFindsNoRoom(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	disk := testdisk.New(t, 256<<20)
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 0), Quiet: true})
	nodes := f.Nodes(300)
	for _, n := range nodes {
		f.Apply(n, f.Enroll(n))
	}
	file := backUp(t, f)
	loseStore(t, f)
	if err := os.Symlink(disk.Dir, filepath.Join(f.Dir, "data", "broker")); err != nil {
		t.Fatal(err)
	}
	for when, step := range map[string]string{"before it": "", "in the middle": "streams made"} {
		r := restoring(f, file)
		if step == "" {
			disk.Fill(1 << 20)
		}
		r.Reached = func(reached string) {
			if reached == step {
				disk.Fill(256 << 10)
			}
		}
		_, err := r.Run(f.Context())
		t.Logf("%s: %v", when, err)
		if err == nil || !strings.Contains(err.Error(), ": the disk has ") {
			t.Errorf("a disk that is full %s: %v", when, err)
		}
		disk.Free()
		if entries, err := os.ReadDir(disk.Dir); err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != "lost+found" && e.Name() != "broker.lock" }) {
			t.Errorf("a disk that is full %s: left are %v, %v", when, entries, err)
		}
	}
	if _, err := restoring(f, file).Run(f.Context()); err != nil {
		t.Fatal(err)
	}
	f.Start()
	f.Check()
}

// TestARestoreBelongsToWhoServes has root restore on a machine that has only the
// configuration yet, which is another user's: so is what is restored.
func TestARestoreBelongsToWhoServes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to others")
	}
	t.Parallel()
	const uid, gid = 12345, 12346
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	file := backUp(t, f)
	f.Stop()
	data := filepath.Join(f.Dir, "data")
	if err := errors.Join(os.RemoveAll(data), os.Chown(f.Dir, uid, gid)); err != nil {
		t.Fatal(err)
	}
	r := restoring(f, file)
	r.AcceptLostSince = f.Clock.Now().Add(-time.Hour)
	if _, err := r.Run(f.Context()); err != nil {
		t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir(data, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if stat := info.Sys().(*syscall.Stat_t); stat.Uid != uid || stat.Gid != gid {
			t.Errorf("%s belongs to %d:%d, want %d:%d", path, stat.Uid, stat.Gid, uid, gid)
		}
		files++
		return nil
	})
	if err != nil || files < 10 {
		t.Errorf("%d files, %v", files, err)
	}
}

// TestWhatIsNoFileIsNotDamaged gives a restore what cannot be read as a file: it
// says so, and does not call a backup damaged that is not.
func TestWhatIsNoFileIsNotDamaged(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	loseStore(t, f)
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, pipe} {
		_, err := restoring(f, path).Run(f.Context())
		if err == nil || errors.Is(err, backup.ErrDamaged) || !strings.Contains(err.Error(), "is no regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestACheckOfABackupEnds has somebody think better of a restore while the backup is read: it
// ends there, and does not call the backup damaged.
func TestACheckOfABackupEnds(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	file := backUp(t, f)
	loseStore(t, f)
	ctx, cancel := context.WithCancel(f.Context())
	r := restoring(f, file)
	r.Step = func(string, int) { cancel() }
	reached := ""
	r.Reached = func(step string) { reached = step }
	if _, err := r.Run(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, backup.ErrDamaged) || reached != "" {
		t.Errorf("it has gone on to %q, and ends with %v", reached, err)
	}
}

// TestAJournalThatIsNotThereIsNamed has a restore say which journal is missing.
func TestAJournalThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	file := backUp(t, f)
	loseStore(t, f)
	if err := os.Remove(journalOf(f)); err != nil {
		t.Fatal(err)
	}
	_, err := restoring(f, file).Run(f.Context())
	if err == nil || !strings.Contains(err.Error(), journalOf(f)+" is not there") {
		t.Errorf("without a journal: %v", err)
	}
}

// TestANameThatChangedHandsTwiceBeforeTheBackup is whose it was last: the line about
// who had it in between says nothing against that.
func TestANameThatChangedHandsTwiceBeforeTheBackup(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	first := f.Node("a.example.net")
	f.Apply(first, f.Enroll(first))
	last := first
	for range 2 {
		last = f.Node(first.Identity)
		if _, err := f.Daemon().Operator().GrantNode(f.Context(), wire.Identity(first.Identity), provisioner.GrantOrder{}, provisioner.Cause{By: "tester"}); err != nil {
			t.Fatal(err)
		}
		f.Apply(last, f.Enroll(last))
		f.Clock.Advance(2 * time.Second)
	}
	file := backUp(t, f)
	serial := f.Record(first.Identity).Current.Serial
	restore(t, f, file, time.Time{})
	if got := f.Enroll(last).Serial; got != serial {
		t.Errorf("certificate %s, want %s", got, serial)
	}
	f.Check()
}

// TestACopyOfTheJournalLooksComplete puts a copy of the journal in place that was made before a
// use of a limited token: the restore says up to when it goes, and whoever knows that it went on has tokens frozen,
// with the time of the copy or one from before the backup.
func TestACopyOfTheJournalLooksComplete(t *testing.T) {
	t.Parallel()
	for what, ago := range map[string]time.Duration{"before the backup": time.Minute, "of the copy": -time.Minute} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			copyLooksComplete(t, ago)
		})
	}
}

// copyLooksComplete restores with a copy of the journal that is said to lack what was since so
// long before the backup.
func copyLooksComplete(t *testing.T, ago time.Duration) {
	t.Helper()
	f := testbed.New(t, testbed.Options{})
	_, nodes := limitedNodes(t, f, 1, 2)
	began := f.Clock.Now()
	file := backUp(t, f)
	copied, err := os.ReadFile(journalOf(f))
	if err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(time.Hour)
	used := f.Clock.Now()
	f.Apply(nodes[0], f.Enroll(nodes[0]))
	loseStore(t, f)
	if err := os.WriteFile(journalOf(f), copied, 0o600); err != nil {
		t.Fatal(err)
	}
	r := restoring(f, file)
	r.AcceptLostSince = began.Add(-ago)
	out, err := r.Run(f.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Journals) != 1 || out.Journals[0].File != journalOf(f) || out.Journals[0].At.Before(began.Truncate(time.Second)) || !out.Journals[0].At.Before(used) {
		t.Errorf("journals %+v, want one that goes up to between %v and %v", out.Journals, began, used)
	}
	if out.Lost == "" {
		t.Error("nothing is lost, whatever the operator says")
	}
	f.Start()
	f.Restored()
	if code := f.Refused(nodes[1]); code != wire.CodeTokenFrozen {
		t.Errorf("the second use of one: %q, want %s", code, wire.CodeTokenFrozen)
	}
	lost := out.StartedAt // what the backup has is not
	if ago < 0 {
		lost = r.AcceptLostSince
	}
	if since := "by which uses were lost since " + lost.UTC().Format("2006-01-02T15:04"); !strings.Contains(f.Log(), since) {
		t.Errorf("the log does not say %q", since)
	}
}

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

// TestARestorePutsNobodyOut has a retirement in a journal alone, of a name that another machine
// has got since. A start would leave it out.
func TestARestorePutsNobodyOut(t *testing.T) {
	t.Parallel()
	const handed wire.Identity = "handed.example.net"
	for what, give := range map[string]func(f *testbed.Fleet) error{
		"retired and enrolled": func(f *testbed.Fleet) error {
			return f.Daemon().Operator().RetireNode(f.Context(), handed, provisioner.Cause{By: "tester", Why: "reinstalled"})
		},
		"granted": func(f *testbed.Fleet) error {
			_, err := f.Daemon().Operator().GrantNode(f.Context(), handed, provisioner.GrantOrder{}, provisioner.Cause{By: "tester"})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{})
			before := f.Node(string(handed))
			enrolled := f.Enroll(before)
			f.Apply(before, enrolled)
			retired := f.Clock.Now()
			f.Clock.Advance(time.Minute)
			if err := give(f); err != nil {
				t.Fatal(err)
			}
			holder := f.Node(string(handed))
			f.Apply(holder, f.Enroll(holder))
			serial := f.Record(string(handed)).Current.Serial
			f.Clock.Advance(time.Hour)
			file := backUp(t, f)
			loseStore(t, f)
			retiredInJournalAlone(t, f, handed, enrolled.Serial, retired)
			out, err := restoring(f, file).Run(f.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(out.LeftOut, []string{string(handed)}) || out.Revocations != 0 {
				t.Errorf("left out %v, %d from the journal; want the retirement left out", out.LeftOut, out.Revocations)
			}
			f.Start()
			f.Restored()
			if r := f.Record(string(handed)); r.State != provisioner.StateProvisioned {
				t.Errorf("who has the name is %s", r.State)
			}
			if got := f.Enroll(holder).Serial; got != serial {
				t.Errorf("certificate %s, want %s", got, serial)
			}
			f.Check()
		})
	}
}
