package conffile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/wire"
)

func TestParseSettings(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   string
		want map[string]string
	}{
		"one":                    {"provision = true\n", map[string]string{"provision": "true"}},
		"Choria's key":           {"plugin.choria.server.provision = 1\n", map[string]string{"plugin.choria.server.provision": "1"}},
		"without blanks":         {"a=b\n", map[string]string{"a": "b"}},
		"with many":              {" \ta\t =\t b c \t\n", map[string]string{"a": "b c"}},
		"without a last newline": {"provision = false", map[string]string{"provision": "false"}},
		"CRLF":                   {"a = 1\r\n\r\n# x\r\nb = 2\r\n", map[string]string{"a": "1", "b": "2"}},
		"comments and blanks":    {"# a = 1\n\n  # b\tc\n \t\nc = 3\n", map[string]string{"c": "3"}},
		"more = and #":           {"a = b=c # d\n", map[string]string{"a": "b=c # d"}},
		"empty value":            {"a =\nb = \n", map[string]string{"a": "", "b": ""}},
		"UTF-8":                  {"motd = grüß dich\n", map[string]string{"motd": "grüß dich"}},
		"capitals":               {"Log_Level-2 = x\n", map[string]string{"Log_Level-2": "x"}},
		"longest key":            {strings.Repeat("a", 128) + " = 1\n", map[string]string{strings.Repeat("a", 128): "1"}},
		"empty":                  {"", map[string]string{}},
		"comments only":          {"# nothing yet\n", map[string]string{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := conffile.ParseSettings([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, s); diff != "" {
				t.Errorf("ParseSettings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseSettingsRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   string
		want []string // in the error
	}{
		"zeros after power loss": {strings.Repeat("\x00", 4096), []string{"line 1: control character U+0000"}},
		"zeros at the end":       {"a = 1\nb = 2\n\x00\x00\x00", []string{"line 3"}},
		"no =":                   {"a = 1\nhunter2\n", []string{"line 2: no =, want"}},
		"no key":                 {"= hunter2\n", []string{"line 1: key of 0 bytes"}},
		"key with a blank":       {"hunter2 b = 1\n", []string{"line 1: key of 9 bytes"}},
		"key with a slash":       {"a/b = 1\n", []string{"line 1"}},
		"key too long":           {strings.Repeat("a", 129) + " = 1\n", []string{"line 1: key of 129 bytes"}},
		"key in UTF-8":           {"grüße = 1\n", []string{"line 1"}},
		"twice":                  {"a = hunter2\n# x\na = hunter2\n", []string{`line 3: key "a" is given twice, first in line 1`}},
		"invalid UTF-8":          {"a = hunter2\xff\n", []string{"line 1: invalid UTF-8"}},
		"a carriage return":      {"a = 1\rb = hunter2\n", []string{"line 1: control character U+000D"}},
		"a tab in a value":       {"a = hunter2\tb\n", []string{"line 1: control character U+0009"}},
		"an escape":              {"a = \x1b[2J\n", []string{"line 1: control character U+001B"}},
		"an escape in a comment": {"# \x1b[2J\n", []string{"line 1"}},
		"next line":              {"a = b\u0085c = d\n", []string{"line 1: line separator U+0085"}},
		"paragraph separator":    {"a = b\u2029c = d\n", []string{"line 1: line separator U+2029"}},
		"byte order mark":        {"\ufeffa = 1\n", []string{"line 1: byte order mark"}},
		"UTF-16":                 {"a\x00=\x001\x00\n\x00", []string{"line 1"}},
		"YAML":                   {"provision: true\n", []string{"line 1: no ="}},
		"too large":              {"a = " + strings.Repeat("x", inputfile.MaxBytes) + "\n", []string{"limit 1048576"}},
		"several mistakes":       {"hunter2\na = 1\na = 2\nb\n", []string{"line 1:", "line 3:", "line 4:"}},
		"a log, not settings":    {strings.Repeat("2026-03-01 hello\n", 5000), []string{"line 16:"}},
		"PEM":                    {"-----BEGIN PRIVATE KEY-----\nMII+hunter2==\n", []string{"line 1: no =", "line 2: "}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := conffile.ParseSettings([]byte(tt.in))
			if s != nil || !errors.Is(err, conffile.ErrSettings) {
				t.Fatalf("ParseSettings = %v, %v, want %v alone", s, err, conffile.ErrSettings)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if text := err.Error(); strings.Contains(text, "hunter2") || len(text) > 2048 {
				t.Errorf("error of %d bytes prints a value or too much: %.300s", len(text), text)
			}
		})
	}
}

func TestFormatSettings(t *testing.T) {
	t.Parallel()
	got, err := conffile.FormatSettings(map[string]string{"b": "2 = #", "a": "", "plugin.choria.x": "grüß"},
		"made for web1\n\nby muster")
	if err != nil {
		t.Fatal(err)
	}
	want := `# muster settings, complete only with the line that ends them
# made for web1
#
# by muster
a =
b = 2 = #
plugin.choria.x = grüß
# end of settings
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("FormatSettings (-want +got):\n%s", diff)
	}
}

func TestFormatSettingsRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]map[string]string{
		"line break":       {"a": "hunter2\nprovision = false"},
		"carriage return":  {"a": "hunter2\r"},
		"leading blank":    {"a": " hunter2"},
		"trailing blank":   {"a": "hunter2 "},
		"only a blank":     {"a": " "},
		"tab":              {"a": "\thunter2"},
		"NUL":              {"a": "hunter2\x00"},
		"line separator":   {"a": "hunter2\u2028b"},
		"invalid UTF-8":    {"a": "hunter2\xff"},
		"empty key":        {"": "hunter2"},
		"key with =":       {"a=b": "hunter2"},
		"key as a comment": {"#a": "hunter2"},
		"key with a break": {"a\nb": "hunter2"},
		"key too long":     {strings.Repeat("a", 129): "hunter2"},
		"too large":        {"a": strings.Repeat("x", inputfile.MaxBytes)},
	}
	for name, settings := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := conffile.FormatSettings(settings, "")
			if b != nil || !errors.Is(err, conffile.ErrSettings) {
				t.Fatalf("FormatSettings = %q, %v, want %v alone", b, err, conffile.ErrSettings)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %q prints a value", err)
			}
		})
	}
}

// A configuration that passed [wire.Files.Check] must be writable.
func TestCheckedFilesCanBeWritten(t *testing.T) {
	t.Parallel()
	for r := rune(0); r < 0x3000; r++ {
		for _, value := range []string{string(r), "a" + string(r) + "b", "a" + string(r)} {
			files := wire.Files{Configuration: map[string]string{"k": value}}
			if files.Check() != nil {
				continue
			}
			if _, err := conffile.FormatSettings(files.Configuration, ""); err != nil {
				t.Fatalf("the wire allows %q: %v", value, err)
			}
		}
	}
}

// TestTruncatedFileIsAnError truncates a file at every byte: the rest is an error or has no settings.
func TestTruncatedFileIsAnError(t *testing.T) {
	t.Parallel()
	whole, err := conffile.FormatSettings(map[string]string{"provision": "false", "identity": "web1.example.net",
		"a": ""}, "for web1")
	if err != nil {
		t.Fatal(err)
	}
	last := len(strings.TrimSuffix(string(whole), "\n"))
	for n := range last {
		s, err := conffile.ParseSettings(whole[:n])
		if err == nil && len(s) > 0 {
			t.Errorf("the first %d bytes give %d settings:\n%s", n, len(s), whole[:n])
		}
	}
	if s, err := conffile.ParseSettings(whole[:last]); err != nil || len(s) != 3 {
		t.Errorf("without the last newline: %v, %v, want all settings", s, err)
	}
}
