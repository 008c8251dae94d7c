package httpapi_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner/httpapi"
)

// TestABackupIsCutOff lets a backup fail before and after its beginning: the
// client is told why, or finds that it has no end.
func TestABackupIsCutOff(t *testing.T) {
	t.Parallel()
	failed := errors.New("the store is away")
	for name, tt := range map[string]struct {
		begin, write error
		body, says   string
	}{
		"before": {begin: failed, says: "the store is away"},
		"after":  {write: failed, body: "half", says: "EOF"},
		"never":  {body: "half"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := serve(t, httpapi.Config{Backup: func(_ context.Context, by string, started func(uint64),
				w io.Writer) error {
				if by == "" {
					t.Error("no operator asked")
				}
				if tt.begin != nil {
					return tt.begin
				}
				started(7)
				if _, err := io.WriteString(w, tt.body); err != nil {
					return err
				}
				return tt.write
			}})
			body, messages, err := client.Backup(t.Context(), "")
			if tt.begin != nil {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%v, want %q", err, tt.says)
				}
				return
			}
			if err != nil || messages != 7 {
				t.Fatalf("%d messages, %v", messages, err)
			}
			defer func() { _ = body.Close() }()
			got, err := io.ReadAll(body)
			if tt.write == nil {
				if err != nil || string(got) != tt.body {
					t.Errorf("%q, %v", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("a backup that was cut off: %q, %v", got, err)
			}
		})
	}
}

// serve serves what cfg has until the test ends, with a provisioner of its own, and on
// a socket of its own if cfg names none.
func serve(t *testing.T, cfg httpapi.Config) *httpapi.Client {
	t.Helper()
	f := testbed.New(t, testbed.Options{})
	if cfg.Socket == "" {
		cfg.Socket = filepath.Join(t.TempDir(), "control")
	}
	cfg.Provisioner = f.Daemon().Operator()
	cfg.Orders = f.Daemon().Orders()
	cfg.Log, cfg.Now = slog.New(slog.DiscardHandler), time.Now
	s := httpapi.New(cfg)
	running(t, s)
	return observed(httpapi.NewClient(cfg.Socket))
}

// running opens a server and runs it until the test ends.
func running(t *testing.T, s *httpapi.Server) {
	t.Helper()
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
