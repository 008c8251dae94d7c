package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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
		"a time on disk far ahead":           {0, "2099-01-01T00:00:00Z"},
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
			saved := filepath.Join(filepath.Dir(cfg.SSLDir), ".ssl.clock")
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
			if strings.HasPrefix(readFile(t, saved), "2099") {
				t.Error("the time far ahead is still on disk")
			}
			a = f.run(cfg)
			a.await(server.EventConnected, 1)
		})
	}
}

// A machine whose clock is ahead takes what it is given for over. It says so, and
// goes on once the clock is right.
func TestAClockAheadIsToBeSet(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	clock := newClock()
	clock.advance(365 * 24 * time.Hour)
	cfg := f.node("web1.example.net")
	cfg.Now = clock.now
	a := f.run(cfg)
	a.await(server.EventFailed, 1)
	f.awaitLog("certificate has expired", "set the clock that is wrong")
	clock.advance(-365 * 24 * time.Hour)
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
}

// A machine whose clock has gone back knows all the same that time has passed.
func TestATimeOnDiskIsNotUndone(t *testing.T) {
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
	writeFile(t, filepath.Join(filepath.Dir(cfg.SSLDir), ".ssl.clock"), time.Now().Add(2*time.Hour).UTC().Format(time.RFC3339))
	a = f.run(cfg)
	if e := a.await(server.EventMode, 1); e.Mode != server.ModeProvisioning {
		t.Errorf("mode %v with a certificate that is over, want provisioning", e.Mode)
	}
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
}

// A clock that was far ahead for a moment leaves its time on disk, and a token that
// is good no more brings no certificate that shows it to be wrong: the brokers take
// the one that the node has, as does the node itself where it has no token.
func TestATimeOnDiskFarAheadKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(*testing.T, *fleet, server.Config){
		"token refused": func(_ *testing.T, f *fleet, _ server.Config) {
			f.set(func() { f.enroll = refuse(wire.CodeTokenExpired, time.Hour) })
		},
		"no token": func(t *testing.T, _ *fleet, cfg server.Config) {
			t.Helper()
			if err := os.Remove(cfg.TokenFile); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			a := f.run(cfg)
			a.await(server.EventConfirmed, 1)
			serial := a.await(server.EventConnected, 1).Serial
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			saved := filepath.Join(filepath.Dir(cfg.SSLDir), ".ssl.clock")
			writeFile(t, saved, "2099-01-01T00:00:00Z")
			breaks(t, f, cfg)
			a = f.run(cfg)
			if got := a.await(server.EventConnected, 1).Serial; got != serial {
				t.Errorf("back with certificate %s, want %s", got, serial)
			}
			f.awaitLog("saved time dropped")
			if strings.HasPrefix(readFile(t, saved), "2099") {
				t.Error("the time far ahead is still on disk")
			}
		})
	}
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

// TestASavedTimeFarAheadKeepsNoNewNodeOutOfTLS boots a machine whose clock is decades
// ahead for a moment: every broker's certificate is over by the time that is saved. A
// clock that is not set proves nothing against it: it is behind the token.
func TestASavedTimeFarAheadKeepsNoNewNodeOutOfTLS(t *testing.T) {
	t.Parallel()
	const decades = 20 * 365 * 24 * time.Hour
	f := newFleet(t)
	clock := newClock()
	clock.advance(decades)
	cfg := f.node("web1.example.net")
	cfg.Now = clock.now
	c := f.claims()
	c.Secure, c.Brokers, c.IssuedAt = true, "localhost:"+itoa(f.port), time.Now().Add(-time.Hour)
	if err := c.SetLimits(limits(f.authority.Fingerprint(), "")); err != nil {
		t.Fatal(err)
	}
	writeToken(t, cfg.TokenFile, c)
	a := f.run(cfg)
	a.await(server.EventFailed, 1)
	clock.advance(-2 * decades) // its battery is empty
	a.await(server.EventFailed, 3)
	if n := len(f.requests()); n > 0 {
		t.Fatalf("%d requests to a broker whose certificate is over by the time that was saved", n)
	}
	clock.advance(decades) // the time service
	a.await(server.EventConfirmed, 1)
}

// TestACertificateIsRenewedWithoutAClock has a machine whose clock stays in 1970, with or
// without a time on its disk: time goes on for it all the same.
func TestACertificateIsRenewedWithoutAClock(t *testing.T) {
	t.Parallel()
	const decades = 50 * 365 * 24 * time.Hour
	without := func(cfg *server.Config) (saved string) {
		clock := newClock()
		clock.advance(-decades)
		cfg.Now = clock.now
		return filepath.Join(filepath.Dir(cfg.SSLDir), ".ssl.clock")
	}
	t.Run("a time on disk", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		f.set(func() { f.ttl = 24 * time.Hour })
		cfg := f.node("web1.example.net")
		cfg.Rand = func() float64 { return 0 } // due after 16 hours
		saved := without(&cfg)
		f.member(t, cfg)
		writeFile(t, saved, time.Now().Add(16*time.Hour-3*time.Second).UTC().Format(time.RFC3339))
		a := f.run(cfg)
		f.await("a renewal", func() bool { return len(f.renewals()) > 0 })
		a.await(server.EventConfirmed, 1)
		if n := len(f.requests()); n != 1 {
			t.Errorf("%d enroll requests, want the first alone", n)
		}
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		cfg := f.node("web1.example.net")
		saved := without(&cfg)
		f.member(t, cfg)
		at, err := time.Parse(time.RFC3339, strings.TrimSpace(readFile(t, saved)))
		if since := time.Since(at); err != nil || since > time.Hour {
			t.Errorf("the time on disk is %v, %v, want that at which the certificate begins, or a later one", at, err)
		}
	})
}

// TestATimeAheadOnDiskIsCaughtUpWith has a time on disk that is ahead of a clock that is
// right: it stays what it is, so that the clock gets there.
func TestATimeAheadOnDiskIsCaughtUpWith(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	f.member(t, cfg)
	saved := filepath.Join(filepath.Dir(cfg.SSLDir), ".ssl.clock")
	ahead := time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + "\n"
	writeFile(t, saved, ahead)
	cfg.AliveInterval = 20 * time.Millisecond // with each it is saved
	a := f.run(cfg)
	start := time.Now()
	f.await("two seconds of alive events", func() bool { return time.Since(start) > 2*time.Second && len(f.lifecycle("alive")) > 1 })
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, saved); got != ahead {
		t.Errorf("the time on disk is %q, want %q still", got, ahead)
	}
}

// TestABrokersNewerCertificateProvesTheTime has a node without a clock meet a broker
// that has renewed its certificate since the node got its own.
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
	later, err := ca.New(ca.Config{Root: f.made.Root, Issuing: f.made.Issuing, Key: f.made.IssuingKey, TrustDomain: trustDomain,
		Now: func() time.Time { return time.Now().Add(10 * 24 * time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	f.stop()
	f.authority = later
	f.serverTLS = f.brokerTLS(wire.RoleBroker)
	f.start()
	a.await(server.EventConnected, 2)
}

// TestARenewalIsDueWhereTheClockIsSetBack has the clock of a node that works be set back by
// days, shortly before it renews: the process knows when that was to be.
func TestARenewalIsDueWhereTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.Rand = func() float64 { return 0 }
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

// TestASleepCountsWhileItEnrolls has a machine sleep for an hour that was told to come back
// after one.
func TestASleepCountsWhileItEnrolls(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.set(func() { f.enroll = refuse(wire.CodeBusy, time.Hour) })
	clock := newClock()
	cfg := f.node("web1.example.net")
	cfg.Now = clock.now
	a := f.run(cfg)
	a.await(server.EventRefused, 1)
	f.set(func() { f.enroll = nil })
	deadline := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for len(f.requests()) < 2 { // it may not have begun to wait yet
		select {
		case <-tick.C:
			clock.advance(2 * time.Hour) // up to a quarter more than was told
		case <-deadline:
			t.Fatalf("it sleeps on; log:\n%s", f.log.String())
		}
	}
	a.await(server.EventConfirmed, 1)
}

// TestASleepCounts has a machine sleep for an hour: the process's clock stands still
// meanwhile, and what was put off for an hour is due all the same.
func TestASleepCounts(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.set(func() {
		f.renew = func(r *wire.RenewRequest) *wire.Reply {
			return refuse(wire.CodeBusy, time.Hour)(&wire.EnrollRequest{ID: r.ID})
		}
	})
	clock := newClock()
	cfg := f.node("web1.example.net")
	cfg.Now = clock.now
	cfg.AliveInterval = time.Hour
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	clock.advance(life * 3 / 4)
	a.await(server.EventRefused, 1)
	f.await("an alive event", func() bool { return len(f.lifecycle("alive")) == 1 })
	clock.advance(time.Hour)
	a.await(server.EventRefused, 2)
	f.await("another one", func() bool { return len(f.lifecycle("alive")) == 2 })
	f.set(func() { f.renew = nil })
	clock.advance(time.Hour)
	a.await(server.EventConfirmed, 2)
}
