package httpapi_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// TestWhoIsRemovedGetsNoMoreOfAStream removes operators while they take a backup and what
// decisions saw, which go on for long: they are cut off, as those are who follow events.
func TestWhoIsRemovedGetsNoMoreOfAStream(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	// endless writes for as long as somebody takes it.
	endless := func(ctx context.Context, w io.Writer) error {
		some := strings.Repeat(" ", 8<<10) + "\n" // more than the server holds back
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := io.WriteString(w, some); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	borrowed := httptest.NewTLSServer(nil) // its certificate is one for loopback
	t.Cleanup(borrowed.Close)
	socket := filepath.Join(t.TempDir(), "control")
	s, err := httpapi.New(httpapi.Config{
		Socket: socket, Provisioner: f.Daemon().Operator(), Now: f.Clock.Now,
		HTTPS: &httpapi.HTTPSConfig{Listen: "127.0.0.1:0", Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &borrowed.TLS.Certificates[0], nil }},
		Backup: func(ctx context.Context, _ string) (uint64, func(io.Writer) error, error) {
			return 7, func(w io.Writer) error { return endless(ctx, w) }, nil
		},
		Inputs: func(ctx context.Context, _ time.Duration, started func(uint64), w io.Writer) error {
			started(7)
			return endless(ctx, w)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	running(t, s)
	pool := x509.NewCertPool()
	pool.AddCert(borrowed.Certificate())
	key, public := newKey(t)
	for _, name := range []string{"anna", "ben"} {
		if _, err := f.Daemon().Operator().AddOperator(f.Context(), provisioner.NewOperator{Name: name, Role: provisioner.RoleAdmin, Public: public}, testbed.Operator()); err != nil {
			t.Fatal(err)
		}
	}
	as := func(name string) *httpapi.Client {
		t.Helper()
		c, err := httpapi.NewRemote(s.URL(), httpapi.Credential{Roots: pool}, signedBy(t, f, key, name))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	backup, _, err := as("anna").Backup(f.Context(), "a test")
	if err != nil {
		t.Fatal(err)
	}
	inputs, _, err := as("ben").Inputs(f.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	here, _, err := httpapi.NewClient(socket).Backup(f.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []io.ReadCloser{backup, inputs, here} {
		t.Cleanup(func() { _ = b.Close() })
		if _, err := io.ReadFull(b, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
	}
	// One is removed, the other one may do less than that by now.
	if err := f.Daemon().Operator().RemoveOperator(f.Context(), "anna", testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Daemon().Operator().AddOperator(f.Context(), provisioner.NewOperator{Name: "ben", Role: provisioner.RoleViewer, Public: public}, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]io.Reader{"anna's backup": backup, "ben's inputs": inputs} {
		cut := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, b)
			cut <- err
		}()
		select {
		case err := <-cut:
			if err == nil {
				t.Errorf("%s has an end, as if it were whole", name)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s goes on", name)
		}
	}
	if _, err := io.ReadFull(here, make([]byte, 256<<10)); err != nil {
		t.Errorf("who takes a backup at the socket: %v", err)
	}
	var p *httpapi.Problem
	if _, _, err := as("anna").Backup(f.Context(), "a test"); !errors.As(err, &p) || p.Status != http.StatusUnauthorized {
		t.Errorf("who was removed asks again: %v", err)
	}
}
