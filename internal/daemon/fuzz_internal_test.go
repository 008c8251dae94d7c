package daemon

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"muster/internal/conffile"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// rewrite writes a file anew. One that is cut and written again would be flushed
// to disk each time by ext4, which makes fuzzing a thousand times slower.
func rewrite(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// FuzzConfig checks that no provisioner.yaml panics, and that what passes
// Validate is within its bounds.
func FuzzConfig(f *testing.F) {
	tmpl, err := setupFiles.ReadFile("setup/provisioner.yaml.tmpl")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(tmpl)
	f.Add([]byte("name: a.b\ntrust_domain: a.b\ndata_dir: x\nbroker: {listen: ':0', names: [b.c]}\ntokens: {signers: [{file: s.pem, sites: [ams], identities: ['*.b']}]}\n" +
		"ca: {root: r, certificate: c, key: k}\npolicy: p\nquotas: {verifications_per_source: 1}\nreserved: ['**.x']\n"))
	f.Add([]byte("certificates: {lifetime: -1h, max_lifetime: 1000000h}\nquotas: {per_token: -1}\n"))
	f.Add([]byte("broker: &b\n  names: [*b]\n"))
	path := filepath.Join(f.TempDir(), "provisioner.yaml")
	f.Fuzz(func(t *testing.T, b []byte) {
		rewrite(t, path, b)
		form := form(DefaultConfig())
		if conffile.LoadYAML(path, &form) != nil {
			return
		}
		cfg := Config(form)
		cfg.resolve(filepath.Dir(path))
		if cfg.Validate() != nil {
			return
		}
		q := cfg.Quotas
		if cfg.Certificates.Lifetime > cfg.Certificates.MaxLifetime || cfg.Certificates.Lifetime <= 0 || q.PerToken < 0 || q.PerSource < 0 ||
			q.VerificationsPerSource < 0 || q.VerificationsPerSource > maxVerifications || len(cfg.Tokens.Signers) == 0 || len(cfg.Broker.Names) == 0 {
			t.Fatalf("accepted: %+v", cfg)
		}
		for _, name := range append(slices.Clone(cfg.Broker.Names), cfg.Name, cfg.TrustDomain) {
			if _, err := wire.ParseIdentity(name); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{cfg.DataDir, cfg.Policy, cfg.CA.Key} {
			if !filepath.IsAbs(path) {
				t.Fatalf("path %q", path)
			}
		}
	})
}

// FuzzAllowList checks that no allow-list panics, and that one that is read
// covers what its patterns cover and nothing else.
func FuzzAllowList(f *testing.F) {
	for _, s := range []string{
		"allow:\n  - pattern: web1.example.net\n  - pattern: db*.example.net\n    expires: 2030-01-01T00:00:00Z\n", "allow: [{pattern: '*', expires: 2020-01-01T00:00:00Z}]\n",
		"allow: [{pattern: '**.net', comment: x}]\n", "", "allow: null\n", "allow: [1]\n",
	} {
		f.Add([]byte(s), "web1.example.net")
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	path := filepath.Join(f.TempDir(), "allow-list.yaml")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		rewrite(t, path, b)
		l, err := loadAllowList(path, Options{Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return
		}
		id, err := wire.ParseIdentity(name)
		if err != nil {
			return
		}
		var file allowFile
		if err := conffile.LoadYAML(path, &file); err != nil {
			t.Fatal(err)
		}
		// Of two entries for one name, the later counts.
		want, names := false, map[string]bool{}
		for _, e := range file.Allow {
			valid := e.Expires.IsZero() || now.Before(e.Expires)
			if e.Pattern == name {
				names[name] = valid
			} else if valid && wire.Pattern(e.Pattern).Match(id) {
				want = true
			}
		}
		if want = want || names[name]; want != (l.match(id) != nil) {
			t.Fatalf("%q is covered %v, want %v", id, !want, want)
		}
	})
}

// FuzzTemplateFacts checks that no fact of a node's adds a setting to its
// configuration or changes another one.
func FuzzTemplateFacts(f *testing.F) {
	tmpl, err := newTemplate("identity = {{ .Identity }}\nrole = {{ .Facts.role }}\nsite = ams\n{{ range .Facts.list }}{{ end }}all = {{ join .Facts.list \",\" }}\n")
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{
		`{"role":"web","list":["a","b"]}`, `{"role":"web\nidentity = evil","list":[]}`, `{"role":{"a":1},"list":1}`, `{"role":1e400,"list":[true,null]}`,
		`{"role":"{{ .Identity }}","list":["\u2028","\u0085x = y"]}`, `{"role":" # x","list":["\\"]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, facts []byte) {
		files, err := tmpl.Configure(t.Context(), provisioner.Subject{Identity: "web1.example.net", Token: &jwt.Verified{}, Facts: json.RawMessage(facts)})
		if err != nil {
			if files.Configuration != nil {
				t.Fatalf("a configuration beside the error: %v", files.Configuration)
			}
			return
		}
		c := files.Configuration
		if c["identity"] != "web1.example.net" || c["site"] != "ams" || len(c) != 4 {
			t.Fatalf("facts %q made it %v", facts, c)
		}
	})
}
