package httpapi_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/provisioner/httpapi"
)

// asks returns a client of who is served at a socket by handle.
func asks(t *testing.T, handle http.HandlerFunc) *httpapi.Client {
	t.Helper()
	l := listenAt(t)
	server := &http.Server{Handler: handle, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return httpapi.NewClient(l.Addr().String()).Hurry() // to 2 s: who is there, on a busy machine, answers in less
}

func listenAt(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), httpapi.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestWhoTakesConnectionsAndSaysNothing asks a process that was stopped: the kernel takes
// connections in its name.
func TestWhoTakesConnectionsAndSaysNothing(t *testing.T) {
	t.Parallel()
	l := listenAt(t)
	c := httpapi.NewClient(l.Addr().String()).Hurry().Hurry()
	err := c.Do(t.Context(), http.MethodGet, "/v1/nodes", nil, nil)
	if !errors.Is(err, httpapi.ErrSilent) || !strings.HasPrefix(err.Error(), l.Addr().String()+": ") || !strings.Contains(err.Error(), "may have happened") {
		t.Errorf("error = %v, want that nobody speaks at %s", err, l.Addr())
	}
	if _, _, err := c.Backup(t.Context(), ""); !errors.Is(err, httpapi.ErrSilent) {
		t.Errorf("backup: %v, want %v", err, httpapi.ErrSilent)
	}
}

// TestWhoIsThereIsWaitedFor has an answer take its time, before it begins and in the middle,
// from a provisioner that lives.
func TestWhoIsThereIsWaitedFor(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	several := func() { // looks, none of which ends it
		for range 2 {
			<-asked
		}
	}
	c := asks(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			asked <- struct{}{}
			return
		}
		several()
		if err := errors.Join(write(w, "half"), http.NewResponseController(w).Flush()); err != nil {
			t.Error(err)
		}
		several()
		if err := write(w, ", all"); err != nil {
			t.Error(err)
		}
	})
	body, _, err := c.Backup(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil || string(all) != "half, all" {
		t.Errorf("answer %q, %v", all, err)
	}
}

// TestWhoFallsSilent stops in the middle of an answer.
func TestWhoFallsSilent(t *testing.T) {
	t.Parallel()
	c := asks(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			if err := errors.Join(write(w, "half"), http.NewResponseController(w).Flush()); err != nil {
				t.Error(err)
			}
		}
		<-r.Context().Done()
	})
	body, _, err := c.Backup(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(body)
	if !errors.Is(err, httpapi.ErrSilent) || string(all) != "half" {
		t.Errorf("answer %q, %v, want half of it and %v", all, err, httpapi.ErrSilent)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
}

func write(w io.Writer, s string) error {
	_, err := io.WriteString(w, s)
	return err
}
