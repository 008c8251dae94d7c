package wire_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"muster/internal/wire"
)

// TestLimitsHaveTwoSides sends requests at each limit and one past it.
func TestLimitsHaveTwoSides(t *testing.T) {
	t.Parallel()
	facts := func(n int) json.RawMessage {
		const frame = `{"a":""}`
		return json.RawMessage(`{"a":"` + strings.Repeat("x", n-len(frame)) + `"}`)
	}
	tests := map[string]struct {
		limit int
		set   func(r *wire.EnrollRequest, n int)
		want  error // one past it
	}{
		"request id":    {64, func(r *wire.EnrollRequest, n int) { r.ID = strings.Repeat("x", n) }, wire.ErrMessage},
		"boot instance": {64, func(r *wire.EnrollRequest, n int) { r.Boot = strings.Repeat("x", n) }, wire.ErrMessage},
		"agent":         {128, func(r *wire.EnrollRequest, n int) { r.Agent = strings.Repeat("x", n) }, wire.ErrMessage},
		"token":         {wire.MaxTokenBytes, func(r *wire.EnrollRequest, n int) { r.Token = wire.Secret(strings.Repeat("x", n)) }, wire.ErrTooLarge},
		"CSR":           {wire.MaxCSRBytes, func(r *wire.EnrollRequest, n int) { r.CSR = make([]byte, n) }, wire.ErrTooLarge},
		"facts":         {wire.MaxFactsBytes, func(r *wire.EnrollRequest, n int) { r.Facts = facts(n) }, wire.ErrTooLarge},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n, want := range map[int]error{tt.limit: nil, tt.limit + 1: tt.want} {
				r := &wire.EnrollRequest{ID: "x", Identity: "web1.example.net", Boot: "y"}
				tt.set(r, n)
				b, err := wire.Encode(r)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := wire.DecodeEnroll(b); !errors.Is(err, want) {
					t.Errorf("%d bytes: %v, want %v", n, err, want)
				}
			}
		})
	}
	for n, want := range map[int]error{wire.MaxReplyBytes: nil, wire.MaxReplyBytes + 1: wire.ErrTooLarge} {
		b, err := wire.Encode(&wire.Reply{ID: "x", Applied: &wire.Accepted{Serial: "1"}})
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, strings.Repeat(" ", n-len(b))...)
		if _, err := wire.DecodeReply(b); !errors.Is(err, want) {
			t.Errorf("a reply of %d bytes: %v, want %v", n, err, want)
		}
	}
	for id, want := range map[string]bool{strings.Repeat("x", 22): true, strings.Repeat("x", 21): false,
		strings.Repeat("x", 23): false, strings.Repeat("x", 21) + "*": false} {
		if got := wire.ValidConnectionName(id); got != want {
			t.Errorf("ValidConnectionName(%q) = %v", id, got)
		}
	}
	if id := wire.NewID(); !wire.ValidConnectionName(id) || id == wire.NewID() {
		t.Errorf("NewID = %q", id)
	}
	for range 1000 {
		if id := wire.NewID(); id[0] == '-' {
			t.Fatalf("NewID = %q, which a command line takes for a flag", id)
		}
	}
	if _, err := wire.ParsePattern(strings.Repeat("a", wire.MaxIdentityBytes)); err != nil {
		t.Errorf("the longest pattern: %v", err)
	}
	if id, err := wire.ParseSubjectToken("web1_example.net"); !errors.Is(err, wire.ErrIdentity) {
		t.Errorf("a subject token with a dot is %q", id)
	}
	plain := `{"v":1,"sealed":false,"key":"k","body":{"id":"x","installation":"y","applied":{"serial":"1"}}}`
	if _, err := wire.DecodeReply([]byte(plain)); !errors.Is(err, wire.ErrMessage) {
		t.Errorf("a plain reply with a key for sealing: %v", err)
	}
}

// TestFilesHaveTwoSides checks files at each limit and one past it, and every forbidden character.
func TestFilesHaveTwoSides(t *testing.T) {
	t.Parallel()
	setting := map[string]string{"a": "b"}
	many := func(n int) map[string]string {
		m := make(map[string]string, n)
		for i := range n {
			m[fmt.Sprint("k", i)] = ""
		}
		return m
	}
	tests := map[string]struct {
		good, bad wire.Files
	}{
		"key": {wire.Files{Configuration: map[string]string{strings.Repeat("k", 128): ""}},
			wire.Files{Configuration: map[string]string{strings.Repeat("k", 129): ""}}},
		"policy name": {wire.Files{Configuration: setting, OPAPolicies: map[string]string{strings.Repeat("p", 64): ""}},
			wire.Files{Configuration: setting, OPAPolicies: map[string]string{strings.Repeat("p", 65): ""}}},
		"all in settings": {wire.Files{Configuration: map[string]string{"k": strings.Repeat("x", wire.MaxFilesBytes-1)}},
			wire.Files{Configuration: map[string]string{"k": strings.Repeat("x", wire.MaxFilesBytes)}}},
		"all in policies": {wire.Files{Configuration: setting, OPAPolicies: map[string]string{"p": strings.Repeat("x", wire.MaxFilesBytes-3)}},
			wire.Files{Configuration: setting,
				OPAPolicies: map[string]string{"p": strings.Repeat("x", wire.MaxFilesBytes-2)}}},
		"all in action policies' names": {wire.Files{Configuration: setting, ActionPolicies: map[string]string{"p": strings.Repeat("x", wire.MaxFilesBytes-3)}},
			wire.Files{Configuration: setting,
				ActionPolicies: map[string]string{"pp": strings.Repeat("x", wire.MaxFilesBytes-3)}}},
		"settings": {wire.Files{Configuration: many(4096)}, wire.Files{Configuration: many(4097)}},
		"policies": {wire.Files{Configuration: setting, OPAPolicies: many(4095)}, wire.Files{Configuration: setting, OPAPolicies: many(4096)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := tt.good.Check(); err != nil {
				t.Errorf("at the limit: %v", err)
			}
			if err := tt.bad.Check(); !errors.Is(err, wire.ErrFiles) {
				t.Errorf("past the limit: %v, want %v", err, wire.ErrFiles)
			}
		})
	}
	for _, c := range []string{"\x00", "\x1f", "\t", "\n", "\r", "\v", "\x7f", "\u0085", "\u2028", "\u2029", "\ufeff",
		"\xff", "\xc0\x80"} {
		f := wire.Files{Configuration: map[string]string{"a": "b" + c + "c"}}
		if err := f.Check(); !errors.Is(err, wire.ErrFiles) {
			t.Errorf("a value with %q: %v, want %v", c, err, wire.ErrFiles)
		}
	}
	for _, c := range []string{" ", "=", "#", ";", "\"", "é", "日", "\u200d", "{{"} {
		f := wire.Files{Configuration: map[string]string{"a": "b" + c + "c"}}
		if err := f.Check(); err != nil {
			t.Errorf("a value with %q: %v", c, err)
		}
	}
	for c, ok := range map[string]bool{"\t": true, "\n": true, "\r\n": true, "\x00": false, "\x1b": false,
		"\xff": false} {
		for name, f := range map[string]wire.Files{"action": {Configuration: setting,
			ActionPolicies: map[string]string{"p": "b" + c + "c"}},
			"OPA": {Configuration: setting, OPAPolicies: map[string]string{"p": "b" + c + "c"}}} {
			if err := f.Check(); ok != (err == nil) {
				t.Errorf("%s policy with %q: %v, want accepted %v", name, c, err, ok)
			}
		}
	}
	secret := wire.Files{Configuration: map[string]string{"password": "hunter2\n"},
		OPAPolicies: map[string]string{"p": "hunter2\x00"}}
	if err := secret.Check(); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error prints a value: %v", err)
	}
}

// TestDigestCoversEachText moves text across each border between two texts.
func TestDigestCoversEachText(t *testing.T) {
	t.Parallel()
	m := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	sets := []struct {
		certificate string
		files       wire.Files
	}{
		{"c", wire.Files{Configuration: m("a", "b")}},
		{"ca", wire.Files{Configuration: m("a", "b")}},
		{"c", wire.Files{Configuration: m("a", "bb")}},
		{"c", wire.Files{Configuration: m("ab", "b")}},
		{"c", wire.Files{Configuration: m("a", "b", "c", "d")}},
		{"c", wire.Files{Configuration: m("a", "bc", "c", "d")}},
		{"c", wire.Files{Configuration: m("a", "b", "cc", "d")}},
		{"c", wire.Files{Configuration: m("a", "b"), ActionPolicies: m("c", "d")}},
		{"c", wire.Files{Configuration: m("a", "b"), OPAPolicies: m("c", "d")}},
		{"c", wire.Files{Configuration: m("a", "b"), OPAPolicies: m("c", "e")}},
		{"c", wire.Files{Configuration: m("a", "b"), ActionPolicies: m("c", "d"), OPAPolicies: m("c", "d")}},
		{"c", wire.Files{ActionPolicies: m("a", "b")}},
		{"c", wire.Files{OPAPolicies: m("a", "b")}},
		{"c", wire.Files{Configuration: m("a", "b", "1", "c", "d", "e")}},
		{"c", wire.Files{Configuration: m("a", "b"), ActionPolicies: m("c", "d", "e", "")}},
	}
	seen := map[string]int{}
	for i, s := range sets {
		d := wire.Digest(s.certificate, s.files)
		if j, ok := seen[d]; ok {
			t.Errorf("sets %d and %d have one digest", j, i)
		}
		seen[d] = i
	}
}

// TestProofsCoverEachPart changes each signed part, with every kind of key.
func TestProofsCoverEachPart(t *testing.T) {
	t.Parallel()
	digests := map[string][32]byte{
		"applied":                          wire.AppliedDigest("web1.example.net", "1", "d"),
		"applied by another":               wire.AppliedDigest("web2.example.net", "1", "d"),
		"applied another serial":           wire.AppliedDigest("web1.example.net", "2", "d"),
		"applied another digest":           wire.AppliedDigest("web1.example.net", "1", "e"),
		"continuity":                       wire.ContinuityDigest("r1", "web1.example.net", []byte("csr")),
		"continuity of another request":    wire.ContinuityDigest("r2", "web1.example.net", []byte("csr")),
		"continuity of another identity":   wire.ContinuityDigest("r1", "web2.example.net", []byte("csr")),
		"continuity to another key":        wire.ContinuityDigest("r1", "web1.example.net", []byte("csr2")),
		"continuity, shaped like an apply": wire.ContinuityDigest("web1.example.net", "1", []byte("d")),
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for kind, key := range map[string]crypto.Signer{"P-256": ecKey, "Ed25519": edKey, "RSA": rsaKey} {
		for what, digest := range digests {
			signature, err := wire.Sign(key, digest)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			for other, d := range digests {
				if err := wire.CheckSignature(key.Public(), d, signature); (other == what) != (err == nil) ||
					err != nil && !errors.Is(err, wire.ErrProof) {
					t.Errorf("%s: %s for %s: %v", kind, what, other, err)
				}
			}
			for name, s := range map[string][]byte{"none": nil, "half": signature[:len(signature)/2],
				"more": append(signature[:len(signature):len(signature)], 0)} {
				if err := wire.CheckSignature(key.Public(), digest, s); !errors.Is(err, wire.ErrProof) {
					t.Errorf("%s: %s, %s of a signature: %v", kind, what, name, err)
				}
			}
		}
	}
	for _, pub := range []crypto.PublicKey{nil, "key", *ecKey, ecKey} {
		if err := wire.CheckSignature(pub, digests["applied"], nil); !errors.Is(err, wire.ErrProof) {
			t.Errorf("key of type %T: %v, want %v", pub, err, wire.ErrProof)
		}
	}
}

func TestRolesAreReadFromOneURI(t *testing.T) {
	t.Parallel()
	const good = "spiffe://fleet.test/node/web1.example.net"
	for _, role := range []wire.Role{wire.RoleNode, wire.RoleBroker, wire.RoleProvisioner, wire.RoleOperator} {
		cert := &x509.Certificate{URIs: []*url.URL{wire.RoleURI("fleet.test", role, "x")}}
		if got, name, err := wire.RoleOf(cert, "fleet.test"); got != role || name != "x" || err != nil {
			t.Errorf("RoleOf(%s) = %s, %q, %v", role, got, name, err)
		}
	}
	tests := map[string][]string{
		"none":                   nil,
		"two":                    {good, good},
		"another scheme":         {"https://fleet.test/node/web1.example.net"},
		"another trust domain":   {"spiffe://evil.test/node/web1.example.net"},
		"a domain with a port":   {"spiffe://fleet.test:1/node/web1.example.net"},
		"a user":                 {"spiffe://a@fleet.test/node/web1.example.net"},
		"a query":                {good + "?role=operator"},
		"a fragment":             {good + "#operator"},
		"an opaque part":         {"spiffe:fleet.test/node/web1.example.net"},
		"a service":              {"spiffe://fleet.test/service/web1.example.net/haproxy"},
		"a service without name": {"spiffe://fleet.test/service/web1.example.net"},
		"a service and a node":   {"spiffe://fleet.test/service/web1.example.net/haproxy", good},
		"an unknown role":        {"spiffe://fleet.test/admin/web1.example.net"},
		"a role in upper case":   {"spiffe://fleet.test/Node/web1.example.net"},
		"no name":                {"spiffe://fleet.test/node/"},
		"no slash":               {"spiffe://fleet.test/node"},
		"a name of two":          {good + "/operator"},
		"a role before the role": {"spiffe://fleet.test/operator/node/web1.example.net"},
	}
	for name, uris := range tests {
		cert := &x509.Certificate{}
		for _, u := range uris {
			parsed, err := url.Parse(u)
			if err != nil {
				t.Fatal(err)
			}
			cert.URIs = append(cert.URIs, parsed)
		}
		if role, holder, err := wire.RoleOf(cert, "fleet.test"); !errors.Is(err, wire.ErrRole) || role != "" ||
			holder != "" {
			t.Errorf("%s: RoleOf = %s, %q, %v, want %v", name, role, holder, err, wire.ErrRole)
		}
	}
}
