package broker_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nkeys"

	"muster/internal/wire"
	"muster/provisioner/broker"
)

// gateAt returns a gate with a fixed clock that admits every node; its good token expires as given.
func gateAt(t testing.TB, now, expires time.Time, edits ...func(*broker.GateConfig)) *broker.Gate {
	t.Helper()
	cfg := broker.GateConfig{
		TrustDomain: trustDomain,
		VerifyToken: func(p broker.Presented) (time.Time, error) {
			if p.Token != goodToken {
				return time.Time{}, errToken
			}
			return expires, nil
		},
		AdmitNode: func(context.Context, wire.Identity, broker.Certificate) error { return nil },
		Now:       func() time.Time { return now },
	}
	for _, edit := range edits {
		edit(&cfg)
	}
	g, err := broker.NewGate(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// chain returns cert's chain as TLS would verify it.
func chain(t testing.TB, cert tls.Certificate) []*x509.Certificate {
	t.Helper()
	var certs []*x509.Certificate
	for _, der := range cert.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		certs = append(certs, c)
	}
	return certs
}

func TestAuthorizeAdmits(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	ca := newAuthority(t)
	name := strings.Repeat("Aa-_", 5) + "42"
	node := ca.issue(t, wire.RoleNode, "web1.example.net",
		func(c *x509.Certificate) { c.NotAfter = now.Add(5 * time.Minute) })
	longLived := ca.issue(t, wire.RoleNode, "web1.example.net",
		func(c *x509.Certificate) { c.NotAfter = now.Add(24 * time.Hour) })
	boss := ca.issue(t, wire.RoleProvisioner, "prov1",
		func(c *x509.Certificate) { c.NotAfter = now.Add(5 * time.Minute) })
	provisioning := broker.Admission{
		Account: broker.AccountProvisioning, User: "provisioning",
		Publish:   []string{"muster.v1.enroll", "muster.v1.applied"},
		Subscribe: []string{"_INBOX." + name + ".>"},
		Deadline:  now.Add(broker.TokenConnection),
	}
	fleet := broker.Admission{
		Account: broker.AccountFleet, User: "web1.example.net",
		Publish: []string{"muster.v1.registration.web1_example_net", "muster.v1.applied", "muster.v1.renew", "muster.v1.certificate",
			"muster.v1.event.web1_example_net.startup",
			"muster.v1.event.web1_example_net.alive", "muster.v1.event.web1_example_net.provisioned", "muster.v1.event.web1_example_net.shutdown"},
		Subscribe: []string{"muster.v1.command.web1_example_net", "_INBOX." + name + ".>"},
		Responses: 1, ResponseTTL: 10 * time.Second,
		Deadline: now.Add(5 * time.Minute),
	}
	ending := func(a broker.Admission, at time.Time) broker.Admission { a.Deadline = at; return a }

	tests := map[string]struct {
		expires time.Time // of the token
		present broker.Presented
		want    broker.Admission
	}{
		"token that never expires":        {time.Time{}, broker.Presented{Name: name, Token: goodToken}, provisioning},
		"token that outlives connections": {now.Add(48 * time.Hour), broker.Presented{Name: name, Token: goodToken}, provisioning},
		"token of a minute":               {now.Add(time.Minute), broker.Presented{Name: name, Token: goodToken}, ending(provisioning, now.Add(time.Minute))},
		"node":                            {time.Time{}, broker.Presented{Name: name, Certificates: chain(t, node)}, fleet},
		"node with a token as well":       {time.Time{}, broker.Presented{Name: name, Token: goodToken, Certificates: chain(t, node)}, fleet},
		"node that outlives its authority": {time.Time{}, broker.Presented{Name: name, Certificates: chain(t, longLived)},
			ending(fleet, ca.cert.NotAfter)},
		"provisioner": {time.Time{}, broker.Presented{Name: "prov1", Certificates: chain(t, boss)},
			broker.Admission{Account: broker.AccountMuster, User: "prov1", Deadline: now.Add(5 * time.Minute)}},
		"own process": {time.Time{}, broker.Presented{InProcess: true},
			broker.Admission{Account: broker.AccountMuster, User: "muster"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := gateAt(t, now, tt.expires).Authorize(t.Context(), tt.present)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("Authorize (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuthorizeDenies(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	ca := newAuthority(t)
	name := wire.NewID()
	errAdmit := errors.New("not on record")
	cert := func(role wire.Role, name string, edits ...func(*x509.Certificate)) []*x509.Certificate {
		return chain(t, ca.issue(t, role, name, edits...))
	}
	node := cert(wire.RoleNode, "web1.example.net")

	tests := map[string]struct {
		present broker.Presented
		code    wire.Code
		err     error
	}{
		"nothing":                       {broker.Presented{Name: name}, wire.CodeTokenInvalid, broker.ErrCredentials},
		"wrong token":                   {broker.Presented{Name: name, Token: "x"}, wire.CodeTokenInvalid, errToken},
		"token over the limit":          {broker.Presented{Name: name, Token: wire.Secret(strings.Repeat("x", wire.MaxTokenBytes+1))}, wire.CodeTokenInvalid, broker.ErrToken},
		"no name":                       {broker.Presented{Token: goodToken}, wire.CodeBadRequest, broker.ErrName},
		"short name":                    {broker.Presented{Name: name[1:], Token: goodToken}, wire.CodeBadRequest, broker.ErrName},
		"long name":                     {broker.Presented{Name: name + "a", Token: goodToken}, wire.CodeBadRequest, broker.ErrName},
		"name with a wildcard":          {broker.Presented{Name: "*" + name[1:], Token: goodToken}, wire.CodeBadRequest, broker.ErrName},
		"name of two tokens":            {broker.Presented{Name: name[:10] + "." + name[11:], Token: goodToken}, wire.CodeBadRequest, broker.ErrName},
		"name with a line end":          {broker.Presented{Name: name[:21] + "\n", Token: goodToken}, wire.CodeBadRequest, broker.ErrName},
		"name in UTF-8":                 {broker.Presented{Name: "ä" + name[2:], Token: goodToken}, wire.CodeBadRequest, broker.ErrName},
		"nkey unproven":                 {broker.Presented{Name: name, Token: goodToken, Nkey: userKey(t)}, wire.CodeBadRequest, broker.ErrNkey},
		"nkey that is a name":           {broker.Presented{Name: name, Token: goodToken, Nkey: "web1.example.net"}, wire.CodeBadRequest, broker.ErrNkey},
		"broker's certificate":          {broker.Presented{Name: name, Certificates: cert(wire.RoleBroker, "b1")}, wire.CodeDenied, broker.ErrCertificate},
		"operator's certificate":        {broker.Presented{Name: name, Certificates: cert(wire.RoleOperator, "alice")}, wire.CodeDenied, broker.ErrCertificate},
		"certificate of a service":      {broker.Presented{Name: name, Certificates: cert(wire.RoleService, "web1.example.net/https")}, wire.CodeDenied, wire.ErrRole},
		"certificate of no known role":  {broker.Presented{Name: name, Certificates: cert("root", "x")}, wire.CodeDenied, wire.ErrRole},
		"certificate of no node's name": {broker.Presented{Name: name, Certificates: cert(wire.RoleNode, "Web1")}, wire.CodeIdentityInvalid, wire.ErrIdentity},
		"certificate with a wildcard":   {broker.Presented{Name: name, Certificates: cert(wire.RoleNode, "*")}, wire.CodeIdentityInvalid, wire.ErrIdentity},
		"certificate with underscore":   {broker.Presented{Name: name, Certificates: cert(wire.RoleNode, "web1_example_net")}, wire.CodeIdentityInvalid, wire.ErrIdentity},
		"certificate without URI": {broker.Presented{Name: name, Certificates: cert(wire.RoleNode, "a",
			func(c *x509.Certificate) { c.URIs = nil })}, wire.CodeDenied, wire.ErrRole},
		"certificate of two roles": {broker.Presented{Name: name, Certificates: cert(wire.RoleNode, "a",
			func(c *x509.Certificate) {
				c.URIs = append(c.URIs, wire.RoleURI(trustDomain, wire.RoleProvisioner, "p"))
			})}, wire.CodeDenied, wire.ErrRole},
		"certificate of another installation": {broker.Presented{Name: name, Certificates: cert(wire.RoleNode, "a",
			func(c *x509.Certificate) {
				c.URIs = []*url.URL{wire.RoleURI("other.example", wire.RoleNode, "a")}
			})}, wire.CodeDenied, wire.ErrRole},
		"expired certificate": {broker.Presented{Name: name, Certificates: cert(wire.RoleNode, "a",
			func(c *x509.Certificate) { c.NotAfter = now })}, wire.CodeDenied, broker.ErrCertificate},
		"expired certificate and a token": {broker.Presented{Name: name, Token: goodToken, Certificates: cert(wire.RoleNode, "a",
			func(c *x509.Certificate) { c.NotAfter = now })}, wire.CodeDenied, broker.ErrCertificate},
		"operator's certificate and a token": {broker.Presented{Name: name, Token: goodToken,
			Certificates: cert(wire.RoleOperator, "alice")}, wire.CodeDenied, broker.ErrCertificate},
		"certificate of tomorrow": {broker.Presented{Name: name, Certificates: cert(wire.RoleNode, "a",
			func(c *x509.Certificate) { c.NotBefore = now.Add(time.Second) })}, wire.CodeDenied, broker.ErrCertificate},
		"certificate for servers": {broker.Presented{Name: name, Certificates: cert(wire.RoleNode, "a",
			func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })},
			wire.CodeDenied, broker.ErrCertificate},
		"certificate for anything": {broker.Presented{Name: name, Certificates: cert(wire.RoleNode, "a",
			func(c *x509.Certificate) { c.ExtKeyUsage = nil })}, wire.CodeDenied, broker.ErrCertificate},
		"certificate of an authority": {broker.Presented{Name: name, Certificates: cert(wire.RoleNode, "a",
			func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true })}, wire.CodeDenied,
			broker.ErrCertificate},
		"node without a proper name":  {broker.Presented{Name: "web1", Certificates: node}, wire.CodeBadRequest, broker.ErrName},
		"node with an nkey":           {broker.Presented{Name: name, Certificates: node, Nkey: userKey(t)}, wire.CodeBadRequest, broker.ErrNkey},
		"node that is not on record":  {broker.Presented{Name: name, Certificates: cert(wire.RoleNode, "gone")}, wire.CodeDenied, errAdmit},
		"node that is revoked":        {broker.Presented{Name: name, Certificates: cert(wire.RoleNode, "revoked")}, wire.CodeIdentityRevoked, errAdmit},
		"token refused with its code": {broker.Presented{Name: name, Token: "expired"}, wire.CodeTokenExpired, errToken},
	}
	gate := gateAt(t, now, time.Time{}, func(cfg *broker.GateConfig) {
		verify := cfg.VerifyToken
		cfg.VerifyToken = func(p broker.Presented) (time.Time, error) {
			if p.Token == "expired" {
				return time.Time{}, &broker.Denied{Code: wire.CodeTokenExpired, Err: errToken}
			}
			return verify(p)
		}
		cfg.AdmitNode = func(_ context.Context, id wire.Identity, _ broker.Certificate) error {
			switch id {
			case "gone":
				return errAdmit
			case "revoked":
				return fmt.Errorf("allow-list: %w", &broker.Denied{Code: wire.CodeIdentityRevoked, Err: errAdmit})
			}
			return nil
		}
	})
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := gate.Authorize(t.Context(), tt.present)
			if got != nil {
				t.Fatalf("Authorize = %+v, want it denied", got)
			}
			var d *broker.Denied
			if !errors.As(err, &d) || d.Code != tt.code || !errors.Is(err, tt.err) {
				t.Errorf("Authorize error = %v, want code %s and %v", err, tt.code, tt.err)
			}
		})
	}
}

func TestTokenExpiresAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := broker.Presented{Name: wire.NewID(), Token: goodToken}
	_, err := gateAt(t, now, now).Authorize(t.Context(), p)
	var d *broker.Denied
	if !errors.As(err, &d) || d.Code != wire.CodeTokenExpired {
		t.Errorf("Authorize at the token's end = %v, want %s", err, wire.CodeTokenExpired)
	}
	if _, err := gateAt(t, now, now.Add(time.Second)).Authorize(t.Context(), p); err != nil {
		t.Errorf("Authorize in the token's last second = %v, want it admitted", err)
	}
}

func TestAdmitNodeIsAskedAboutTheCertificate(t *testing.T) {
	t.Parallel()
	cert := newAuthority(t).issue(t, wire.RoleNode, "web1.example.net")
	var asked []string
	gate := gateAt(t, time.Now(), time.Time{}, func(cfg *broker.GateConfig) {
		cfg.AdmitNode = func(_ context.Context, id wire.Identity, c broker.Certificate) error {
			asked = append(asked, string(id), c.Serial, c.SHA256)
			return nil
		}
	})
	if _, err := gate.Authorize(t.Context(), broker.Presented{Name: wire.NewID(),
		Certificates: chain(t, cert)}); err != nil {
		t.Fatal(err)
	}
	want := []string{"web1.example.net", fmt.Sprintf("%x", cert.Leaf.SerialNumber),
		fmt.Sprintf("%x", sha256.Sum256(cert.Leaf.Raw))}
	if !slices.Equal(asked, want) {
		t.Errorf("AdmitNode was asked for %q, want %q", asked, want)
	}
}

func TestPresentedKeepsItsSecrets(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(*buffer) slog.Handler{
		"text": func(b *buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"json": func(b *buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b buffer
			slog.New(handler(&b)).Info("presented", "p", broker.Presented{Token: goodToken, Signature: "hunter2"})
			if got := b.String(); strings.Contains(got, goodToken) || strings.Contains(got, "hunter2") {
				t.Errorf("log line = %s", got)
			}
		})
	}
}

// FuzzAuthorize checks that a client is denied, or admitted to exactly one inbox and the two subjects of
// enrollment.
func FuzzAuthorize(f *testing.F) {
	f.Add("AAAAAAAAAAAAAAAAAAAAAA", goodToken, "", "")
	f.Add("*", goodToken, "signature", "")
	f.Add("AAAAAAAAAAAAAAAAAAAAAA", goodToken, "", userKey(f))
	gate := gateAt(f, time.Now(), time.Time{})
	f.Fuzz(func(t *testing.T, name, token, signature, nkey string) {
		a, err := gate.Authorize(t.Context(), broker.Presented{
			Name: name, Token: wire.Secret(token), Nkey: nkey, Signature: signature, Nonce: "nonce"})
		if err != nil {
			if a != nil {
				t.Fatal("Authorize returned an admission along with an error")
			}
			return
		}
		want := []string{"_INBOX." + name + ".>"}
		if a.Account != broker.AccountProvisioning || !slices.Equal(a.Subscribe, want) ||
			len(name) != 22 || strings.ContainsAny(name, ".*> \t\r\n") || token != goodToken {
			t.Fatalf("%q was admitted: %+v", name, a)
		}
	})
}

func userKey(tb testing.TB) string {
	tb.Helper()
	key, err := nkeys.CreateUser()
	if err != nil {
		tb.Fatal(err)
	}
	pub, err := key.PublicKey()
	if err != nil {
		tb.Fatal(err)
	}
	return pub
}
