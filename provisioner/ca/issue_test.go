package ca_test

import (
	"crypto"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

func TestIssueRefuses(t *testing.T) {
	t.Parallel()
	a := authority(t, func(c *ca.Config) { c.MaxTTL = 48 * time.Hour })
	key := newEC(t, elliptic.P256()).Public()
	many := make([]string, 33)
	for i := range many {
		many[i] = "web1.example.net"
	}
	tests := map[string]struct {
		of   string // key of requests
		edit func(*ca.Request)
		want error // nil means issued
	}{
		"node":                          {"node", nil, nil},
		"shortest lifetime":             {"node", func(r *ca.Request) { r.TTL = time.Minute }, nil},
		"longest lifetime":              {"node", func(r *ca.Request) { r.TTL = 48 * time.Hour }, nil},
		"lifetime too short":            {"node", func(r *ca.Request) { r.TTL = time.Minute - 1 }, ca.ErrRequest},
		"lifetime too long":             {"node", func(r *ca.Request) { r.TTL = 48*time.Hour + 1 }, ca.ErrRequest},
		"negative lifetime":             {"node", func(r *ca.Request) { r.TTL = -time.Hour }, ca.ErrRequest},
		"no role":                       {"node", func(r *ca.Request) { r.Role = "" }, ca.ErrRequest},
		"unknown role":                  {"node", func(r *ca.Request) { r.Role = "admin" }, ca.ErrRequest},
		"no name":                       {"node", func(r *ca.Request) { r.Name = "" }, ca.ErrRequest},
		"identity in capitals":          {"node", func(r *ca.Request) { r.Name = "Web1.example.net" }, ca.ErrRequest},
		"identity with a wildcard":      {"node", func(r *ca.Request) { r.Name = "*.example.net" }, ca.ErrRequest},
		"identity with a NUL":           {"node", func(r *ca.Request) { r.Name = "web1\x00.example.net" }, ca.ErrRequest},
		"identity with a path":          {"node", func(r *ca.Request) { r.Name = "web1/../../operator/alice" }, ca.ErrRequest},
		"wildcard":                      {"node", func(r *ca.Request) { r.DNSNames = []string{"*.example.net"} }, ca.ErrRequest},
		"address as DNS name":           {"node", func(r *ca.Request) { r.DNSNames = []string{"192.0.2.1"} }, ca.ErrRequest},
		"empty DNS name":                {"node", func(r *ca.Request) { r.DNSNames = []string{""} }, ca.ErrRequest},
		"trailing dot":                  {"node", func(r *ca.Request) { r.DNSNames = []string{"www.example.net."} }, ca.ErrRequest},
		"node with an address":          {"node", func(r *ca.Request) { r.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 1)} }, nil},
		"too many names":                {"node", func(r *ca.Request) { r.DNSNames = many }, ca.ErrRequest},
		"as many names as allowed":      {"node", func(r *ca.Request) { r.DNSNames = many[:32] }, nil},
		"no key":                        {"node", func(r *ca.Request) { r.PublicKey = nil }, ca.ErrKey},
		"private key":                   {"node", func(r *ca.Request) { r.PublicKey = newEC(t, elliptic.P256()) }, ca.ErrKey},
		"P-224":                         {"node", func(r *ca.Request) { r.PublicKey = newEC(t, elliptic.P224()).Public() }, ca.ErrKey},
		"RSA-1024":                      {"node", func(r *ca.Request) { r.PublicKey = testRSA(t, 1024).Public() }, ca.ErrKey},
		"broker without names":          {"broker", func(r *ca.Request) { r.DNSNames, r.IPAddresses = nil, nil }, ca.ErrRequest},
		"broker by address only":        {"broker", func(r *ca.Request) { r.DNSNames = nil }, nil},
		"broker of any address":         {"broker", func(r *ca.Request) { r.IPAddresses = []net.IP{net.IPv4zero} }, ca.ErrRequest},
		"broker of no address":          {"broker", func(r *ca.Request) { r.IPAddresses = []net.IP{{1, 2, 3}} }, ca.ErrRequest},
		"operator as server":            {"operator", func(r *ca.Request) { r.ServerAuth = true }, ca.ErrRequest},
		"operator with DNS name":        {"operator", func(r *ca.Request) { r.DNSNames = []string{"a.example.net"} }, ca.ErrRequest},
		"operator with a path":          {"operator", func(r *ca.Request) { r.Name = "a/b" }, ca.ErrRequest},
		"operator in capitals":          {"operator", func(r *ca.Request) { r.Name = "Alice" }, ca.ErrRequest},
		"operator of dots":              {"operator", func(r *ca.Request) { r.Name = ".." }, ca.ErrRequest},
		"operator, 64 bytes":            {"operator", func(r *ca.Request) { r.Name = strings.Repeat("a", 64) }, nil},
		"operator, 65 bytes":            {"operator", func(r *ca.Request) { r.Name = strings.Repeat("a", 65) }, ca.ErrRequest},
		"operator with address":         {"operator", func(r *ca.Request) { r.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 1)} }, ca.ErrRequest},
		"service":                       {"service", nil, nil},
		"service for a client":          {"service", func(r *ca.Request) { r.ServerAuth, r.ClientAuth = false, true }, nil},
		"service by URI only":           {"service", func(r *ca.Request) { r.DNSNames, r.IPAddresses = nil, nil }, nil},
		"service for nobody":            {"service", func(r *ca.Request) { r.ServerAuth = false }, ca.ErrRequest},
		"service without names":         {"service", func(r *ca.Request) { r.DNSNames, r.IPAddresses, r.URIs = nil, nil, nil }, ca.ErrRequest},
		"service of no node":            {"service", func(r *ca.Request) { r.Name = "haproxy" }, ca.ErrRequest},
		"service of an odd node":        {"service", func(r *ca.Request) { r.Name = "*.example.net/haproxy" }, ca.ErrRequest},
		"service without a name":        {"service", func(r *ca.Request) { r.Name = "web1.example.net/" }, ca.ErrRequest},
		"service of two names":          {"service", func(r *ca.Request) { r.Name = "web1.example.net/a/b" }, ca.ErrRequest},
		"service that goes up":          {"service", func(r *ca.Request) { r.Name = "web1.example.net/.." }, ca.ErrRequest},
		"service with a wildcard":       {"service", func(r *ca.Request) { r.DNSNames = []string{"*.example.net"} }, ca.ErrRequest},
		"service by a broken URI":       {"service", func(r *ca.Request) { r.URIs = []string{"www.example.net"} }, ca.ErrRequest},
		"service like a node":           {"service", func(r *ca.Request) { r.URIs = []string{"spiffe://" + trustDomain + "/node/web1.example.net"} }, ca.ErrRequest},
		"service in another case":       {"service", func(r *ca.Request) { r.URIs = []string{"spiffe://" + strings.ToUpper(trustDomain) + "/node/a"} }, ca.ErrRequest},
		"service with a port":           {"service", func(r *ca.Request) { r.URIs = []string{"spiffe://" + trustDomain + ":1/node/a"} }, ca.ErrRequest},
		"service with a dot":            {"service", func(r *ca.Request) { r.URIs = []string{"spiffe://" + trustDomain + "./node/a"} }, ca.ErrRequest},
		"service beyond our length":     {"service", func(r *ca.Request) { r.TTL = 48*time.Hour + 1 }, ca.ErrRequest},
		"service with extensions":       {"service", func(r *ca.Request) { r.Extensions = map[string]string{"pp_role": "web"} }, ca.ErrRequest},
		"service, many names":           {"service", func(r *ca.Request) { r.DNSNames = many[:30] }, ca.ErrRequest},
		"node with a URI":               {"node", func(r *ca.Request) { r.URIs = []string{"https://www.example.net/"} }, ca.ErrRequest},
		"node that asks to be a client": {"node", func(r *ca.Request) { r.ClientAuth = true }, ca.ErrRequest},
		"provisioner by address":        {"provisioner", func(r *ca.Request) { r.IPAddresses, r.ServerAuth = []net.IP{net.IPv4(192, 0, 2, 1)}, true }, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := requests()[tt.of]
			r.PublicKey = key
			if tt.edit != nil {
				tt.edit(&r)
			}
			c, err := a.Issue(r)
			if !errors.Is(err, tt.want) {
				t.Fatalf("Issue error = %v, want %v", err, tt.want)
			}
			if tt.want != nil && (c != nil || !errors.Is(err, ca.ErrRequest) || errors.Is(err, ca.ErrAuthority)) {
				t.Errorf("Issue = %v, %v, want ErrRequest alone", c, err)
			}
		})
	}
}

func TestIssueListsEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := authority(t, nil).Issue(ca.Request{Role: wire.RoleOperator, Name: "Alice", TTL: time.Second,
		DNSNames: []string{"*"}, IPAddresses: []net.IP{nil}, ServerAuth: true})
	for _, want := range []string{"Alice", "lifetime 1s", "no DNS names", `"*"`, "no IP addresses", "TLS server",
		"key not accepted"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}

func TestValidity(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	instant := func(s string) time.Time {
		at, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	tests := map[string]struct {
		now       time.Time
		ttl       time.Duration
		notBefore time.Time // zero: see err
		notAfter  time.Time
		err       error
	}{
		"default is 30 days":        {noon, 0, instant("2026-03-01T11:55:00Z"), instant("2026-03-31T12:00:00Z"), nil},
		"as asked":                  {noon, time.Hour, instant("2026-03-01T11:55:00Z"), instant("2026-03-01T13:00:00Z"), nil},
		"whole seconds":             {noon, 90*time.Second + 900*time.Millisecond, instant("2026-03-01T11:55:00Z"), instant("2026-03-01T12:01:31Z"), nil},
		"not before the authority":  {cfg.Issuing.NotBefore.Add(time.Minute), time.Hour, cfg.Issuing.NotBefore, cfg.Issuing.NotBefore.Add(time.Hour + time.Minute), nil},
		"not after the authority":   {cfg.Issuing.NotAfter.Add(-time.Hour), 0, cfg.Issuing.NotAfter.Add(-time.Hour - ca.Backdate), cfg.Issuing.NotAfter, nil},
		"a last minute":             {cfg.Issuing.NotAfter.Add(-time.Minute), 0, cfg.Issuing.NotAfter.Add(-time.Minute - ca.Backdate), cfg.Issuing.NotAfter, nil},
		"less than a minute":        {cfg.Issuing.NotAfter.Add(-time.Minute + time.Second), 0, time.Time{}, time.Time{}, ca.ErrExpired},
		"the authority has expired": {cfg.Issuing.NotAfter.Add(time.Second), 0, time.Time{}, time.Time{}, ca.ErrExpired},
		"the clock is behind it":    {cfg.Issuing.NotBefore.Add(-time.Second), 0, time.Time{}, time.Time{}, ca.ErrAuthority},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := authority(t, func(c *ca.Config) { c.Now = func() time.Time { return tt.now } })
			r := requests()["node"]
			r.PublicKey, r.TTL = newEC(t, elliptic.P256()).Public(), tt.ttl
			if tt.err != nil {
				if c, err := a.Issue(r); c != nil || !errors.Is(err, tt.err) || errors.Is(err, ca.ErrRequest) {
					t.Fatalf("Issue = %v, %v, want %v", c, err, tt.err)
				}
				return
			}
			c, parsed := issue(t, a, r)
			if !c.NotBefore.Equal(tt.notBefore) || !c.NotAfter.Equal(tt.notAfter) {
				t.Errorf("valid from %v to %v, want %v to %v", c.NotBefore, c.NotAfter, tt.notBefore, tt.notAfter)
			}
			if c.NotBefore != parsed.NotBefore || c.NotAfter != parsed.NotAfter {
				t.Errorf("valid from %v to %v, and the certificate says %v to %v", c.NotBefore, c.NotAfter,
					parsed.NotBefore, parsed.NotAfter)
			}
		})
	}
}

// A brokenKey's signatures are invalid.
type brokenKey struct {
	crypto.Signer
	sign func(s crypto.Signer, digest []byte) ([]byte, error)
}

func (k brokenKey) Sign(_ io.Reader, digest []byte, _ crypto.SignerOpts) ([]byte, error) {
	return k.sign(k.Signer, digest)
}

func TestBrokenKeyIssuesNothing(t *testing.T) {
	t.Parallel()
	errGone := errors.New("token removed")
	tests := map[string]struct {
		sign func(s crypto.Signer, digest []byte) ([]byte, error)
		want error
	}{
		"an error":  {func(crypto.Signer, []byte) ([]byte, error) { return nil, errGone }, errGone},
		"no answer": {func(crypto.Signer, []byte) ([]byte, error) { return nil, nil }, ca.ErrAuthority},
		"a signature over something else": {func(s crypto.Signer, digest []byte) ([]byte, error) {
			other := sha256.Sum256(digest)
			return s.Sign(nil, other[:], crypto.SHA256)
		}, ca.ErrAuthority},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := authority(t, func(c *ca.Config) { c.Key = brokenKey{c.Key, tt.sign} })
			r := requests()["node"]
			r.PublicKey = newEC(t, elliptic.P256()).Public()
			if c, err := a.Issue(r); c != nil || !errors.Is(err, tt.want) || !errors.Is(err, ca.ErrAuthority) {
				t.Errorf("Issue = %v, %v, want %v", c, err, tt.want)
			}
		})
	}
}

func TestIssueConcurrently(t *testing.T) {
	t.Parallel()
	a := authority(t, nil)
	r := requests()["node"]
	r.PublicKey = newEC(t, elliptic.P256()).Public()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if _, err := a.Issue(r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// TestServiceCertificatesAreShort: they have no subject, and at most 30 days.
func TestServiceCertificatesAreShort(t *testing.T) {
	t.Parallel()
	a := authority(t, nil)
	r := requests()["service"]
	r.PublicKey = testRSA(t, 2048).Public()
	_, c := issue(t, a, r)
	if life := c.NotAfter.Sub(noon.Truncate(time.Second)); life != ca.ServiceMaxTTL || c.Subject.String() != "" ||
		c.KeyUsage != x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment {
		t.Errorf("life %v, subject %q, usage %b", life, c.Subject, c.KeyUsage)
	}
	r.TTL = ca.ServiceMaxTTL + time.Second
	if _, err := a.Issue(r); !errors.Is(err, ca.ErrRequest) {
		t.Errorf("a longer one: %v", err)
	}
	if err := ca.CheckRequest(r, ca.DefaultMaxTTL); !errors.Is(err, ca.ErrRequest) {
		t.Errorf("CheckRequest of a longer one: %v", err)
	}
}
