package testbed

import (
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/trust"
)

// The CRL of a fleet differs from its revocations.
func TestCheckFindsAWrongCRL(t *testing.T) {
	t.Parallel()
	f := New(t, Options{})
	n := f.Node("web1.example.net")
	e := f.Enroll(n)
	f.Revoke(n.Identity)
	f.Eventually("it is on the CRL", func() bool { return f.OnCRL(e.Serial) })
	now, issuer := f.Clock.Now(), f.Daemon().CRLs()[0].Issuer
	right := trust.RevokedCertificate{Serial: e.Serial, NotAfter: now.Add(time.Hour), Issuer: issuer}
	for name, tt := range map[string]struct {
		revoked []trust.RevokedCertificate
		at      time.Time
		want    string
	}{
		"right":        {[]trust.RevokedCertificate{right}, now, ""},
		"one too many": {nil, now, "is not revoked"},
		"one too few": {[]trust.RevokedCertificate{right,
			{Serial: "ff", NotAfter: now.Add(time.Hour), Issuer: issuer}}, now, "not on the CRL"},
		"one expired": {[]trust.RevokedCertificate{right, {Serial: "ff", NotAfter: now, Issuer: issuer}}, now, ""},
		"another's one": {[]trust.RevokedCertificate{right,
			{Serial: "ff", NotAfter: now.Add(time.Hour), Issuer: "aa"}}, now, ""},
		"another's on it": {[]trust.RevokedCertificate{{Serial: e.Serial, NotAfter: now.Add(time.Hour), Issuer: "aa"}},
			now, "of another issuer"},
		"lapsed": {[]trust.RevokedCertificate{right}, now.Add(25 * time.Hour), "is valid from"},
	} {
		revoked := map[string]trust.RevokedCertificate{}
		for _, r := range tt.revoked {
			revoked[r.Serial] = r
		}
		got := strings.Join((&checker{f: f}).crlWrong(revoked, tt.at), "; ")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: Check says %q, want %q", name, got, tt.want)
		}
	}
}

// Records cannot be read, so a revocation is not completed.
func TestCheckFindsAnIncompleteRevocation(t *testing.T) {
	t.Parallel()
	f := New(t, Options{})
	n := f.Node("web1.example.net")
	f.Enroll(n)
	f.Faults.Unreadable.Store(true)
	e := &trust.Revocation{
		Schema: trust.RevocationSchema,
		ID:     wire.NewID(),
		Kind:   trust.RevokedNode,
		By:     "x",
		Node:   "web1.example.net",
	}
	if _, err := f.Daemon().Store().Logs().Revocations.Put(f.Context(), e.LogKey(), e, 0); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join((&checker{f: f}).revocationsWrong(), "; "); !strings.Contains(got, "is not on its record") {
		t.Errorf("Check says %q", got)
	}
	f.Faults.Unreadable.Store(false)
	f.Check()
}
