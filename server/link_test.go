package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/server"
)

// Whatever is in the place of server.conf, the node ends with the new file there, and no other file is lost.
func TestWhateverIsInThePlaceOfServerConf(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		prepare func(t *testing.T, cfg *server.Config)
		kept    string // must keep its content; relative to the directory of both
	}{
		"a file cut short": {func(t *testing.T, cfg *server.Config) { writeFile(t, cfg.ConfFile, "provis") }, ""},
		"an empty file":    {func(t *testing.T, cfg *server.Config) { writeFile(t, cfg.ConfFile, "") }, ""},
		"a file of zeros": {func(t *testing.T, cfg *server.Config) {
			writeFile(t, cfg.ConfFile, string(make([]byte, 4096)))
		}, ""},
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
			if !strings.Contains(shows["CONF"], "generation = new") {
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
