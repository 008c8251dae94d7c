package server_test

import (
	"os"
	"path/filepath"
	"testing"

	"muster/server"
)

// Wherever server.conf is and whatever is in its place, the node ends with the
// new one there, and nothing of anybody's is lost.
func TestWhatStandsInThePlaceOfTheConfiguration(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		prepare func(t *testing.T, cfg *server.Config)
		kept    string // a file that must still say "mine", relative to the directory of both
	}{
		"a directory": {func(t *testing.T, cfg *server.Config) {
			writeFile(t, filepath.Join(cfg.ConfFile, "mine"), "mine")
		}, "server.conf.replaced.1/mine"},
		"a directory in the directory of the set": {func(t *testing.T, cfg *server.Config) {
			cfg.ConfFile = filepath.Join(cfg.SSLDir, "server.conf")
			writeFile(t, filepath.Join(cfg.ConfFile, "mine"), "mine")
		}, "ssl/server.conf.replaced.1/mine"},
		"a file cut short": {func(t *testing.T, cfg *server.Config) { writeFile(t, cfg.ConfFile, "provis") }, ""},
		"an empty file":    {func(t *testing.T, cfg *server.Config) { writeFile(t, cfg.ConfFile, "") }, ""},
		"a file of zeros":  {func(t *testing.T, cfg *server.Config) { writeFile(t, cfg.ConfFile, string(make([]byte, 4096))) }, ""},
		"a dangling link": {func(t *testing.T, cfg *server.Config) {
			writeFile(t, filepath.Join(filepath.Dir(cfg.ConfFile), "x"), "")
			if err := os.Symlink("nowhere", cfg.ConfFile); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"a link to somebody's file": {func(t *testing.T, cfg *server.Config) {
			writeFile(t, filepath.Join(filepath.Dir(cfg.ConfFile), "managed"), "mine")
			if err := os.Symlink("managed", cfg.ConfFile); err != nil {
				t.Fatal(err)
			}
		}, "managed"},
		"nothing, and a configuration left in the set": {func(t *testing.T, cfg *server.Config) {
			writeFile(t, filepath.Join(cfg.SSLDir, "server.conf"), "brokers = 127.0.0.1:1\n")
		}, ""},
		"a directory of the set that is a link": {func(t *testing.T, cfg *server.Config) {
			real := filepath.Join(filepath.Dir(cfg.TokenFile), "elsewhere", "real")
			writeFile(t, filepath.Join(real, "mine"), "mine")
			writeFile(t, filepath.Join(filepath.Dir(cfg.SSLDir), "x"), "")
			if err := os.Symlink(real, cfg.SSLDir); err != nil {
				t.Fatal(err)
			}
		}, "ssl/mine"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.generation()
			cfg := f.node("web1.example.net")
			tt.prepare(t, &cfg)
			a := f.run(cfg)
			a.await(server.EventConfirmed, 1)
			a.await(server.EventConnected, 1)
			shows := snapshot(t, cfg)
			if shows["CONF"] == "" || shows["CONF"] != readFile(t, filepath.Join(cfg.SSLDir, "server.conf")) {
				t.Errorf("server.conf shows %q", shows["CONF"])
			}
			if tt.kept != "" && readFile(t, filepath.Join(filepath.Dir(cfg.SSLDir), tt.kept)) != "mine" {
				t.Errorf("%s is lost", tt.kept)
			}
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			f.run(cfg).await(server.EventConnected, 1)
		})
	}
}

// Files of others are the same files afterwards, not copies.
func TestFilesOfOthersStayOpen(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.generation()
	cfg := f.node("web1.example.net")
	path := filepath.Join(cfg.SSLDir, "app.log")
	writeFile(t, path, "one\n")
	w, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fi, err := os.Stat(cfg.SSLDir)
	if err != nil {
		t.Fatal(err)
	}
	late := filepath.Join(cfg.SSLDir, "late.txt")
	cfg.SetSteps(func(step string) {
		if step == "carried" {
			writeFile(t, late, "mine")
		}
	})
	f.run(cfg).await(server.EventConfirmed, 1)
	if _, err := w.WriteString("two\n"); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, path); got != "one\ntwo\n" {
		t.Errorf("app.log = %q", got)
	}
	if got := readFile(t, late); got != "mine" {
		t.Errorf("late.txt = %q", got)
	}
	after, err := os.Stat(cfg.SSLDir)
	if err != nil {
		t.Fatal(err)
	}
	if after.Mode() != fi.Mode() {
		t.Errorf("directory has mode %v, had %v", after.Mode(), fi.Mode())
	}
}
