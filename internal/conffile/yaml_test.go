package conffile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/internal/conffile"
)

var errMissing = errors.New("missing")

// fleet is a configuration as daemons have one.
type fleet struct {
	Name   string `yaml:"name"`
	Broker struct {
		URL  string `yaml:"url"`
		Port uint16 `yaml:"port"`
	} `yaml:"broker"`
	Lifetime time.Duration     `yaml:"lifetime"`
	Open     bool              `yaml:"open"`
	Sites    []string          `yaml:"sites"`
	Labels   map[string]string `yaml:"labels"`
	Signers  []struct {
		Name  string   `yaml:"name"`
		Sites []string `yaml:"sites" conffile:"limit"`
	} `yaml:"signers"`
	Ends time.Time `yaml:"ends" conffile:"limit"`
}

func (f *fleet) Validate() error {
	var errs []error
	if f.Name == "" {
		errs = append(errs, fmt.Errorf("name: %w", errMissing))
	}
	if f.Lifetime < time.Hour {
		errs = append(errs, fmt.Errorf("lifetime: is %v, want 1h or more", f.Lifetime))
	}
	return errors.Join(errs...)
}

// write writes a file and returns its path.
func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadYAML(t *testing.T) {
	t.Parallel()
	defaults := fleet{Name: "blue", Lifetime: 24 * time.Hour}
	tests := map[string]struct {
		in   string
		want func(*fleet)
	}{
		"empty":           {"", func(*fleet) {}},
		"comments":        {"# nothing\n", func(*fleet) {}},
		"one document":    {"---\nname: red\n", func(f *fleet) { f.Name = "red" }},
		"nested":          {"broker:\n  url: nats://a\n  port: 4222\n", func(f *fleet) { f.Broker.URL, f.Broker.Port = "nats://a", 4222 }},
		"durations":       {"lifetime: 90m\n", func(f *fleet) { f.Lifetime = 90 * time.Minute }},
		"lists and maps":  {"sites: [ams, fra]\nlabels: {a: b}\n", func(f *fleet) { f.Sites, f.Labels = []string{"ams", "fra"}, map[string]string{"a": "b"} }},
		"a default again": {"open: false\nname: blue\n", func(*fleet) {}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, want := defaults, defaults
			tt.want(&want)
			if err := conffile.LoadYAML(write(t, tt.in), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("LoadYAML (-want +got):\n%s", diff)
			}
		})
	}
}

const noLimit = "is empty, which would be no limit: give it a value, or take the line out"

func TestLoadYAMLRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   string
		want []string // the lines of the error, without the file's name
	}{
		"unknown key":         {"naem: red\n", []string{`line 1: unknown key "naem"`}},
		"unknown nested key":  {"broker:\n  ulr: x\n", []string{`line 2: unknown key "ulr"`}},
		"key in capitals":     {"Name: red\n", []string{`line 1: unknown key "Name"`}},
		"key given twice":     {"name: red\nopen: true\nname: green\n", []string{`line 3: key "name" is given twice, first in line 1`}},
		"no duration":         {"lifetime: soon\n", []string{`line 1: is "soon", want a duration such as 90s or 24h`}},
		"number out of range": {"broker: {port: 70000}\n", []string{`line 1: is "70000", want a whole number`}},
		"no boolean":          {"open: perhaps\n", []string{`line 1: is "perhaps", want true or false`}},
		"no list":             {"sites: ams\n", []string{`line 1: is "ams", want a list`}},
		"no text":             {"name: [a]\n", []string{`line 1: want a text`}},
		"no text, below":      {"open: true\nbroker:\n  url:\n    - a\n", []string{`line 4: want a text`}},
		"no text, first":      {"broker:\n  url: [a, b]\n", []string{`line 2: want a text`}},
		"which of two":        {"{name: [a], broker: {url: [b]}}\n", []string{`line 1: want a text`, `line 1: want a text`}},
		"one of a list":       {"sites:\n  - ams\n  - [b]\n", []string{`line 3: want a text`}},
		"a list of all":       {"- name: red\n", []string{`line 1: want a mapping of keys to values`}},
		"two documents":       {"name: red\n---\nname: green\n", []string{`more than one document, want one`}},
		"rubbish behind it":   {"name: red\n--- [\n", []string{`more than one document, want one`}},
		"all at once": {"naem: red\nlifetime: soon\nname: ''\n", []string{`line 1: unknown key "naem"`,
			`line 2: is "soon", want a duration such as 90s or 24h`, `name: missing`}},
		"a time without a zone":         {"name: red\nends: 2027-01-31T12:00:00\n", []string{`line 2: "2027-01-31T12:00:00" is no time such as 2027-01-31T12:00:00Z`}},
		"no time":                       {"signers: []\nends: tomorrow\n", []string{`line 2: "tomorrow" is no time such as 2027-01-31T12:00:00Z`}},
		"no time, and quoted":           {"ends: \"2027-01-31T12:00:00\"\n", []string{`line 1: "2027-01-31T12:00:00" is no time such as 2027-01-31T12:00:00Z`}},
		"a limit without a value":       {"signers:\n  - name: a\n    sites:\n    # - ams\n", []string{`line 3: signers[0].sites: ` + noLimit}},
		"a limit that is an empty list": {"signers: [{sites: [ams]}, {sites: []}]\n", []string{`line 1: signers[1].sites: ` + noLimit}},
		"a limit with nothing in it":    {"signers:\n  - sites:\n      - ams\n      - # b\n      - ~\n", []string{`line 4: signers[0].sites[1]: ` + noLimit, `line 5: signers[0].sites[2]: ` + noLimit}},
		"a limit that is no list":       {"ends:\n", []string{`line 1: ends: ` + noLimit}},
		"a time that is none":           {"ends: 0001-01-01T00:00:00Z\n", []string{`line 1: ends: is 0001-01-01T00:00:00Z, which would be no limit: give it another time, or take the line out`}},
		"a time that is none, quoted":   {"ends: \"0001-01-01T00:00:00Z\"\n", []string{`line 1: ends: is 0001-01-01T00:00:00Z, which would be no limit: give it another time, or take the line out`}},
		"a limit elsewhere":             {"labels: &l {}\nsigners:\n  - &s {sites: }\n  - <<: *s\n    name: b\n", []string{`line 3: signers[0].sites: ` + noLimit, `line 3: signers[1].sites: ` + noLimit}},
		"a limit and more":              {"naem: red\nends: ~\nlifetime: 1m\n", []string{`line 1: unknown key "naem"`, `line 2: ends: ` + noLimit, `lifetime: is 1m0s, want 1h or more`}},
		"what Validate finds":           {"name: ''\nlifetime: 1m\n", []string{`name: missing`, `lifetime: is 1m0s, want 1h or more`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, tt.in)
			err := conffile.LoadYAML(path, &fleet{Name: "blue", Lifetime: 24 * time.Hour})
			if err == nil {
				t.Fatal("LoadYAML = nil, want an error")
			}
			var want []string
			for _, line := range tt.want {
				want = append(want, path+": "+line)
			}
			if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("LoadYAML error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadYAMLOfWhatIsNone(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"zeros after power loss": strings.Repeat("\x00", 512), "tabs": "a:\n\tb: 1\n", "open quote": "name: \"red\n",
		"cut short": "broker: {url: nats", "too large": "name: " + strings.Repeat("x", conffile.MaxFileBytes),
		"aliases that grow": "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nsites: [*c,*c,*c,*c,*c,*c]\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, in)
			err := conffile.LoadYAML(path, &fleet{Name: "blue", Lifetime: 24 * time.Hour})
			if err == nil || !strings.HasPrefix(err.Error(), path+": ") {
				t.Errorf("LoadYAML error = %v, want one that begins with the path", err)
			}
		})
	}
}

func TestLoadYAMLKeepsCauses(t *testing.T) {
	t.Parallel()
	if err := conffile.LoadYAML(write(t, "name: ''\n"), &fleet{}); !errors.Is(err, errMissing) {
		t.Errorf("LoadYAML error = %v, want one that wraps what Validate returned", err)
	}
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	if err := conffile.LoadYAML(missing, &fleet{}); !errors.Is(err, fs.ErrNotExist) || strings.Count(err.Error(), missing) != 1 {
		t.Errorf("LoadYAML error = %v, want %v with the path once", err, fs.ErrNotExist)
	}
}

func TestCheckYAML(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                  "",
		"# nothing\n":                       "",
		"a: 1\nb: [x, {c: 2}]":              "",
		"---\na: 1\n":                       "",
		"a: &x {b: 1}\nc: {<<: *x, b: 2}\n": "",
		"a: 1\na: 2\n":                      `line 2: key "a" is given twice, first in line 1`,
		"a: {b: 1, b: 2}\n":                 `line 1: key "b" is given twice, first in line 1`,
		"a: 1\n---\nb: 2\n":                 "more than one document, want one",
		"a: [\n":                            "not YAML: ",
	} {
		err := conffile.CheckYAML([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("CheckYAML(%q) = %v, want %q", text, err, want)
		}
	}
}
