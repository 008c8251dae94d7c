package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

func TestNoClockIsTrusted(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		ahead time.Duration // of the machine's clock
		saved string        // time on disk
	}{
		"a clock at 1970":                    {-50 * 365 * 24 * time.Hour, ""},
		"a clock at 1970 and a time on disk": {-50 * 365 * 24 * time.Hour, time.Now().UTC().Format(time.RFC3339)},
		"rubbish on disk":                    {0, "tomorrow"},
		"a pipe that nobody writes to":       {0, "pipe"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			clock := newClock()
			clock.advance(tt.ahead)
			cfg := f.node("web1.example.net")
			cfg.Now = clock.now
			saved := filepath.Join(cfg.SSLDir, ".clock")
			switch tt.saved {
			case "":
			case "pipe":
				if err := errors.Join(os.MkdirAll(filepath.Dir(saved), 0o755), unix.Mkfifo(saved, 0o600)); err != nil {
					t.Fatal(err)
				}
			default:
				writeFile(t, saved, tt.saved)
			}
			a := f.run(cfg)
			a.await(server.EventConfirmed, 1)
			a.await(server.EventConnected, 1)
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			a = f.run(cfg)
			a.await(server.EventConnected, 1)
		})
	}
}

// On a machine whose clock is ahead, a new certificate has expired. The agent says so, and goes on once the clock is
// right.
func TestAClockAheadIsReported(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	clock := newClock()
	clock.advance(365 * 24 * time.Hour)
	cfg := f.node("web1.example.net")
	cfg.Now = clock.now
	a := f.run(cfg)
	a.await(server.EventFailed, 1)
	f.awaitLog("certificate has expired", "correct this machine's clock")
	clock.advance(-365 * 24 * time.Hour)
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
}

// TestATimeAYearAheadIsNotSaved: no certificate is valid by that clock, so the node is not connected and saves no
// time that would lock it out later.
func TestATimeAYearAheadIsNotSaved(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	clock := newClock()
	cfg := f.node("web1.example.net")
	cfg.Now = clock.now
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	clock.advance(365 * day)
	a.await(server.EventFailed, 2)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	clock.advance(-365 * day)
	f.run(cfg).await(server.EventConnected, 1)
}

func TestTheSavedTimeCountsAfterTheClockWentBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.set(func() { f.ttl = time.Hour })
	cfg := f.node("web1.example.net")
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.ttl = 24 * time.Hour })
	writeFile(t, filepath.Join(cfg.SSLDir, ".clock"), time.Now().Add(2*time.Hour).UTC().Format(time.RFC3339))
	a = f.run(cfg)
	if e := a.await(server.EventMode, 1); e.Mode != server.ModeProvisioning {
		t.Errorf("mode %v with a certificate that is over, want provisioning", e.Mode)
	}
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
}

// A testClock is a clock that a test moves.
type testClock struct {
	mu     sync.Mutex
	offset time.Duration
}

func newClock() *testClock { return &testClock{} }

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

// The broker renewed its certificate after the node got its own, and the node has no clock.
func TestABrokersNewerCertificateProvesTheTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	clock := newClock()
	clock.advance(-50 * 365 * 24 * time.Hour)
	cfg := f.node("web1.example.net")
	cfg.Now = clock.now
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
	later, err := ca.New(ca.Config{Root: f.made.Root, Issuing: f.made.Issuing, Key: f.made.IssuingKey,
		TrustDomain: trustDomain,
		Now:         func() time.Time { return time.Now().Add(10 * 24 * time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	f.stop()
	f.authority = later
	f.serverTLS = f.brokerTLS(wire.RoleBroker)
	f.start()
	a.await(server.EventConnected, 2)
}

// The clock is set back by days shortly before the renewal; the process's clock still counts.
func TestARenewalIsDueWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.SetRandom(func() float64 { return 0 })
	f.member(t, cfg)
	clock := newClock()
	clock.advance(life*2/3 - 2*time.Second)
	cfg.Now = clock.now
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	clock.advance(-10 * day)
	a.await(server.EventConfirmed, 1)
	if n := len(f.renewals()); n != 1 {
		t.Errorf("%d renewals", n)
	}
}
