package server_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/jwt"
	"muster/server"
)

// statuses returns the worst status of each check.
func statuses(findings []server.Finding) map[string]server.Status {
	worst := map[string]server.Status{}
	for _, f := range findings {
		if f.Status == server.StatusFail || f.Status == server.StatusWarn && worst[f.What] != server.StatusFail ||
			worst[f.What] == "" {
			worst[f.What] = f.Status
		}
	}
	return worst
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		provisioned bool
		prepare     func(t *testing.T, f *fleet, cfg *server.Config)
		want        map[string]server.Status // checks that are not ok
		not         string                   // in no line
		says        []string                 // parts of "what: detail -> remedy"
	}{
		"before provisioning": {prepare: func(*testing.T, *fleet, *server.Config) {},
			want: map[string]server.Status{"authority": "warn", "enrollment": "warn"}},
		"provisioned": {provisioned: true, prepare: func(*testing.T, *fleet, *server.Config) {}},
		"no token": {prepare: func(t *testing.T, _ *fleet, cfg *server.Config) { remove(t, cfg.TokenFile) },
			want: map[string]server.Status{"mode": "fail", "token": "fail", "brokers": "fail"}},
		"a server.conf with mistakes": {prepare: func(t *testing.T, _ *fleet, cfg *server.Config) {
			writeFile(t, cfg.ConfFile, "alive_interval = soon\n")
		},
			want: map[string]server.Status{"settings": "warn", "authority": "warn", "enrollment": "warn"},
			says: []string{"alive_interval", "-> correct the lines"}},
		"a server.conf of zeros": {prepare: func(t *testing.T, _ *fleet, cfg *server.Config) {
			writeFile(t, cfg.ConfFile, strings.Repeat("\x00", 512))
		},
			want: map[string]server.Status{"mode": "warn", "authority": "warn", "enrollment": "warn"},
			says: []string{"-> repair server.conf; otherwise provisioning replaces it"}},
		"a key cut short": {provisioned: true, prepare: func(t *testing.T, _ *fleet, cfg *server.Config) {
			writeFile(t, filepath.Join(cfg.SSLDir, "private.pem"), "-----BEGIN")
		}, want: map[string]server.Status{"certificate": "warn", "authority": "warn", "enrollment": "warn"},
			says: []string{"private.pem", "the node enrolls again"}},
		"no token, provisioned": {provisioned: true, prepare: func(t *testing.T, _ *fleet, cfg *server.Config) {
			remove(t, cfg.TokenFile)
		}},
		"token for everybody's eyes": {prepare: func(t *testing.T, _ *fleet, cfg *server.Config) {
			if err := os.Chmod(cfg.TokenFile, 0o644); err != nil {
				t.Fatal(err)
			}
		}, want: map[string]server.Status{"token": "warn", "authority": "warn", "enrollment": "warn"}},
		"expired token": {prepare: func(t *testing.T, f *fleet, cfg *server.Config) {
			c := f.claims()
			c.ExpiresAt = time.Now().Add(-time.Minute)
			writeToken(t, cfg.TokenFile, c)
		}, want: map[string]server.Status{"token": "fail", "authority": "warn", "enrollment": "warn"}},
		"broker down": {provisioned: true, prepare: func(_ *testing.T, f *fleet, _ *server.Config) { f.stopForGood() },
			want: map[string]server.Status{"connection": "fail"}},
		"broker refuses": {provisioned: true, prepare: func(_ *testing.T, f *fleet, _ *server.Config) {
			f.set(func() { f.admit = func(string, *x509.Certificate) bool { return false } })
		}, want: map[string]server.Status{"connection": "fail"}},
		"key for everybody's eyes": {provisioned: true, prepare: func(t *testing.T, _ *fleet, cfg *server.Config) {
			if err := os.Chmod(filepath.Join(cfg.SSLDir, "private.pem"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, want: map[string]server.Status{"mode": "fail", "authority": "warn"},
			says: []string{"chmod 600 "}, not: "let the node enroll again"},
		"certificate lost, provision false": {provisioned: true,
			prepare: func(t *testing.T, _ *fleet, cfg *server.Config) {
				remove(t, filepath.Join(cfg.SSLDir, "certificate.pem"))
				writeFile(t, cfg.ConfFile, "provision = false\n")
			}, want: map[string]server.Status{"mode": "fail", "authority": "warn"},
			says: []string{"mode: neither provisioning nor normal mode is possible: server.conf says provision = " +
				"false", "-> remove provision = false from server.conf"}},
		"token for later": {prepare: func(t *testing.T, f *fleet, cfg *server.Config) {
			c := f.claims()
			c.NotBefore = time.Date(2999, 1, 2, 3, 4, 5, 0, time.UTC)
			writeToken(t, cfg.TokenFile, c)
		}, want: map[string]server.Status{"token": "fail", "authority": "warn", "enrollment": "warn"},
			says: []string{"the token is valid from 2999-01-02T03:04:05Z, and this clock says 20"}},
		"clock behind an expired token": {prepare: func(t *testing.T, f *fleet, cfg *server.Config) {
			c := f.claims()
			c.ExpiresAt = time.Now().Add(24 * time.Hour)
			writeToken(t, cfg.TokenFile, c)
			writeFile(t, filepath.Join(cfg.SSLDir, ".clock"), "2999-01-02T03:04:05Z\n")
		}, want: map[string]server.Status{"token": "fail", "authority": "warn", "enrollment": "warn"},
			says: []string{"this clock says 2999-01-02T03:04:05Z"}},
		"no facts": {prepare: func(_ *testing.T, _ *fleet, cfg *server.Config) {
			cfg.FactsFile = cfg.TokenFile + ".none"
		},
			want: map[string]server.Status{"facts": "warn", "authority": "warn", "enrollment": "warn"}},
		"broken facts": {prepare: func(t *testing.T, _ *fleet, cfg *server.Config) {
			cfg.FactsFile = cfg.TokenFile + ".facts"
			writeFile(t, cfg.FactsFile, "role\n")
		}, want: map[string]server.Status{"facts": "fail", "authority": "warn", "enrollment": "warn"},
			says: []string{"make the file one JSON object"}},
		"directory of another node": {provisioned: true, prepare: func(_ *testing.T, _ *fleet, cfg *server.Config) {
			cfg.Identity = "db1.example.net"
		},
			want: map[string]server.Status{"mode": "fail", "authority": "warn"},
			says: []string{"belongs to web1.example.net, and this node is db1.example.net",
				"use another --ssl-dir and --config for this node; or remove "}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			if tt.provisioned {
				a := f.run(cfg)
				a.await(server.EventConfirmed, 1)
				if err := a.stop(); err != nil {
					t.Fatal(err)
				}
			}
			tt.prepare(t, f, &cfg)
			before := len(f.requests())
			findings, err := server.Doctor(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			worst := statuses(findings)
			for what, status := range worst {
				if want := tt.want[what]; status != want && (want != "" || status != server.StatusOK) {
					t.Errorf("%s: %s, want %s", what, status, tt.want[what])
				}
			}
			for what := range tt.want {
				if worst[what] == "" {
					t.Errorf("%s was not checked", what)
				}
			}
			var text strings.Builder
			for _, f := range findings {
				text.WriteString(f.What + ": " + f.Detail + " -> " + f.Remedy + "\n")
			}
			if tt.not != "" && strings.Contains(text.String(), tt.not) {
				t.Errorf("%q in:\n%s", tt.not, text.String())
			}
			for _, want := range tt.says {
				if !strings.Contains(text.String(), want) {
					t.Errorf("no %q in:\n%s", want, text.String())
				}
			}
			for _, f := range findings {
				if f.Status == server.StatusFail && f.Remedy == "" {
					t.Errorf("%+v says not what to do", f)
				}
				if strings.Contains(f.Detail+f.Remedy, "\n") || strings.Contains(f.Detail, secret) {
					t.Errorf("%+v", f)
				}
			}
			if len(f.requests()) != before {
				t.Error("the doctor enrolled the node")
			}
			if t.Failed() {
				t.Logf("%+v", findings)
			}
		})
	}
}

// attempt runs an agent until an event.
func attempt(t *testing.T, f *fleet, cfg server.Config, until server.EventKind) {
	t.Helper()
	a := f.run(cfg)
	a.await(until, 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func TestSettingsOfTokenAndConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "provisioning.jwt")
	writeToken(t, file, jwt.Claims{
		Token:   secret,
		Brokers: "prov1.example.net:4222, prov2.example.net:4222",
		Default: true,
		Purpose: jwt.Purpose,
	})
	off := filepath.Join(dir, "off.conf")
	writeFile(t, off, "provision = false\n")
	missing := filepath.Join(dir, "missing")
	tests := map[string]struct {
		token, conf string
		want        []string // "label: value"
	}{
		"token": {token: file, conf: missing, want: []string{"Provisioning Default: true", "Provisioning TLS: false",
			"Provisioning Token: set",
			"Provisioning Brokers: prov1.example.net:4222, prov2.example.net:4222", "Provisioning JWT file: " + file}},
		"nothing": {token: missing, conf: missing,
			want: []string{"Provisioning Default: false", "Provisioning TLS: false", "Provisioning Token: not set",
				"Provisioning JWT file: " + missing}},
		"switched off": {token: file, conf: off, want: []string{"Provisioning Default: false"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings, problem, err := server.ReadSettings(server.Config{TokenFile: tt.token, ConfFile: tt.conf})
			if err != nil || (problem != nil) != (tt.token == missing) {
				t.Fatal(problem, err)
			}
			text := "\n"
			for _, s := range settings {
				text += fmt.Sprintf("%s: %v\n", s.Name, s.Value)
			}
			for _, want := range tt.want {
				if !strings.Contains(text, "\n"+want+"\n") {
					t.Errorf("no line %q in:%s", want, text)
				}
			}
			if strings.Contains(text, secret) {
				t.Errorf("the secret is shown:%s", text)
			}
		})
	}
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := server.New(server.Config{Identity: "Web_1", ConfFile: filepath.Join(t.TempDir(), "c"),
		SSLDir: t.TempDir()})
	if err == nil || !strings.HasPrefix(err.Error(), "server: identity: ") {
		t.Errorf("New = %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "")
	if _, err := server.New(server.Config{SSLDir: file, ConfFile: file + ".conf"}); err == nil ||
		errors.Is(err, server.ErrMode) {
		t.Errorf("New = %v, want that it is a file", err)
	}
}
