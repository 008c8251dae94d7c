package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"muster/internal/conffile"
	"muster/internal/wire"
	"muster/provisioner/ca"
)

// newCertificate returns a broker's certificate of this lifetime by a new authority.
func newCertificate(t *testing.T, life time.Duration) (*ownCertificate, *x509.CertPool) {
	t.Helper()
	return newCertificateBy(t, life, time.Now)
}

// newCertificateBy is newCertificate by another clock.
func newCertificateBy(t *testing.T, life time.Duration, clock func() time.Time) (*ownCertificate, *x509.CertPool) {
	t.Helper()
	g, err := ca.Generate("fleet.test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var parsed []*x509.Certificate
	for _, text := range []string{g.RootPEM, g.IssuingPEM} {
		c, err := ca.ParseCertificates([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, c...)
	}
	authority, err := ca.New(ca.Config{
		Root:        parsed[0],
		Issuing:     parsed[1],
		Key:         g.IssuingKey,
		TrustDomain: "fleet.test",
		MaxTTL:      life,
		DefaultTTL:  life,
		Now:         clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Name, cfg.Certificates.MaxLifetime = "broker.fleet.test", conffile.Span(life)
	cfg.Broker.Names, cfg.Broker.Addresses = []string{"nats.fleet.test"}, []string{"192.0.2.1", "2001:db8::1"}
	opts := Options{Now: clock, Log: slog.New(slog.DiscardHandler)}
	return newOwnCertificate("broker", cfg.ownRequest(), p256, authority, opts), authority.Roots()
}

// leafOf checks that a node would accept the certificate now, and returns its leaf.
func leafOf(t *testing.T, c tls.Certificate, roots *x509.CertPool) *x509.Certificate {
	t.Helper()
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	between := x509.NewCertPool()
	for _, der := range c.Certificate[1:] {
		i, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		between.AddCert(i)
	}
	for _, name := range []string{"nats.fleet.test", "192.0.2.1", "2001:db8::1"} {
		if _, err := leaf.Verify(x509.VerifyOptions{
			Roots:         roots,
			Intermediates: between,
			CurrentTime:   time.Now(),
			DNSName:       name,
		}); err != nil {
			t.Errorf("for %s: %v", name, err)
		}
	}
	if role, _, err := wire.RoleOf(leaf, "fleet.test"); err != nil || role != wire.RoleBroker {
		t.Errorf("role %s, %v", role, err)
	}
	if len(c.Certificate) < 3 {
		t.Errorf("%d certificates, want the root among them: a node may know only its hash", len(c.Certificate))
	}
	return leaf
}

// TestTheBrokersCertificateIsRenewedInTime runs for a year. At every moment the certificate has a third of its life
// left, or nearly.
func TestTheBrokersCertificateIsRenewedInTime(t *testing.T) {
	t.Parallel()
	for _, life := range []time.Duration{time.Minute, time.Hour, 2160 * time.Hour} {
		t.Run(life.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, roots := newCertificate(t, life)
				first, err := c.issue()
				if err != nil {
					t.Fatal(err)
				}
				leaf := leafOf(t, first, roots)
				ctx, stop := context.WithCancel(t.Context())
				shown, ended := make(chan tls.Certificate), make(chan error, 1)
				go func() {
					ended <- c.run(ctx, func(next tls.Certificate) { shown <- next })
				}()
				for range 5 {
					next := leafOf(t, <-shown, roots)
					left := time.Until(leaf.NotAfter)
					if left > life/3+time.Minute || left < life/5 {
						t.Errorf("of %v, the one before had %v left", life, left)
					}
					if !next.NotAfter.After(leaf.NotAfter) || next.SerialNumber.Cmp(leaf.SerialNumber) == 0 ||
						slices.Equal(next.RawSubjectPublicKeyInfo, leaf.RawSubjectPublicKeyInfo) {
						t.Errorf("certificate %v until %v follows %v until %v, want a new key and a later end",
							next.SerialNumber, next.NotAfter, leaf.SerialNumber, leaf.NotAfter)
					}
					leaf = next
				}
				stop()
				if err := <-ended; err != nil {
					t.Errorf("run = %v", err)
				}
			})
		})
	}
}

// TestAnAuthorityThatCannotIssueIsAskedAgain starts a year before the authority, as with a dead clock battery.
func TestAnAuthorityThatCannotIssueIsAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var right atomic.Bool
		c, _ := newCertificateBy(t, 90*24*time.Hour, func() time.Time {
			if right.Load() {
				return time.Now()
			}
			return time.Now().AddDate(-1, 0, 0)
		})
		if _, err := c.issue(); !errors.Is(err, ca.ErrAuthority) {
			t.Fatalf("issue = %v, want %v", err, ca.ErrAuthority)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		shown := make(chan time.Time)
		go func() { _ = c.run(ctx, func(tls.Certificate) { shown <- time.Now() }) }()
		select {
		case <-shown:
			t.Fatal("a certificate of an authority that is not valid yet")
		case <-time.After(24 * time.Hour):
		}
		right.Store(true)
		start := time.Now()
		if got := (<-shown).Sub(start); got > certificateCheckInterval {
			t.Errorf("a certificate after %v, want within %v", got, certificateCheckInterval)
		}
	})
}

func TestABrokersAddressesAreAddresses(t *testing.T) {
	t.Parallel()
	c, roots := newCertificate(t, time.Hour)
	issued, err := c.issue()
	if err != nil {
		t.Fatal(err)
	}
	leaf := leafOf(t, issued, roots)
	if want := []net.IP{net.ParseIP("192.0.2.1"), net.ParseIP("2001:db8::1")}; !slices.EqualFunc(leaf.IPAddresses,
		want, net.IP.Equal) {
		t.Errorf("addresses %v, want %v", leaf.IPAddresses, want)
	}
	if !slices.Contains(leaf.DNSNames, "nats.fleet.test") {
		t.Errorf("names %v", leaf.DNSNames)
	}
}

// TestACertificateFromTheFutureIsReplaced starts with a clock that is a week ahead and set right a minute later.
func TestACertificateFromTheFutureIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var right atomic.Bool
		c, roots := newCertificateBy(t, 90*24*time.Hour, func() time.Time {
			if right.Load() {
				return time.Now()
			}
			return time.Now().AddDate(0, 0, 7)
		})
		if _, err := c.issue(); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		shown := make(chan tls.Certificate)
		go func() {
			_ = c.run(ctx, func(c tls.Certificate) {
				select {
				case shown <- c:
				case <-ctx.Done():
				}
			})
		}()
		<-time.After(time.Minute)
		right.Store(true)
		select {
		case next := <-shown:
			leafOf(t, next, roots)
		case <-time.After(6 * 24 * time.Hour):
			t.Fatal("for six days, the broker shows a certificate that is not valid yet")
		}
	})
}
