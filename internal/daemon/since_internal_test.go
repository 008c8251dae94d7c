package daemon

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/backup"
	"muster/provisioner/journal"
)

// TestWhichEntryCounts holds entries of journals about operators and the allow-list
// to what a backup has.
func TestWhichEntryCounts(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	entry := func(seconds int, removed bool) change {
		return change{at: at.Add(time.Duration(seconds) * time.Second), removed: removed}
	}
	added, removed := entry(0, false), entry(0, true)
	for _, tt := range []struct {
		restored change
		line     change
		marked   bool // counts if it is known to come after the backup
		unmarked bool // counts if it may be older
	}{
		{change{}, entry(1, false), true, false},
		{change{}, entry(1, true), true, true},
		{added, entry(-1, false), false, false},
		{added, entry(0, false), false, false}, // itself
		{added, entry(1, false), true, true},   // another role, another key
		{added, entry(-1, true), false, false},
		{added, entry(0, true), true, true},
		{added, entry(1, true), true, true},
		{removed, entry(0, false), false, false},
		{removed, entry(0, true), false, false}, // itself
		{removed, entry(1, false), true, false},
		{removed, entry(1, true), true, true},
	} {
		for after, want := range map[bool]bool{true: tt.marked, false: tt.unmarked} {
			line := tt.line
			line.after = after
			if got := line.counts(tt.restored); got != want {
				t.Errorf("%+v, after the backup: %v: counts after %+v: %v, want %v", tt.line, after, tt.restored, got, want)
			}
		}
	}
	lines := []change{removed, entry(1, false), added}
	slices.SortStableFunc(lines, change.compare)
	if lines[0].removed || !lines[1].removed || lines[2].at.Equal(at) {
		t.Errorf("in the order %+v, want the removal as the last of its second", lines)
	}
}

// TestRevocationsOfSeveralJournals come in the order in which they were said, each
// journal's own order whatever its clock did.
func TestRevocationsOfSeveralJournals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	entry := func(id string, kind provisioner.RevocationKind, minutes int) *provisioner.Revocation {
		return &provisioner.Revocation{Schema: provisioner.RevocationSchema, ID: id, Kind: kind, At: at.Add(time.Duration(minutes) * time.Minute), By: "me", Node: "web1.example.net"}
	}
	s := &since{info: &BackupInfo{Header: backup.Header{Installation: "i"}}}
	for name, entries := range map[string][]*provisioner.Revocation{
		"1": {entry("retired first", provisioner.RetiredNode, 1), entry("retired by a clock ahead", provisioner.RetiredNode, 60), entry("revoked when it was right", provisioner.RevokedNode, 4)},
		"2": {entry("revoked second", provisioner.RevokedNode, 2)},
	} {
		j, err := journal.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Append(entries...); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.read(&file{path: name, journal: j}), j.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.order(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range s.revocations {
		got = append(got, e.ID)
	}
	if want := []string{"retired first", "revoked second", "retired by a clock ahead", "revoked when it was right"}; !slices.Equal(got, want) {
		t.Errorf("in the order %q, want %q", got, want)
	}
}

// TestARestoreMakesTheDirectoryOfData restores into a cluster from a machine that is new.
func TestARestoreMakesTheDirectoryOfData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := DefaultConfig()
	cfg.DataDir, cfg.Revocations.Journal = filepath.Join(dir, "data"), filepath.Join(dir, "other", "journal")
	if err := os.Mkdir(filepath.Join(dir, "other"), 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := (&Restore{}).readJournals(cfg, &BackupInfo{})
	defer s.close()
	if err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(cfg.DataDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("data_dir: %v, %v", info, err)
	}
	if err := s.made.remove(); err != nil { // as a restore does that fails
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	if _, err := os.Stat(cfg.DataDir); err == nil {
		t.Error("data_dir is left")
	}
}

// journaled returns what journals with these lines say that came after a backup.
func journaled(t *testing.T, info *BackupInfo, journals ...[]journal.Line) *since {
	t.Helper()
	s := &since{info: info}
	for _, lines := range journals {
		var text []byte
		for _, l := range lines {
			b, err := json.Marshal(&l)
			if err != nil {
				t.Fatal(err)
			}
			text = append(append(text, b...), '\n')
		}
		path := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := journal.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.read(&file{path: path, journal: j, listed: true}), j.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestWhatAStoreHasRefusedIsNotRestored has a journal with changes that its provisioner was
// refused, since another one was first, whose clock was behind: what that one has said
// comes in force with the backup, and a removal whatever follows it.
func TestWhatAStoreHasRefusedIsNotRestored(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	id, err := jwt.Fingerprint(public)
	if err != nil {
		t.Fatal(err)
	}
	role := func(seconds int, role provisioner.OperatorRole) journal.Line {
		return journal.Line{Operator: &provisioner.OperatorEntry{Schema: provisioner.OperatorSchema, Name: "anna", Key: key, Role: role, By: "ben", At: at(seconds)}}
	}
	signer := func(seconds int, sites ...jwt.Site) journal.Line {
		return journal.Line{Signer: &provisioner.SignerEntry{Schema: provisioner.SignerSchema, ID: id, Key: key, Name: "racks", Sites: sites, By: "ben", At: at(seconds)}}
	}
	gone := func(l journal.Line) journal.Line {
		if l.Signer != nil {
			l.Signer.Removed = true
		} else {
			l.Operator.Removed = true
		}
		return l
	}
	begun := journal.Line{Backup: &journal.Backup{ID: "b", At: noon}}
	viewer, admin, operator := provisioner.RoleViewer, provisioner.RoleAdmin, provisioner.RoleOperator
	info := &BackupInfo{Header: backup.Header{ID: "b", StartedAt: noon}}
	for name, tt := range map[string]struct {
		ours, theirs []journal.Line
		want         string
	}{
		"refused": {
			ours:   []journal.Line{begun, role(60, admin), role(5, viewer)},
			theirs: []journal.Line{begun, role(5, viewer)}, want: "viewer",
		},
		"and changed once more, of which ours has not heard": {
			ours:   []journal.Line{begun, role(60, admin), role(5, viewer)},
			theirs: []journal.Line{begun, role(5, viewer), role(9, operator)}, want: "operator",
		},
		"refused twice": {ours: []journal.Line{begun, role(60, admin), role(61, admin), role(5, viewer)}, want: "viewer"},
		"removed since": {ours: []journal.Line{begun, role(60, admin), gone(role(5, admin))}, want: "removed"},
		"a removal is older than what comes behind it": {ours: []journal.Line{begun, gone(role(60, admin)), role(5, admin)}, want: "removed"},
		"the same line twice":                          {ours: []journal.Line{begun, role(5, viewer), role(5, viewer)}, want: "viewer"},
		"nobody refused":                               {ours: []journal.Line{begun, role(5, viewer), role(6, admin)}, want: "admin"},
		"a signer, removed since":                      {ours: []journal.Line{begun, signer(60), gone(signer(5))}, want: "removed"},
		"a signer, with fewer sites":                   {ours: []journal.Line{begun, signer(60), signer(5, "ams1")}, want: "[ams1]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := journaled(t, info, tt.ours, tt.theirs)
			if err := s.order(); err != nil {
				t.Fatal(err)
			}
			got := "nothing"
			var last change
			if _, err := applyLines(s.operators, func(*provisioner.OperatorEntry) change { return last }, func(e *provisioner.OperatorEntry) error {
				if got, last = string(e.Role), (change{at: e.At, removed: e.Removed}); e.Removed {
					got = "removed"
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := applyLines(s.signers, func(*provisioner.SignerEntry) change { return last }, func(e *provisioner.SignerEntry) error {
				if got, last = fmt.Sprint(e.Sites), (change{at: e.At, removed: e.Removed}); e.Removed {
					got = "removed"
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("restored as %s, want %s", got, tt.want)
			}
		})
	}
}

// TestAClockThatWasAheadOnceIsNotRestored has a journal with an entry of a time to come,
// from before the backup: the restored store's clock is not that, or all clocks would be
// behind it. What comes after the backup counts.
func TestAClockThatWasAheadOnceIsNotRestored(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	revoked := func(at time.Time) journal.Line {
		return journal.Line{Revocation: &provisioner.Revocation{Schema: provisioner.RevocationSchema, ID: at.String(), Kind: provisioner.RevokedNode, At: at, By: "me", Node: "web1.example.net"}}
	}
	begun := journal.Line{Backup: &journal.Backup{ID: "b", At: noon}}
	info := &BackupInfo{Header: backup.Header{ID: "b", StartedAt: noon}}
	years := noon.AddDate(10, 0, 0)
	for name, tt := range map[string]struct {
		lines []journal.Line
		want  time.Time
	}{
		"before the backup":     {[]journal.Line{revoked(years), begun, revoked(noon.Add(time.Hour))}, noon.Add(time.Hour)},
		"after it":              {[]journal.Line{begun, revoked(years)}, years},
		"of an unknown journal": {[]journal.Line{revoked(years)}, years},
	} {
		s := journaled(t, info, tt.lines)
		if !s.newest.Equal(tt.want) {
			t.Errorf("%s: the newest time is %s, want %s", name, s.newest, tt.want)
		}
		if len(s.revocations) == 0 {
			t.Errorf("%s: the revocation is lost", name)
		}
	}
}

// TestClaimsOfSeveralJournalsCountOnce has two provisioners with the same claims in their
// journals: each is restored once, in its order, and none that another journal has at the
// same place is passed over.
func TestClaimsOfSeveralJournalsCountOnce(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	line := func(at provisioner.Revision, e provisioner.ClaimEntry) journal.Line {
		e.Schema = provisioner.ClaimSchema
		return journal.Line{Claims: &provisioner.JournaledClaims{Token: "00112233445566778899aabbccddeeff", At: at, Entry: &e}}
	}
	claim := func(at provisioner.Revision, attempt string) journal.Line {
		return line(at, provisioner.ClaimEntry{Claims: []provisioner.TokenClaim{{Key: "k", Identity: "web1.example.net", Attempt: attempt, At: noon}}})
	}
	release := func(at provisioner.Revision) journal.Line {
		return line(at, provisioner.ClaimEntry{Releases: []provisioner.TokenRelease{{Key: "k", Identity: "web1.example.net", All: true, At: noon, By: "ben"}}})
	}
	begun := journal.Line{Backup: &journal.Backup{ID: "b", At: noon}}
	lost := journal.Line{From: &journal.From{Installation: "i", Claims: 0, At: noon, Lost: true}}
	for name, tt := range map[string]struct {
		ours, theirs []journal.Line
		want         []string // attempts, "" for the release
		complete     bool
	}{
		"one store": {
			[]journal.Line{begun, claim(1, "a"), release(2), claim(3, "b")}, []journal.Line{begun, claim(1, "a"), release(2)}, []string{"a", "", "b"}, true,
		},
		"a store that was put back": {
			[]journal.Line{begun, claim(1, "a"), claim(2, "mine")}, []journal.Line{begun, claim(1, "a"), claim(2, "theirs")}, []string{"a", "mine", "theirs"}, true,
		},
		"a place that nobody has": {
			[]journal.Line{begun, claim(1, "a"), claim(4, "d")}, []journal.Line{begun, claim(2, "b")}, []string{"a", "b", "d"}, false,
		},
		"after another restore of the same backup": {
			[]journal.Line{begun, claim(1, "a"), release(2), claim(3, "b"), lost}, []journal.Line{begun, claim(1, "a"), release(2), lost}, []string{"a", "", "b"}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := journaled(t, &BackupInfo{Header: backup.Header{ID: "b", Installation: "i", StartedAt: noon}}, tt.ours, tt.theirs)
			if err := s.order(); (err == nil) != tt.complete {
				t.Errorf("order = %v, want complete: %v", err, tt.complete)
			}
			var got []string
			for _, c := range s.claims {
				attempt := ""
				if len(c.Entry.Claims) > 0 {
					attempt = c.Entry.Claims[0].Attempt
				}
				got = append(got, attempt)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("claims %q, want %q", got, tt.want)
			}
		})
	}
}
