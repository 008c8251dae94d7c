package server_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/internal/keyfile"
	"muster/server"
)

// The agent neither uses the key nor replaces it, which would cost the node its name, and goes on once the mode is
// corrected.
func TestAnExposedKeyIsNotUsed(t *testing.T) {
	t.Parallel()
	for name, conf := range map[string]string{"as it was": "",
		"an operator says provision = true": "provision = true\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			attempt(t, f, cfg, server.EventConnected)
			if conf != "" {
				writeFile(t, cfg.ConfFile, conf)
			}
			key := filepath.Join(cfg.SSLDir, "private.pem")
			chmod(t, key, 0o640)
			before := snapshot(t, cfg)
			err := runOnce(t, cfg)
			if !errors.Is(err, server.ErrMode) || !errors.Is(err, keyfile.ErrExposed) ||
				!strings.Contains(err.Error(), "mode 0640 lets other users in: chmod 600 "+key) {
				t.Errorf("Run = %v, want %v and the command to run", err, server.ErrMode)
			}
			if diff := cmp.Diff(before, snapshot(t, cfg)); diff != "" {
				t.Errorf("files (-before +after):\n%s", diff)
			}
			if n := len(f.requests()); n != 1 {
				t.Errorf("%d requests, want the first alone", n)
			}
			chmod(t, key, 0o600)
			f.run(cfg).await(server.EventConnected, 1)
		})
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// runOnce runs an agent that ends by itself.
func runOnce(t *testing.T, cfg server.Config) error {
	t.Helper()
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return s.Run(ctx)
}
