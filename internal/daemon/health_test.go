package daemon_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/daemon"
	"muster/internal/setup"
)

// urlHandler is a log that sends the URL of probes.
type urlHandler struct {
	slog.Handler
	urls chan string
}

func (h urlHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h urlHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "probes are answered" {
		r.Attrs(func(a slog.Attr) bool {
			h.urls <- a.Value.String()
			return false
		})
	}
	return nil
}

// probed runs a provisioner and returns the URL of its probes, before it serves and after.
func probed(t *testing.T, dir string, edit func(*daemon.Config)) (url string, serving <-chan struct{}) {
	t.Helper()
	urls, ready, ended := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	d, err := daemon.LoadWith(filepath.Join(dir, "provisioner.yaml"),
		daemon.Options{Log: slog.New(urlHandler{slog.DiscardHandler, urls})}, edit)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- d.Run(ctx, func() { close(ready) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !strings.Contains(err.Error(), context.Canceled.Error()) {
			t.Errorf("Run = %v", err)
		}
	})
	select {
	case url = <-urls:
	case err := <-ended:
		t.Fatal(err)
	}
	return url, ready
}

func wantAnswer(t *testing.T, r *http.Request, status int, part string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != status || !strings.Contains(string(b), part) {
		t.Errorf("%s: %d, %.300s, %v, want %d and %q", r.URL, resp.StatusCode, b, err, status, part)
	}
}

func get(t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestProbes asks the port of health.listen of provisioners with and without metrics.
func TestProbes(t *testing.T) {
	t.Parallel()
	for name, metrics := range map[string]bool{"without metrics": false, "with metrics": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, serving := probed(t, install(t, nil), func(c *daemon.Config) {
				c.Health = daemon.HealthConfig{Listen: "127.0.0.1:0", Metrics: metrics}
			})
			<-serving
			wantAnswer(t, get(t, url+"/healthz"), http.StatusOK, `"ok"`)
			wantAnswer(t, get(t, url+"/readyz"), http.StatusOK, `"ok"`)
			wantAnswer(t, get(t, url+"/v1/nodes"), http.StatusNotFound, "")
			if metrics {
				wantAnswer(t, get(t, url+"/metrics"), http.StatusOK, "muster_")
			} else {
				wantAnswer(t, get(t, url+"/metrics"), http.StatusNotFound, "")
			}
			large := get(t, url+"/healthz")
			large.Header.Set("X", strings.Repeat("x", 64<<10))
			wantAnswer(t, large, http.StatusRequestHeaderFieldsTooLarge, "")
		})
	}
}

// TestProbesOfAWaitingProvisioner: a provisioner whose cluster does not answer lives and is not ready.
func TestProbesOfAWaitingProvisioner(t *testing.T) {
	t.Parallel()
	dir := install(t, func(s *setup.Installation) { s.Listen, s.Cluster = "", "tls://127.0.0.1:9" })
	url, _ := probed(t, dir, func(c *daemon.Config) {
		c.Health = daemon.HealthConfig{Listen: "127.0.0.1:0", Metrics: true}
	})
	wantAnswer(t, get(t, url+"/healthz"), http.StatusOK, `"ok"`)
	wantAnswer(t, get(t, url+"/readyz"), http.StatusServiceUnavailable, "not ready: provisioner")
	wantAnswer(t, get(t, url+"/metrics"), http.StatusOK, "muster_")
}
