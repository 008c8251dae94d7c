package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/provisioner/operate"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/httpapi"
	"muster/provisioner/trust"
)

// client returns a client of the fleet's provisioner.
func client(f *testbed.Fleet) *httpapi.Client {
	return observed(httpapi.NewClient(filepath.Join(f.Dir, "data", httpapi.SocketName)))
}

// call asks and fails the test if that is refused.
func call(t *testing.T, f *testbed.Fleet, method, path string, in, out any) {
	t.Helper()
	if err := client(f).Do(f.Context(), method, path, in, out); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

// refused asks and returns the problem that comes back.
func refused(t *testing.T, f *testbed.Fleet, method, path string, in any) *httpapi.Problem {
	t.Helper()
	err := client(f).Do(f.Context(), method, path, in, nil)
	var p *httpapi.Problem
	if !errors.As(err, &p) {
		t.Fatalf("%s %s = %v, want a problem", method, path, err)
	}
	return p
}

// TestTokensAreSeenAndRevoked follows a limited, an unlimited and an unused token up to their revocation.
func TestTokensAreSeenAndRevoked(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	limited := f.Node("web1.example.net")
	limited.Token = f.Token(testbed.Limited(2))
	f.Apply(limited, f.Enroll(limited))
	f.Enroll(f.Node("web2.example.net"))
	f.Eventually("both tokens are listed", func() bool {
		return len(listed[operate.TokenSummary](t, f, "/v1/tokens")) == 2
	})
	var named httpapi.TokenID
	call(t, f, http.MethodPost, "/v1/tokens/identify", httpapi.TokenText{Token: wire.Secret(limited.Token)}, &named)
	var report operate.TokenReport
	call(t, f, http.MethodGet, "/v1/tokens/"+string(named.ID), nil, &report)
	if report.Uses != 2 || report.Left == nil || *report.Left != 1 || len(report.UsedBy) != 1 ||
		report.UsedBy[0].Identity != "web1.example.net" || report.UsedBy[0].State != trust.UseEnrolled ||
		report.Revoked != nil {
		t.Errorf("limited token: %+v", report)
	}
	if p := refused(t, f, http.MethodPost, "/v1/tokens/"+string(named.ID)+"/release",
		httpapi.Release{Of: "web1.example.net"}); p.Status != http.StatusConflict {
		t.Errorf("releasing what is enrolled: %+v", p)
	}
	call(t, f, http.MethodPost, "/v1/tokens/"+string(named.ID)+"/revoke", httpapi.Reason{Why: "leaked"}, &report)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if report.Revoked == nil || report.Revoked.By != me.Username || report.Revoked.Why != "leaked" ||
		len(report.UsedBy) != 1 {
		t.Errorf("revoked by %+v, want %q and who came before", report.Revoked, me.Username)
	}
	late := f.Node("web3.example.net")
	nc := f.Dial(late.Token)
	late.Token = limited.Token
	r, err := requestOver(f, nc, late)
	if err != nil || r.Refusal == nil || r.Refusal.Code != wire.CodeTokenRevoked {
		t.Errorf("with the revoked token: %+v, %v", r, err)
	}

	// A token that was signed elsewhere and never used.
	unused := f.Token(nil)
	call(t, f, http.MethodPost, "/v1/tokens/identify", httpapi.TokenText{Token: wire.Secret(unused)}, &named)
	if p := refused(t, f, http.MethodGet, "/v1/tokens/"+string(named.ID), nil); p.Status != http.StatusNotFound {
		t.Errorf("a token that nobody has used: %+v", p)
	}
	call(t, f, http.MethodPost, "/v1/tokens/"+string(named.ID)+"/revoke", httpapi.Reason{}, &report)
	call(t, f, http.MethodGet, "/v1/tokens/"+string(named.ID), nil, &report)
	if report.Revoked == nil || len(report.UsedBy) != 0 {
		t.Errorf("a revoked token that nobody has used: %+v", report)
	}
	tokens := listed[operate.TokenSummary](t, f, "/v1/tokens")
	if len(tokens) != 3 {
		t.Errorf("%d tokens, want the two that were used and the one that was revoked", len(tokens))
	}

	// What there is not of a token is no number and no time.
	members := listed[map[string]any](t, f, "/v1/tokens")
	var had []string
	for _, m := range members {
		_, seen := m["first_seen"]
		had = append(had, fmt.Sprintf("uses %v left %v seen %t", m["uses"], m["left"], seen))
	}
	slices.Sort(had)
	if want := []string{"uses 2 left 1 seen true", "uses <nil> left <nil> seen false",
		"uses <nil> left <nil> seen true"}; !slices.Equal(had, want) {
		t.Errorf("tokens = %q, want %q", had, want)
	}
	var shown map[string]any
	call(t, f, http.MethodGet, "/v1/tokens/"+string(named.ID), nil, &shown)
	for _, name := range []string{"left", "first_seen"} {
		if value, is := shown[name]; is || shown["tid"] != string(named.ID) {
			t.Errorf("a revoked token that nobody has used: %s is %v", name, value)
		}
	}
	f.Check()
}

// TestSignersAndNodes adds and removes a signer, and revokes, retires and grants.
func TestSignersAndNodes(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))

	signers := listed[trust.SignerInfo](t, f, "/v1/signers")
	if len(signers) != 1 || signers[0].Source != trust.SignerOfFile {
		t.Fatalf("signers: %+v", signers)
	}
	public, err := os.ReadFile(filepath.Join(f.Dir, "signer.pem"))
	if err != nil {
		t.Fatal(err)
	}
	var added trust.SignerInfo
	call(t, f, http.MethodPost, "/v1/signers",
		httpapi.AddSigner{NewSigner: trust.NewSigner{
			Public:     public,
			Name:       "build",
			Identities: []string{"db*.example.net"},
		}}, &added)
	if code := f.Refused(f.Node("web2.example.net")); code != wire.CodeTokenIdentity {
		t.Errorf("a signer who is limited to others: %s", code)
	}
	call(t, f, http.MethodPost, "/v1/nodes/web1.example.net/revoke", httpapi.Reason{Why: "stolen"}, nil)
	if r := f.Record("web1.example.net"); r.State != provisioner.StateRevoked || r.Operator == nil ||
		r.Operator.Why != "stolen" {
		t.Errorf("record of the revoked node: %+v", r)
	}
	call(t, f, http.MethodPost, "/v1/nodes/web1.example.net/retire", httpapi.Reason{}, nil)
	if p := refused(t, f, http.MethodPost, "/v1/nodes/web1.example.net/grant",
		httpapi.NewGrant{}); p.Status != http.StatusConflict {
		t.Errorf("a grant for a free name: %+v", p)
	}
	var removed httpapi.Removed
	call(t, f, http.MethodPost, "/v1/signers/"+string(added.ID)+"/remove", httpapi.Reason{Why: "stolen"}, &removed)
	if removed.Left != 0 {
		t.Errorf("%d signers left", removed.Left)
	}
	crls := listed[trust.CRL](t, f, "/v1/crl")
	if len(crls) != 1 || crls[0].Issuer == "" {
		t.Errorf("%d CRLs, want the one issuer's", len(crls))
	}
	f.Check()
}

// TestRequestsThatAreRefused says in one line what is wrong, and changes nothing.
func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	secret := "eyJhbGciOiJFZERTQSJ9.c2VjcmV0LXBheWxvYWQ.c2ln"
	tests := map[string]struct {
		method, path string
		in           any
		status       int
	}{
		"no token id": {http.MethodPost, "/v1/tokens/xyz/revoke", httpapi.Reason{}, http.StatusBadRequest},
		"a forged token": {http.MethodPost, "/v1/tokens/identify", httpapi.TokenText{Token: wire.Secret(secret)},
			http.StatusBadRequest},
		"no identity": {http.MethodPost, "/v1/nodes/under_score/revoke", httpapi.Reason{}, http.StatusBadRequest},
		"nobody": {http.MethodPost, "/v1/nodes/web9.example.net/revoke", httpapi.Reason{},
			http.StatusNotFound},
		"unknown members": {http.MethodPost, "/v1/nodes/web9.example.net/revoke", map[string]string{"because": "x"},
			http.StatusBadRequest},
		"too large": {http.MethodPost, "/v1/nodes/web9.example.net/revoke",
			httpapi.Reason{Why: strings.Repeat("x", 100_000)}, http.StatusBadRequest},
		"no signer": {http.MethodPost, "/v1/signers",
			httpapi.AddSigner{NewSigner: trust.NewSigner{Public: []byte("x"), Name: "x"}}, http.StatusBadRequest},
		"no such route":  {http.MethodGet, "/v1/everything", nil, http.StatusNotFound},
		"another method": {http.MethodDelete, "/v1/signers", nil, http.StatusMethodNotAllowed},
		"a path that walks": {http.MethodPost, "/v1/nodes/..%2F..%2Fetc/revoke", httpapi.Reason{},
			http.StatusBadRequest},
	}
	for name, tt := range tests {
		p := refused(t, f, tt.method, tt.path, tt.in)
		if p.Status != tt.status || p.Detail == "" || strings.Contains(p.Detail, secret[20:40]) ||
			strings.Contains(p.Detail, "\n") {
			t.Errorf("%s: %+v, want %d", name, p, tt.status)
		}
		// A client of a later version would get this remedy.
		if unknown := name == "unknown members"; strings.Contains(p.Remedy, "a later version of muster") != unknown {
			t.Errorf("%s: %+v, want a word about later versions: %t", name, p, unknown)
		}
	}
	f.Check()
}

// TestTheSocketIsPrivateToItsOwner looks at the socket's permissions, over a
// restart that finds the one before, under a path that fits no socket address.
func TestTheSocketIsPrivateToItsOwner(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	path := filepath.Join(f.Dir, "data", httpapi.SocketName)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != os.ModeSocket {
		t.Fatalf("socket: %v, %v", info, err)
	}
	f.Stop()
	if err := client(f).Do(f.Context(), http.MethodGet, "/v1/signers", nil, nil); !errors.Is(err,
		httpapi.ErrNotServing) {
		t.Errorf("without a provisioner: %v", err)
	}
	// A process that was killed leaves its socket.
	l, err := net.ListenUnix("unix",
		&net.UnixAddr{Name: "/proc/self/fd/" + dirFD(t, filepath.Dir(path)) + "/" + httpapi.SocketName, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := client(f).Do(context.Background(), http.MethodGet, "/v1/signers", nil, nil); !errors.Is(err,
		httpapi.ErrNotServing) {
		t.Errorf("with a socket that nobody serves: %v", err)
	}
	f.Start()
	call(t, f, http.MethodGet, "/v1/signers", nil, nil)
}
