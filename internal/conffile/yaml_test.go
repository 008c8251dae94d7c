package conffile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/internal/conffile"
	"muster/internal/inputfile"
)

type fleet struct {
	Name   string `yaml:"name"`
	Broker struct {
		URL  string `yaml:"url"`
		Port uint16 `yaml:"port"`
	} `yaml:"broker"`
	Lifetime conffile.Span     `yaml:"lifetime"`
	Open     bool              `yaml:"open"`
	Sites    []string          `yaml:"sites"`
	Labels   map[string]string `yaml:"labels"`
	Signers  []struct {
		Name  string   `yaml:"name"`
		Sites []string `yaml:"sites"`
	} `yaml:"signers"`
	Ends time.Time `yaml:"ends"`
}

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
	defaults := fleet{Name: "blue", Lifetime: conffile.Span(24 * time.Hour)}
	tests := map[string]struct {
		in   string
		want func(*fleet)
	}{
		"empty":           {"", func(*fleet) {}},
		"comments":        {"# nothing\n", func(*fleet) {}},
		"one document":    {"---\nname: red\n", func(f *fleet) { f.Name = "red" }},
		"nested":          {"broker:\n  url: nats://a\n  port: 4222\n", func(f *fleet) { f.Broker.URL, f.Broker.Port = "nats://a", 4222 }},
		"durations":       {"lifetime: 30d\n", func(f *fleet) { f.Lifetime = conffile.Span(720 * time.Hour) }},
		"lists and maps":  {"sites: [ams, fra]\nlabels: {a: b}\n", func(f *fleet) { f.Sites, f.Labels = []string{"ams", "fra"}, map[string]string{"a": "b"} }},
		"a default again": {"open: false\nname: blue\n", func(*fleet) {}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, want := defaults, defaults
			tt.want(&want)
			if err := conffile.LoadYAML(write(t, tt.in), inputfile.Configured, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("LoadYAML (-want +got):\n%s", diff)
			}
		})
	}
}

const noValue = "a list entry, or a key in it, has no value: add a value, or remove it"

func TestLoadYAMLRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   string
		want []string // the lines of the error, without the file's name
	}{
		"unknown key":                   {"naem: red\n", []string{`line 1: unknown key "naem": did you mean "name"?`}},
		"unknown nested key":            {"broker:\n  ulr: x\n", []string{`line 2: unknown key "ulr"`}},
		"key in capitals":               {"Name: red\n", []string{`line 1: unknown key "Name": did you mean "name"?`}},
		"key given twice":               {"name: red\nopen: true\nname: green\n", []string{`line 3: mapping key "name" already defined at line 1`}},
		"no duration":                   {"lifetime: soon\n", []string{`line 1: "soon" is not a span such as 90s, 30m, 12h, 30d or 2w`}},
		"number out of range":           {"broker: {port: 70000}\n", []string{"line 1: is a number `70000`, want a number in range"}},
		"no boolean":                    {"open: perhaps\n", []string{"line 1: is a text `perhaps`, want true or false"}},
		"no list":                       {"sites: ams\n", []string{"line 1: is a text `ams`, want a list"}},
		"names alone":                   {"web1.example.net\n", []string{"line 1: is a text `web1.ex...`, want keys with values, as in `name: value`"}},
		"no text":                       {"name: [a]\n", []string{`line 1: is a list, want a text`}},
		"two documents":                 {"name: red\n---\nname: green\n", []string{`more than one document, want one`}},
		"rubbish behind it":             {"name: red\n--- [\n", []string{`more than one document, want one`}},
		"all at once":                   {"naem: red\nlifetime: soon\n", []string{`line 1: unknown key "naem": did you mean "name"?`, `line 2: "soon" is not a span such as 90s, 30m, 12h, 30d or 2w`}},
		"a limit without a value":       {"signers:\n  - name: a\n    sites:\n    # - ams\n", []string{`line 3: ` + noValue}},
		"a limit that is an empty list": {"signers: [{sites: [ams]}, {sites: []}]\n", []string{`line 1: ` + noValue}},
		"a limit with nothing in it":    {"signers:\n  - sites:\n      - ams\n      - # b\n      - ~\n", []string{`line 4: ` + noValue, `line 5: ` + noValue}},
		"a limit that is no list":       {"signers:\n  - name:\n", []string{`line 2: ` + noValue}},
		"a limit elsewhere":             {"labels: &l {}\nsigners:\n  - &s {sites: }\n  - <<: *s\n    name: b\n", []string{`line 3: ` + noValue}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, tt.in)
			err := conffile.LoadYAML(path, inputfile.Configured, &fleet{Name: "blue", Lifetime: conffile.Span(24 * time.Hour)})
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

func TestLoadYAMLRefusesOtherFormats(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"zeros after power loss": strings.Repeat("\x00", 512), "tabs": "a:\n\tb: 1\n", "open quote": "name: \"red\n",
		"cut short": "broker: {url: nats", "too large": "name: " + strings.Repeat("x", inputfile.MaxBytes),
		"aliases that grow": "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nsites: [*c,*c,*c,*c,*c,*c]\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, in)
			err := conffile.LoadYAML(path, inputfile.Configured, &fleet{Name: "blue", Lifetime: conffile.Span(24 * time.Hour)})
			if err == nil || !strings.HasPrefix(err.Error(), path+": ") {
				t.Errorf("LoadYAML error = %v, want one that begins with the path", err)
			}
		})
	}
}

func TestLoadYAMLRefusesMissingFile(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	if err := conffile.LoadYAML(missing, inputfile.Configured, &fleet{}); !errors.Is(err, fs.ErrNotExist) ||
		strings.Count(err.Error(), missing) != 1 {
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
		"a: 1\na: 2\n":                      `line 2: mapping key "a" already defined at line 1`,
		"a: {b: 1, b: 2}\n":                 `line 1: mapping key "b" already defined at line 1`,
		"a: 1\n---\nb: 2\n":                 "more than one document, want one",
		"a: [\n":                            "yaml: ",
	} {
		err := conffile.CheckYAML([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("CheckYAML(%q) = %v, want %q", text, err, want)
		}
	}
}
