package server

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/internal/conffile"
	"muster/internal/serverconf"
	"muster/server/link"
)

func TestParseConf(t *testing.T) {
	t.Parallel()
	level := slog.LevelWarn
	tests := map[string]struct {
		text string
		want *serverconf.Conf // nil: an error; intervals of 0 stand for the defaults
	}{
		"one unknown key": {"shade = blue\n", &serverconf.Conf{}},
		"ours": {"provision = no\nidentity=web1.example.net\nbrokers = a:1, " +
			"b:2\nfacts_file=/f\nregistration_file=/r\nregistration_interval=10\nalive_interval = 2m\nlog_level = " +
			"warn\n", &serverconf.Conf{
			Identity:             "web1.example.net",
			Brokers:              []string{"a:1", "b:2"},
			FactsFile:            "/f",
			RegistrationFile:     "/r",
			RegistrationInterval: 10 * time.Second,
			AliveInterval:        2 * time.Minute,
			LogLevel:             &level,
		}},
		"Choria's": {"plugin.choria.server.provision = 1\nplugin.choria.middleware_hosts = a:1\nplugin.yaml = " +
			"/f\nplugin.choria.registration.file_content.data=/r\nregisterinterval = 30\nloglevel = warning\n", &serverconf.Conf{
			Brokers:              []string{"a:1"},
			RegistrationFile:     "/r",
			RegistrationInterval: 30 * time.Second,
			LogLevel:             &level,
		}},
		"both names, one meaning": {"provision = true\nplugin.choria.server.provision = 1\n",
			&serverconf.Conf{}},
		"domain":                    {"srv_domain = example.net\n", &serverconf.Conf{SRVDomain: "example.net"}},
		"domain and brokers":        {"srv_domain = example.net\nbrokers = a:1\n", nil},
		"empty":                     {"", nil},
		"comments only":             {"# nothing\n\n", nil},
		"not settings":              {"hello\n", nil},
		"zeros, as after a crash":   {strings.Repeat("\x00", 512), nil},
		"provision is neither":      {"provision = maybe\n", nil},
		"identity in upper case":    {"identity = WEB1.\n", &serverconf.Conf{Identity: "web1"}},
		"broker without a host":     {"brokers = :4222\n", nil},
		"interval without a number": {"registration_interval = often\n", nil},
		"interval of 1 s":           {"registration_interval = 1\n", &serverconf.Conf{RegistrationInterval: time.Second}},
		"interval of 1 ms":          {"registration_interval = 1ms\n", nil},
		"interval of a week":        {"registration_interval = 1w\n", nil},
		"alive never":               {"alive_interval = 0\n", nil},
		"unknown level":             {"log_level = loud\n", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseConf([]byte(tt.text))
			if tt.want == nil {
				if err == nil && got.Faults == nil {
					t.Fatalf("parseConf = %+v, want an error or a fault", got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tt.want.RegistrationInterval == 0 {
				tt.want.RegistrationInterval = 5 * time.Minute
			}
			if tt.want.AliveInterval == 0 {
				tt.want.AliveInterval = 30 * time.Minute
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadConfTellsMissingFromUnusable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole, err := conffile.FormatSettings(map[string]string{"provision": "true", "brokers": "a:1"}, "made by us")
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		path string
		want error
		says ProvisionSetting
	}{
		"none":            {filepath.Join(dir, "none"), ErrMissing, ProvisionSetting{}},
		"a dangling link": {dangling, ErrMissing, ProvisionSetting{}},
		"a directory":     {dir, ErrUnusable, ProvisionSetting{}},
		"empty":           {file("empty", ""), ErrUnusable, ProvisionSetting{}},
		"zeros":           {file("zeros", strings.Repeat("\x00", 4096)), ErrUnusable, ProvisionSetting{}},
		"ours, cut short": {file("short", string(whole[:len(whole)-8])), ErrUnusable,
			ProvisionSetting{Yes: true}},
		"too large": {file("large", strings.Repeat("# x\n", 300_000)), ErrUnusable, ProvisionSetting{}},
		"broken, but says no": {file("no", "provision = false\nrubbish\n"), nil,
			ProvisionSetting{No: true}},
		"broken, says no, indents": {file("no2", "\x00\x01\n  Provision=OFF\r\nrubbish"), ErrUnusable,
			ProvisionSetting{No: true}},
		"says no behind a mark": {file("mark", "\ufeffprovision = false\n"), nil, ProvisionSetting{No: true}},
		"says yes and no": {file("both", "provision = yes\nplugin.choria.server.provision = 0\n"), nil,
			ProvisionSetting{Yes: true, No: true}},
		"says something else":  {file("other", "provision = fals"), nil, ProvisionSetting{Invalid: "fals"}},
		"says it in a comment": {file("comment", "# provision = false\n"), ErrUnusable, ProvisionSetting{}},
		"whole":                {file("whole", string(whole)), nil, ProvisionSetting{Yes: true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, says, err := readConf(tt.path)
			if !errors.Is(err, tt.want) || (c == nil) != (err != nil) {
				t.Errorf("readConf = %+v, %v; want %v", c, err, tt.want)
			}
			if says.ProvisionSetting != tt.says {
				t.Errorf("says %+v, want %+v", says.ProvisionSetting, tt.says)
			}
		})
	}
}

func TestQualify(t *testing.T) {
	t.Parallel()
	const hosts = "127.0.0.1 localhost\n# 10.0.0.1 web1.commented.net web1\n10.0.0.9 " +
		"other.example.net\n10.0.0.2\tWeb1.Example.net web1 # web1.late.net\n10.0.0.3 web1.second.net web1\n"
	for name, want := range map[string]string{"web1": "web1.example.net", "web2": "web2", "localhost": "localhost",
		"other": "other"} {
		if got := qualify(name, hosts); got != want {
			t.Errorf("qualify(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestGist(t *testing.T) {
	t.Parallel()
	same := [][2]string{
		{"read tcp 10.0.0.1:34567->10.0.0.2:4222: reset", "read tcp 10.0.0.1:34568->10.0.0.2:4222: reset"},
		{"expired: current time 2026-03-01T00:00:00Z is after 2026-02-01T00:00:00Z",
			"expired: current time 2026-03-01T00:00:09Z is after 2026-02-01T00:00:00Z"},
	}
	for _, pair := range same {
		if summarize(pair[0]) != summarize(pair[1]) {
			t.Errorf("%q and %q differ", pair[0], pair[1])
		}
	}
	if summarize("dial tcp 10.0.0.2:4222: refused") == summarize("dial tcp 10.0.0.3:4222: refused") {
		t.Error("two brokers have one gist")
	}
}

func TestBackoffDoublesWithinItsBounds(t *testing.T) {
	t.Parallel()
	for part, random := range map[string]float64{"least": 0, "most": 0.999999} {
		b := link.Backoff{Min: time.Second, Max: time.Minute, Random: func() float64 { return random }}
		for i, bound := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60} {
			d := b.Next()
			if d < bound*time.Second/2 || d > bound*time.Second {
				t.Errorf("%s: try %d waits %v, want %v to %v", part, i, d, bound*time.Second/2, bound*time.Second)
			}
		}
		for range 1000 {
			if d := b.Next(); d < 30*time.Second || d > time.Minute {
				t.Fatalf("%s: waits %v after many tries", part, d)
			}
		}
		b.Reset()
		if d := b.Next(); d > time.Second {
			t.Errorf("%s: waits %v after a reset", part, d)
		}
	}
}

func TestAToldWaitIsSpreadAndNeverShorterThanOurs(t *testing.T) {
	t.Parallel()
	for told, want := range map[time.Duration][2]time.Duration{
		time.Millisecond: {time.Second / 2, 5 * time.Second / 8},
		time.Second:      {time.Second, 5 * time.Second / 4},
		time.Hour:        {time.Hour, 75 * time.Minute},
	} {
		for i, random := range []float64{0, 0.999999} {
			b := link.Backoff{Min: time.Second, Max: time.Minute, Random: func() float64 { return random }, Tries: 6}
			if d := b.RetryAfter(told); d > want[i] || d < want[i]-time.Second/100 {
				t.Errorf("told %v: waits %v, want %v", told, d, want[i])
			}
			if d := b.Next(); d > time.Second {
				t.Errorf("told %v: waits %v after the next failure", told, d)
			}
		}
	}
}
