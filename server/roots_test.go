package server_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

// Nodes without a token or without a pin get only roots with a cross certificate by those in force.
func TestARenewalBringsNoForeignRoot(t *testing.T) {
	t.Parallel()
	other := newFleet(t)
	rolled, err := ca.Roll(other.made.Root, other.made.RootKey, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]func(f *fleet, e *wire.Enrolled, r *wire.RenewRequest) *wire.Enrolled{
		"alone": func(_ *fleet, _ *wire.Enrolled, r *wire.RenewRequest) *wire.Enrolled { return other.renewal(r) },
		"beside the one in force": func(f *fleet, e *wire.Enrolled, _ *wire.RenewRequest) *wire.Enrolled {
			e.CA += other.authority.RootsPEM()
			return e
		},
		"with words of its own": func(f *fleet, e *wire.Enrolled, _ *wire.RenewRequest) *wire.Enrolled {
			e.CA = encodePEM(rolled.Root, other.made.Root, rolled.Cross[0], rolled.Cross[1]) + f.authority.RootsPEM()
			return e
		},
	}
	for name, foreign := range tests {
		for _, gone := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, token gone %t", name, gone), func(t *testing.T) {
				t.Parallel()
				f := newFleet(t)
				cfg := f.node("web1.example.net")
				at, _ := f.member(t, cfg)
				if gone {
					if err := os.Remove(cfg.TokenFile); err != nil {
						t.Fatal(err)
					}
				}
				before := snapshot(t, cfg)
				f.set(func() {
					f.renew = func(r *wire.RenewRequest) *wire.Reply {
						return &wire.Reply{ID: r.ID, Enrolled: foreign(f, f.renewal(r), r)}
					}
				})
				a := f.run(at(life * 3 / 4))
				a.await(server.EventFailed, 2)
				if n := f.countLog("certificate not renewed", "is not trusted by the node"); n != 1 {
					t.Errorf("logged %d times, want once:\n%s", n, f.log.String())
				}
				if err := a.stop(); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(before, snapshot(t, cfg)); diff != "" {
					t.Errorf("files have changed (-was +is):\n%s", diff)
				}
			})
		}
	}
}

// A node without a token gets a root with a cross certificate by the one in force.
func TestARenewalBringsARolledRoot(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	rolled, err := ca.Roll(f.made.Root, f.made.RootKey, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	next, err := ca.New(ca.Config{Root: rolled.Root, Issuing: rolled.Issuing, Key: rolled.IssuingKey,
		TrustDomain: trustDomain,
		Previous:    []ca.Previous{{Root: f.made.Root, Issuing: f.made.Issuing, Cross: rolled.Cross}}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := f.node("web1.example.net")
	at, _ := f.member(t, cfg)
	if err := os.Remove(cfg.TokenFile); err != nil {
		t.Fatal(err)
	}
	f.stop()
	f.serverTLS.ClientCAs = next.Roots()
	f.authority = next
	f.start()
	f.set(func() {
		f.renew = func(r *wire.RenewRequest) *wire.Reply {
			e := f.renewal(r)
			e.CA = next.TrustPEM()
			return &wire.Reply{ID: r.ID, Enrolled: e}
		}
	})
	a := f.run(at(life * 3 / 4))
	a.await(server.EventConfirmed, 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, filepath.Join(cfg.SSLDir, "ca.pem")); got != next.RootsPEM() {
		t.Errorf("roots = %s, want both", got)
	}
}

// The authority is replaced and its former one removed. The node's token still pins the former one.
func TestRenewalWorksWithATokenOfAFormerAuthority(t *testing.T) {
	t.Parallel()
	for name, twice := range map[string]bool{"rolled over once": false, "rolled over twice": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			c := f.claims()
			if err := c.SetLimits(limits(f.authority.Fingerprint(), "")); err != nil {
				t.Fatal(err)
			}
			writeToken(t, cfg.TokenFile, c)
			second := f.roll(t, f.made)
			at, _ := f.member(t, cfg)
			if twice {
				f.roll(t, second)
			} else {
				f.moveTo(t, second)
			}
			a := f.run(at(life * 3 / 4))
			a.await(server.EventConfirmed, 1)
			a.await(server.EventConnected, 2)
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			if got := readFile(t, filepath.Join(cfg.SSLDir, "ca.pem")); got != f.authority.RootsPEM() {
				t.Errorf("roots = %s, want those of the authority", got)
			}
		})
	}
}

// roll replaces an authority by one with cross certificates, and moves the fleet to it.
func (f *fleet) roll(t *testing.T, from *ca.Generated) *ca.Generated {
	t.Helper()
	rolled, err := ca.Roll(from.Root, from.RootKey, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	f.moveTo(t, rolled.Generated, ca.Previous{Root: from.Root, Issuing: from.Issuing, Cross: rolled.Cross})
	return rolled.Generated
}

// moveTo has the fleet issue by another authority, its broker's certificate as well.
func (f *fleet) moveTo(t *testing.T, made *ca.Generated, previous ...ca.Previous) {
	t.Helper()
	authority, err := ca.New(ca.Config{
		Root:        made.Root,
		Issuing:     made.Issuing,
		Key:         made.IssuingKey,
		TrustDomain: trustDomain,
		Previous:    previous,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.stop()
	f.authority = authority
	f.serverTLS = f.brokerTLS(wire.RoleBroker)
	f.start()
}

// encodePEM returns certificates in PEM.
func encodePEM(certs ...*x509.Certificate) string {
	var b strings.Builder
	for _, c := range certs {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a Builder takes everything
	}
	return b.String()
}

// A node whose certificate has expired enrolls again with a token that pins no authority. It keeps to its ca.pem.
func TestAnUnpinnedTokenDoesNotReplaceTheAuthority(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	at, _ := f.member(t, cfg)
	before, ours := snapshot(t, cfg), f.authority
	f.set(func() { f.authority, f.ttl = other(t), 80*day })
	a := f.run(at(life + day))
	f.awaitLog("enrollment failed", "is not trusted by the node")
	if diff := cmp.Diff(before, snapshot(t, cfg)); diff != "" {
		t.Errorf("files have changed (-was +is):\n%s", diff)
	}
	f.set(func() { f.authority = ours })
	a.await(server.EventConfirmed, 1)
}
