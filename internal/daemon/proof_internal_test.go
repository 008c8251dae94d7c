package daemon

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/provisioner/backup"
	"muster/provisioner/journal"
	"muster/provisioner/store"
)

// TestWhatJournalsProve gives journals to a backup that a and b have marked, and
// expects who is missing, if anybody is.
func TestWhatJournalsProve(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	of := func(name, id string, at time.Time) journal.Joined {
		return journal.Joined{Provisioner: name, Journal: id, At: at}
	}
	own := func(name, id string) func(*journal.Journal) error {
		return func(j *journal.Journal) error {
			return errors.Join(j.Begin(journal.From{Installation: "i", At: noon}), j.Own(of(name, id, noon)))
		}
	}
	mark := func(j *journal.Journal) error { return j.Mark(journal.Backup{ID: "b1", At: noon}) }
	joined := func(name, id string, at time.Time) func(*journal.Journal) error {
		return func(j *journal.Journal) error { return j.Join(of(name, id, at)) }
	}
	lossy := func(j *journal.Journal) error {
		return j.Begin(journal.From{Installation: "i", At: noon, Lost: true})
	}
	alone := func(j *journal.Journal) error { return j.Forget(journal.Alone{At: noon}) }
	later := noon.Add(time.Hour)
	type lines = []func(*journal.Journal) error
	a, b := lines{own("a", "ja"), mark}, lines{own("b", "jb"), mark}
	c := lines{own("c", "jc")}
	with := func(l lines, more ...func(*journal.Journal) error) lines {
		return append(append(lines{}, l...), more...)
	}
	tests := map[string]struct {
		given []lines
		want  string // of what is missing, "" for nothing
	}{
		"both":                                {[]lines{a, b}, ""},
		"one":                                 {[]lines{a}, "provisioner b has written"},
		"a copy from before the backup":       {[]lines{a, {own("b", "jb")}}, "provisioner b has written"},
		"another journal of the name":         {[]lines{a, {own("b", "jb2")}}, "provisioner b has written"},
		"marked too late":                     {[]lines{a, b, with(c, mark)}, "does not say that backup b1"},
		"a lossy restore since":               {[]lines{a, with(b, lossy)}, "provisioner b has written"},
		"who joined is missing":               {[]lines{a, with(b, joined("c", "jc", later))}, "provisioner c has joined"},
		"who joined before the mark, too":     {[]lines{{own("a", "ja"), joined("c", "jc", later), mark}, b}, "provisioner c has joined"},
		"who joined is there":                 {[]lines{a, with(b, joined("c", "jc", later)), c}, ""},
		"with another journal":                {[]lines{a, with(b, joined("c", "jc", later)), {own("c", "jc2")}}, "provisioner c has joined"},
		"who joined has restored with losses": {[]lines{a, with(b, joined("c", "jc", later)), with(c, lossy)}, "does not say that backup b1"},
		"nobody says that it joined":          {[]lines{a, b, c}, "does not say that backup b1"},
		"who joined by who joined is missing": {[]lines{a, with(b, joined("c", "jc", later)), with(c, joined("d", "jd", later))}, "provisioner d has joined"},
		"who joined by who joined is there":   {[]lines{{own("d", "jd")}, with(c, joined("d", "jd", later)), a, with(b, joined("c", "jc", later))}, ""},
		"a journal begun anew":                {[]lines{with(a, joined("b", "jb2", later)), b}, "provisioner b has joined"},
		"both of them":                        {[]lines{with(a, joined("b", "jb2", later)), b, {own("b", "jb2")}}, ""},
		"only the new one":                    {[]lines{with(a, joined("b", "jb2", later)), {own("b", "jb2")}}, "provisioner b has written"},
		"one that was replaced before":        {[]lines{{own("a", "ja"), joined("b", "jb0", noon.Add(-time.Hour)), mark}, b}, ""},
		"one that was forgotten before":       {[]lines{{own("a", "ja"), joined("c", "jc", later), alone, mark}, b}, ""},
		"one that is forgotten since":         {[]lines{with(a, joined("c", "jc", later), alone), b}, "provisioner c has joined"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			info := &BackupInfo{
				Header: backup.Header{ID: "b1", Installation: "i", StartedAt: noon, Marked: []string{"a", "b"}},
				noted:  []store.NotedProvisioner{{Name: "a", Journal: "ja", Since: noon}, {Name: "b", Journal: "jb", Since: noon}},
			}
			var files []*file
			for i, write := range tt.given {
				path := filepath.Join(t.TempDir(), fmt.Sprint(i))
				j, err := journal.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = j.Close() }()
				for _, line := range write {
					if err := line(j); err != nil {
						t.Fatal(err)
					}
				}
				f, err := look(path, j, "a", info)
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, f)
			}
			err := errors.Join(prove(info, files)...)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("missing: %v, want %q", err, tt.want)
			}
		})
	}
}
