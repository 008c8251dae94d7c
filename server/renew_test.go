package server_test

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

const (
	day  = 24 * time.Hour
	life = 30 * day // of the first certificate; a renewed one gets 80 days
)

func (f *fleet) onRenew(m *nats.Msg) {
	r, err := wire.DecodeRenew(m.Data)
	if err != nil {
		f.tb.Errorf("renewal: %v", err)
		return
	}
	f.note(func() { f.renews = append(f.renews, r) })
	f.mu.Lock()
	answer := f.renew
	f.mu.Unlock()
	if answer == nil {
		answer = f.renewed
	}
	f.reply(m, r.Identity, answer(r))
}

// renewed answers a renewal as a provisioner does: it checks the signature of the current key, and issues one
// certificate per key.
func (f *fleet) renewed(r *wire.RenewRequest) *wire.Reply {
	return &wire.Reply{ID: r.ID, Installation: "test", Enrolled: f.renewal(r)}
}

func (f *fleet) renewal(r *wire.RenewRequest) *wire.Enrolled {
	pub, err := x509.ParsePKIXPublicKey(r.Continuity.PublicKey)
	if err == nil {
		err = wire.CheckSignature(pub, wire.ContinuityDigest(r.ID, r.Identity, r.CSR), r.Continuity.Signature)
	}
	if err != nil {
		f.tb.Errorf("continuity of a renewal: %v", err)
	}
	key := r.Identity + string(r.CSR)
	f.mu.Lock()
	given := f.given[key]
	f.mu.Unlock()
	if given != nil {
		again := *given
		return &again
	}
	e := f.enrolled(&wire.EnrollRequest{Identity: r.Identity, CSR: r.CSR}, func(c *ca.Request, e *wire.Enrolled) {
		if c.TTL = 80 * day; f.renewedLife > 0 {
			c.TTL = f.renewedLife
		}
		e.Files = wire.Files{
			Configuration:  map[string]string{"generation": "new", "brokers": f.url()},
			ActionPolicies: map[string]string{"new": "policy default deny\n"},
			OPAPolicies:    map[string]string{"new": "package new\n"},
		}
	})
	f.set(func() { f.given[key] = e })
	again := *e
	return &again
}

// renewals returns the renewals asked for so far.
func (f *fleet) renewals() []*wire.RenewRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.renews)
}

// member provisions a node and stops its agent. The result runs an agent that much later.
func (f *fleet) member(t *testing.T, cfg server.Config) (at func(later time.Duration) server.Config, serial string) {
	t.Helper()
	a := f.run(cfg)
	serial = a.await(server.EventConfirmed, 1).Serial
	a.await(server.EventConnected, 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	return func(later time.Duration) server.Config {
		c := cfg
		c.Now = func() time.Time { return time.Now().Add(later) }
		return c
	}, serial
}

func TestACertificateIsRenewedAtTwoThirdsOfItsLife(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.FactsFile = filepath.Join(t.TempDir(), "facts.json")
	writeFile(t, cfg.FactsFile, `{"role":"web"}`)
	at, first := f.member(t, cfg)
	key := readFile(t, filepath.Join(cfg.SSLDir, "private.pem"))

	// A stage of an interrupted enrollment is of no use to the node.
	writeFile(t, filepath.Join(cfg.SSLDir, "..set-off", "private.pem"), key)
	if err := os.Symlink("..set-off", filepath.Join(cfg.SSLDir, "..next")); err != nil {
		t.Fatal(err)
	}
	a := f.run(at(life*2/3 + life/12))
	second := a.await(server.EventConfirmed, 1).Serial
	a.await(server.EventConnected, 2)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if second == first {
		t.Error("the certificate is the one before")
	}
	if got := readFile(t, filepath.Join(cfg.SSLDir, "private.pem")); got == key {
		t.Error("the key is the one before")
	}
	f.checkNew(t, snapshot(t, cfg), false)
	f.checkTidy(t, cfg)
	renewals, confirms := f.renewals(), f.confirmations()
	if len(renewals) != 1 || len(confirms) != 2 || confirms[1].Serial != second || len(f.requests()) != 1 {
		t.Fatalf("%d renewals, confirmations %+v, %d enrollments", len(renewals), confirms, len(f.requests()))
	}
	r := renewals[0]
	if r.Identity != cfg.Identity || string(r.Facts) != `{"role":"web"}` || r.Agent != "muster-server 1.2.3" ||
		r.Boot == "" || r.ID == "" {
		t.Errorf("renewal = %+v", r)
	}
	if n := f.countLog("certificate renewed", "serial="+second); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, f.log.String())
	}
	a = f.run(at(life*2/3 + life/12))
	if c := a.await(server.EventConnected, 1); c.Serial != second {
		t.Errorf("after a restart connected with %s, want %s", c.Serial, second)
	}
	if n := len(f.renewals()); n != 1 {
		t.Errorf("%d renewals, want no more: it has a life of 80 days", n)
	}
}

// A new certificate is due at once, by the machine's clock or only by the saved time. The agent must not renew over
// and over.
func TestAClockAheadRenewsOnce(t *testing.T) {
	t.Parallel()
	const ahead = life*2/3 + life/12
	for name, tt := range map[string]struct {
		clock, saved time.Duration
	}{
		"the machine's": {ahead, 0},
		"the saved one": {0, ahead},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.renewedLife = life
			cfg := f.node("web1.example.net")
			cfg.AliveInterval = 10 * time.Millisecond
			at, _ := f.member(t, cfg)
			if tt.saved > 0 {
				writeFile(t, filepath.Join(cfg.SSLDir, ".clock"), time.Now().Add(tt.saved).UTC().Format(time.RFC3339)+
					"\n")
			}
			f.run(at(tt.clock)).await(server.EventConfirmed, 1)
			alive := len(f.lifecycle("alive"))
			f.await("a few rounds of duty", func() bool { return len(f.lifecycle("alive")) > alive+10 })
			if n := len(f.renewals()); n != 1 {
				t.Errorf("%d renewals, want one", n)
			}
		})
	}
}

// Both ends of the jitter, and certificates of minutes.
func TestWhenACertificateIsRenewed(t *testing.T) {
	t.Parallel()
	issued := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		life time.Duration
		part float64
		want time.Duration // after it was issued
	}{
		"30 days, no jitter": {life, 0, 20 * day},
		"30 days, half":      {life, 0.5, 20*day + 30*time.Hour},
		"30 days, all of it": {life, 1, 22*day + 12*time.Hour},
		"an hour":            {time.Hour, 0, 40 * time.Minute},
		"a minute":           {time.Minute, 0, 40 * time.Second},
		"a minute, jitter":   {time.Minute, 1, 45 * time.Second},
	}
	for name, tt := range tests {
		leaf := &x509.Certificate{NotBefore: issued.Add(-ca.Backdate), NotAfter: issued.Add(tt.life)}
		if got := server.RenewAt(leaf, tt.part).Sub(issued); got != tt.want {
			t.Errorf("%s: renewed after %v, want %v", name, got, tt.want)
		}
	}
	// Never before the certificate begins, even if it is not backdated.
	leaf := &x509.Certificate{NotBefore: issued, NotAfter: issued.Add(4 * time.Minute)}
	if got := server.RenewAt(leaf, 0).Sub(issued); got != 160*time.Second {
		t.Errorf("four minutes in all: renewed after %v, want %v", got, 160*time.Second)
	}
}

// The node works on, and reports the refusal once.
func TestRefusedRenewals(t *testing.T) {
	t.Parallel()
	refused := func(code wire.Code) func(f *fleet) func(*wire.RenewRequest) *wire.Reply {
		return func(*fleet) func(*wire.RenewRequest) *wire.Reply {
			return func(r *wire.RenewRequest) *wire.Reply {
				return refuse(code, time.Millisecond)(&wire.EnrollRequest{ID: r.ID})
			}
		}
	}
	altered := func(edit func(*wire.Enrolled)) func(f *fleet) func(*wire.RenewRequest) *wire.Reply {
		return func(f *fleet) func(*wire.RenewRequest) *wire.Reply {
			return func(r *wire.RenewRequest) *wire.Reply {
				e := f.renewal(r)
				edit(e)
				return &wire.Reply{ID: r.ID, Enrolled: e}
			}
		}
	}
	tests := map[string]struct {
		answer func(f *fleet) func(*wire.RenewRequest) *wire.Reply
		kind   server.EventKind
		logged string
	}{
		"denied":        {refused(wire.CodeDenied), server.EventRefused, "denied"},
		"told to stop":  {refused(wire.CodeShutdown), server.EventRefused, "shutdown"},
		"not a session": {refused(wire.CodeRenewSession), server.EventRefused, "renew_session"},
		"a confirmation": {func(*fleet) func(*wire.RenewRequest) *wire.Reply {
			return func(r *wire.RenewRequest) *wire.Reply {
				return accept(&wire.Applied{ID: r.ID, Serial: "1"})
			}
		}, server.EventFailed, "want a certificate"},
		"another key's certificate": {func(f *fleet) func(*wire.RenewRequest) *wire.Reply {
			return func(r *wire.RenewRequest) *wire.Reply {
				return &wire.Reply{ID: r.ID, Enrolled: f.enrolled(f.requests()[0], nil)}
			}
		}, server.EventFailed, "another key"},
		"another digest": {altered(func(e *wire.Enrolled) {
			e.Digest = strings.Repeat("0", 64)
		}), server.EventFailed, "digest"},
		"an authority that the token does not pin": {func(f *fleet) func(*wire.RenewRequest) *wire.Reply {
			other := newFleet(f.tb)
			return func(r *wire.RenewRequest) *wire.Reply {
				return &wire.Reply{ID: r.ID, Enrolled: other.renewal(r)}
			}
		}, server.EventFailed, "pins"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			c := f.claims()
			if err := c.SetLimits(limits(f.authority.Fingerprint(), "")); err != nil {
				t.Fatal(err)
			}
			writeToken(t, cfg.TokenFile, c)
			at, _ := f.member(t, cfg)
			before := snapshot(t, cfg)
			answer := tt.answer(f)
			f.set(func() { f.renew = answer })
			a := f.run(at(life * 3 / 4))
			a.await(tt.kind, 3)
			if n := f.countLog("certificate not renewed", tt.logged); n != 1 {
				t.Errorf("logged %d times, want once:\n%s", n, f.log.String())
			}
			for name, text := range snapshot(t, cfg) {
				if before[name] != text {
					t.Errorf("%s has changed", name)
				}
			}
			renewals := f.renewals()
			for _, r := range renewals {
				if !bytes.Equal(r.CSR, renewals[0].CSR) {
					t.Error("another key or certificate request at the next try")
				}
			}
			f.set(func() { f.renew = nil })
			a.await(server.EventConfirmed, 1)
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			f.checkNew(t, snapshot(t, cfg), false)
		})
	}
}

// The reply is lost, with and without the connection, for renewal and confirmation.
func TestALostReplyIsRequestedAgain(t *testing.T) {
	t.Parallel()
	cut := func(t *testing.T, f *fleet) {
		conns, err := f.broker.Connz(&natsserver.ConnzOptions{})
		if err != nil {
			t.Error(err)
			return
		}
		for _, c := range conns.Conns {
			if c.NumSubs <= 1 { // the provisioner has one per subject
				_ = f.broker.DisconnectClientByID(c.Cid)
			}
		}
	}
	for _, step := range []string{"renewal", "confirmation"} {
		for how, lose := range map[string]func(*testing.T, *fleet){"silently": func(*testing.T, *fleet) {}, "with the connection": cut} {
			t.Run(step+" "+how, func(t *testing.T) {
				t.Parallel()
				f := newFleet(t)
				cfg := f.node("web1.example.net")
				at, first := f.member(t, cfg)
				lost := 0
				f.set(func() {
					if step == "renewal" {
						f.renew = func(r *wire.RenewRequest) *wire.Reply {
							if lost++; lost == 1 {
								lose(t, f)
								return nil
							}
							return f.renewed(r)
						}
						return
					}
					f.applied = func(a *wire.Applied) *wire.Reply {
						if lost++; lost == 1 {
							lose(t, f)
							return nil
						}
						return accept(a)
					}
				})
				due := at(life * 3 / 4)
				due.RequestTimeout = 200 * time.Millisecond
				a := f.run(due)
				if got := a.await(server.EventConfirmed, 1).Serial; got == first {
					t.Error("the certificate is the one before")
				}
				if err := a.stop(); err != nil {
					t.Fatal(err)
				}
				f.checkNew(t, snapshot(t, cfg), false)
				f.checkTidy(t, cfg)
				if n := len(f.requests()); n != 1 {
					t.Errorf("%d enrollments, want the first alone", n)
				}
			})
		}
	}
}

// The node falls back to its token, with the staged key and a signature by the key in force.
func TestACertificateThatEndsDuringItsRenewal(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	at, _ := f.member(t, cfg)
	old := readFile(t, filepath.Join(cfg.SSLDir, "private.pem"))
	f.set(func() { f.renew = func(*wire.RenewRequest) *wire.Reply { return nil } })
	due := at(life * 3 / 4)
	due.RequestTimeout = 50 * time.Millisecond
	a := f.run(due)
	f.await("a renewal", func() bool { return len(f.renewals()) > 0 })
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	later := at(life + day)
	f.set(func() { f.ttl = 80 * day })
	a = f.run(later)
	a.await(server.EventConfirmed, 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	requests := f.requests()
	last := requests[len(requests)-1]
	if !bytes.Equal(last.CSR, f.renewals()[0].CSR) {
		t.Error("it enrolled with another key than it asked to be renewed to")
	}
	if last.Continuity == nil {
		t.Fatal("the key that it held does not vouch for the new one")
	}
	block, _ := pem.Decode([]byte(old))
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := x509.ParsePKIXPublicKey(last.Continuity.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := wire.CheckSignature(pub, wire.ContinuityDigest(last.ID, last.Identity, last.CSR),
		last.Continuity.Signature); err != nil {
		t.Error(err)
	}
	spki, err := x509.MarshalPKIXPublicKey(key.(crypto.Signer).Public())
	if err != nil || !bytes.Equal(spki, last.Continuity.PublicKey) {
		t.Errorf("another key than the one in force vouches (%v)", err)
	}
	if requests[0].Continuity != nil {
		t.Errorf("the first enrollment has %+v", requests[0].Continuity)
	}
}

// The agent restarts between request and reply: the provisioner may have answered, so the random schedule does not
// count.
func TestAnInterruptedRenewalContinuesAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	at, _ := f.member(t, cfg)
	f.set(func() { f.renew = func(*wire.RenewRequest) *wire.Reply { return nil } })
	early := at(life*2/3 + time.Hour)
	early.SetRandom(func() float64 { return 0 })
	early.RequestTimeout = 50 * time.Millisecond
	a := f.run(early)
	f.await("a renewal", func() bool { return len(f.renewals()) > 0 })
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.renew = nil })
	before := len(f.renewals())
	early.SetRandom(func() float64 { return 0.99 })
	early.RequestTimeout = patience
	a = f.run(early)
	a.await(server.EventConfirmed, 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if r := f.renewals(); !bytes.Equal(r[before].CSR, r[0].CSR) {
		t.Error("another key or certificate request after the restart")
	}
	f.checkNew(t, snapshot(t, cfg), false)
	f.checkTidy(t, cfg)
}
