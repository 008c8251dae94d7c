package testbed

import (
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// listener is a test that records Check's findings instead of failing.
type listener struct {
	testing.TB
	mu   sync.Mutex
	said []string // guarded by mu
}

func (l *listener) Errorf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, fmt.Sprintf(format, args...))
}

// put writes a record unchanged over the newest one.
func put(t *testing.T, f *Fleet, identity string, edit func(*provisioner.Record)) {
	t.Helper()
	s := f.Daemon().Store()
	r, after, err := s.Record(f.Context(), wire.Identity(identity))
	if err != nil {
		t.Fatal(err)
	}
	if r == nil {
		r = &provisioner.Record{Schema: provisioner.RecordSchema, Identity: wire.Identity(identity),
			State: provisioner.StateEnrolled}
	}
	attempt := r.Attempt
	edit(r)
	if r.Attempt == attempt {
		r.Attempt = wire.NewID()
	}
	if _, err := s.Put(f.Context(), r, after); err != nil {
		t.Fatal(err)
	}
}

// claim appends one claim per node to a token's log; uses describes the token if the log is new.
func claim(t *testing.T, f *Fleet, token jwt.TokenID, uses int, nodes ...*simnode.Node) {
	t.Helper()
	e := &trust.ClaimEntry{Schema: trust.ClaimSchema}
	if uses > 0 {
		e.Token = &trust.TokenInfo{ID: token, Uses: uses}
	}
	for _, n := range nodes {
		e.Claims = append(e.Claims, trust.TokenClaim{
			Key:      hashOf(t, n),
			Identity: wire.Identity(n.Identity),
			Attempt:  "attempt",
			At:       time.Now(),
		})
	}
	appendClaims(t, f, token, e)
}

// releaseAll releases every use that a node holds.
func releaseAll(t *testing.T, f *Fleet, token jwt.TokenID, n *simnode.Node) {
	t.Helper()
	appendClaims(t, f, token, &trust.ClaimEntry{Schema: trust.ClaimSchema, Releases: []trust.TokenRelease{
		{Key: hashOf(t, n), Identity: wire.Identity(n.Identity), All: true, At: time.Now()},
	}})
}

func appendClaims(t *testing.T, f *Fleet, token jwt.TokenID, e *trust.ClaimEntry) {
	t.Helper()
	s := f.Daemon().Store()
	var after trust.Revision
	err := s.Claims(f.Context(), token, 0, func(_ *trust.ClaimEntry, at trust.Revision) error {
		after = at
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AppendClaims(f.Context(), token, e, after); err != nil {
		t.Fatal(err)
	}
}

func hashOf(t *testing.T, n *simnode.Node) string {
	t.Helper()
	hash, err := ca.KeyHash(n.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// issue returns a certificate of the fleet's authority for any request.
func issue(t *testing.T, f *Fleet, key crypto.Signer, r ca.Request) *provisioner.Issued {
	t.Helper()
	var parsed []*x509.Certificate
	for _, name := range []string{"ca/root.pem", "ca/issuing.pem"} {
		c, err := readCertificate(filepath.Join(f.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, c)
	}
	b, err := os.ReadFile(filepath.Join(f.Dir, "ca/issuing-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jwt.ParsePrivateKey(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := ca.New(ca.Config{Root: parsed[0], Issuing: parsed[1], Key: signer, TrustDomain: "fleet.test"})
	if err != nil {
		t.Fatal(err)
	}
	r.PublicKey = key.Public()
	c, err := authority.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := ca.KeyHash(r.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return &provisioner.Issued{
		Serial:    c.Serial,
		KeyHash:   hash,
		DER:       c.DER,
		NotBefore: c.NotBefore,
		NotAfter:  c.NotAfter,
		Digest:    "d",
		OfferedAt: time.Now(),
	}
}

// Each rule of Check is broken for nodes and a token of its own. The finding must name one of them.
func TestCheckFindsEachViolation(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	node := func(name string) ca.Request { return ca.Request{Role: wire.RoleNode, Name: name} }
	offer := func(t *testing.T, f *Fleet, key crypto.Signer, name string, r ca.Request) {
		i := issue(t, f, key, r)
		put(t, f, name, func(record *provisioner.Record) {
			record.Next, record.Lineage = i, append(record.Lineage, i.KeyHash)
		})
	}
	newKey := func(f *Fleet) crypto.Signer { return f.Node("key.example.net").Key }
	type fixture struct {
		*Fleet
		n     *simnode.Node // provisioned
		name  string        // of n
		other string        // a name without a record
		token jwt.TokenID   // limited to one use, of which none is claimed
	}
	tests := map[string]struct {
		do   func(t *testing.T, f fixture)
		want string
	}{
		"a state that may not follow": {func(t *testing.T, f fixture) {
			put(t, f.Fleet, f.name, func(r *provisioner.Record) {
				r.State, r.Next, r.Current = provisioner.StateEnrolled, r.Current, nil
			})
		}, "enrolled follows provisioned"},
		"a first state that is not the first": {func(t *testing.T, f fixture) {
			put(t, f.Fleet, f.other, func(r *provisioner.Record) { r.State = provisioner.StateRevoked })
		}, "revoked follows none"},
		"an attempt that wrote twice": {func(t *testing.T, f fixture) {
			r, after, err := f.Daemon().Store().Record(f.Context(), wire.Identity(f.name))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Daemon().Store().Put(f.Context(), r, after); err != nil {
				t.Fatal(err)
			}
		}, "wrote twice"},
		"a certificate of two identities": {func(t *testing.T, f fixture) {
			first := f.Record(f.name)
			put(t, f.Fleet, f.other, func(r *provisioner.Record) {
				r.Next, r.Lineage = first.Current, first.Lineage
			})
		}, "belongs to "},
		"a current certificate that was never offered": {func(t *testing.T, f fixture) {
			i := issue(t, f.Fleet, newKey(f.Fleet), node(f.name))
			put(t, f.Fleet, f.name, func(r *provisioner.Record) { r.Current = i })
		}, "without having been offered"},
		"two live certificates of one key": {func(t *testing.T, f fixture) {
			offer(t, f.Fleet, f.n.Key, f.name, node(f.name))
		}, "two live certificates"},
		"a certificate for another name": {func(t *testing.T, f fixture) {
			offer(t, f.Fleet, newKey(f.Fleet), f.name, node(f.other))
		}, "is of node"},
		"a certificate of a broker": {func(t *testing.T, f fixture) {
			offer(t, f.Fleet, newKey(f.Fleet), f.name,
				ca.Request{Role: wire.RoleBroker, Name: f.name, DNSNames: []string{f.name}})
		}, "is of broker"},
		"a certificate with one more name": {func(t *testing.T, f fixture) {
			r := node(f.name)
			r.DNSNames = []string{"db1.example.net"}
			offer(t, f.Fleet, newKey(f.Fleet), f.name, r)
		}, "db1.example.net"},
		"a certificate for servers too": {func(t *testing.T, f fixture) {
			r := node(f.name)
			r.ServerAuth = true
			offer(t, f.Fleet, newKey(f.Fleet), f.name, r)
		}, "usages"},
		"a certificate that does not belong to the key": {func(t *testing.T, f fixture) {
			i := issue(t, f.Fleet, newKey(f.Fleet), node(f.name))
			i.KeyHash = strings.Repeat("0", len(i.KeyHash))
			put(t, f.Fleet, f.name, func(r *provisioner.Record) { r.Next, r.Lineage = i, append(r.Lineage, i.KeyHash) })
		}, "does not fit its record"},
		"an offer to a key outside the lineage": {func(t *testing.T, f fixture) {
			i := issue(t, f.Fleet, newKey(f.Fleet), node(f.name))
			put(t, f.Fleet, f.name, func(r *provisioner.Record) { r.Next = i })
		}, "does not fit its record"},
		"a certificate of another authority": {func(t *testing.T, f fixture) {
			i := issue(t, New(t, Options{}), newKey(f.Fleet), node(f.name))
			put(t, f.Fleet, f.name, func(r *provisioner.Record) { r.Next, r.Lineage = i, append(r.Lineage, i.KeyHash) })
		}, "unknown authority"},
		"a certificate that cost no use": {func(t *testing.T, f fixture) {
			put(t, f.Fleet, f.name, func(r *provisioner.Record) { r.Token = f.token })
		}, "holds no use"},
		"a certificate whose use was given back": {func(t *testing.T, f fixture) {
			put(t, f.Fleet, f.name, func(r *provisioner.Record) { r.Token = f.token })
			claim(t, f.Fleet, f.token, 1, f.n)
			releaseAll(t, f.Fleet, f.token, f.n)
		}, "holds no use"},
		"more uses than there are": {func(t *testing.T, f fixture) {
			claim(t, f.Fleet, f.token, 1, f.n, f.Node(f.other))
		}, "2 uses are held, the limit is 1"},
		"more uses than there are, of a token that only the log describes": {func(t *testing.T, f fixture) {
			f.tokens.mu.Lock()
			delete(f.limited, f.token)
			f.tokens.mu.Unlock()
			claim(t, f.Fleet, f.token, 1, f.n, f.Node(f.other))
		}, "2 uses are held, the limit is 1"},
		"more certificates than uses": {func(t *testing.T, f fixture) {
			put(t, f.Fleet, f.name, func(r *provisioner.Record) { r.Token = f.token })
			claim(t, f.Fleet, f.token, 1, f.n)
			releaseAll(t, f.Fleet, f.token, f.n)
			other := f.Node(f.other)
			f.Apply(other, f.Enroll(other))
			claim(t, f.Fleet, f.token, 0, other)
			put(t, f.Fleet, f.other, func(r *provisioner.Record) { r.Token = f.token })
		}, "2 keys have certificates, the limit is 1"},
		"a use of one attempt claimed twice": {func(t *testing.T, f fixture) {
			claim(t, f.Fleet, f.token, 1, f.n, f.n)
		}, "claims twice"},
		"a renewal that changes the token": {func(t *testing.T, f fixture) {
			i := issue(t, f.Fleet, newKey(f.Fleet), node(f.name))
			put(t, f.Fleet, f.name, func(r *provisioner.Record) {
				r.Next, r.Lineage, r.Decision.Reason, r.Token = i, append(r.Lineage, i.KeyHash),
					provisioner.ReasonRenew, "another"
			})
		}, "changes the token"},
		"a renewal that forgets the token's terms": {func(t *testing.T, f fixture) {
			i := issue(t, f.Fleet, newKey(f.Fleet), node(f.name))
			put(t, f.Fleet, f.name, func(r *provisioner.Record) {
				r.Next, r.Lineage, r.Decision.Reason, r.Terms = i, append(r.Lineage, i.KeyHash),
					provisioner.ReasonRenew, nil
			})
		}, "changes the token"},
		"a renewal that strands the node": {func(t *testing.T, f fixture) {
			i, other := issue(t, f.Fleet, newKey(f.Fleet), node(f.name)),
				issue(t, f.Fleet, newKey(f.Fleet), node(f.name))
			put(t, f.Fleet, f.name, func(r *provisioner.Record) {
				r.Current, r.Next, r.Lineage, r.Decision.Reason = other, i,
					append(r.Lineage, i.KeyHash, other.KeyHash), provisioner.ReasonRenew
			})
		}, "leaves no certificate that was live"},
		"an event of a certificate that is nowhere": {func(_ *testing.T, f fixture) {
			f.emit(events.Event{Type: events.Enrolled, Node: f.name, Serial: "1"})
		}, "is not on the node's record"},
		"an event of another's certificate": {func(_ *testing.T, f fixture) {
			f.emit(events.Event{Type: events.Enrolled, Node: f.other, Serial: f.Record(f.name).Current.Serial})
		}, "is not on the node's record"},
		"a plain request with a token that is to be sealed": {func(_ *testing.T, f fixture) {
			f.Enroll(f.SealedNode(f.other))
			for _, e := range f.Events() {
				if e.Node == f.other {
					e.Sealed = false
					f.emit(e)
				}
			}
		}, "by an unsealed request"},
		"a provisioned node without an event": {func(t *testing.T, f fixture) {
			f.Enroll(f.Node(f.other))
			put(t, f.Fleet, f.other, func(r *provisioner.Record) {
				r.State, r.Current, r.Next = provisioner.StateProvisioned, r.Next, nil
			})
		}, "but have no event"},
		"a revoked node with a certificate that nothing names": {func(t *testing.T, f fixture) {
			f.Revoke(f.name)
			put(t, f.Fleet, f.name, func(r *provisioner.Record) {
				r.Superseded = []trust.RevokedCertificate{{Serial: "abc", NotAfter: time.Now().Add(time.Hour)}}
			})
		}, "no entry names its certificates abc"},
	}
	l := &listener{TB: t}
	f := New(l, Options{})
	broken := map[string]fixture{}
	for what, tt := range tests {
		n := f.Node(fmt.Sprintf("web%d.example.net", len(broken)))
		f.Apply(n, f.Enroll(n))
		broken[what] = fixture{
			Fleet: f,
			n:     n,
			name:  n.Identity,
			other: fmt.Sprintf("other%d.example.net", len(broken)),
			token: f.TokenID(f.Token(Limited(1))),
		}
		tt.do(t, broken[what])
	}
	f.Check()
	for what, tt := range tests {
		b := broken[what]
		if !slices.ContainsFunc(l.said, func(said string) bool {
			return strings.Contains(said, tt.want) && (strings.Contains(said, b.name) ||
				strings.Contains(said, b.other) || strings.Contains(said, string(b.token)))
		}) {
			t.Errorf("%s: Check did not say %q of %s, %s or %s", what, tt.want, b.name, b.other, b.token)
		}
	}
	if t.Failed() {
		t.Logf("Check said:\n%s", strings.Join(l.said, "\n"))
	}
}

// Each place is made to hold a secret of its own.
func TestCheckFindsEachLeak(t *testing.T) {
	t.Parallel()
	l := &listener{TB: t}
	f := New(l, Options{})
	n := f.Node(a1)
	f.Apply(n, f.Enroll(n))
	signature := n.Token[strings.LastIndexByte(n.Token, '.')+1:]
	key, err := os.ReadFile(filepath.Join(f.Dir, "signer-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{
		Secret, Setting, Fact, f.Token(nil), "-----BEGIN PRIVATE KEY-----", signature, strings.Split(string(key), "\n")[1],
	} {
		f.log.logger().Info("oops", "a", secret)
	}
	f.emit(events.Event{Type: events.Refused, Cause: "because of " + Setting})
	f.Daemon().Store().Emit(events.Event{Type: events.Attempt, Cause: n.Token})
	put(t, f, a1, func(r *provisioner.Record) {
		r.Decision.Notes = []string{Setting}
		r.Agent = base64.StdEncoding.EncodeToString([]byte("x" + Setting))
	})
	f.Check()
	for _, want := range []string{
		"Check: the shared secret was logged",
		"Check: a pushed value was logged",
		"Check: a fact was logged",
		"Check: a token was logged",
		"Check: a private key was logged",
		"Check: the signature of token 0 was logged",
		"signer-key.pem in base64",
		"Check: a pushed value was reported",
		"Check: a token was stored on muster.attempt",
		"Check: a pushed value was stored on muster.node",
		"Check: a pushed value in base64 (2) was stored on muster.node",
	} {
		heard(t, l, want)
	}
}

func TestCheckFindsAStoreThatCannotBeRead(t *testing.T) {
	t.Parallel()
	l := &listener{TB: t}
	f := New(l, Options{})
	f.Enroll(f.Node(a1))
	put(t, f, a1, func(r *provisioner.Record) { r.Schema = 2 })
	f.Check()
	heard(t, l, "schema 2")
}

// heard expects want in a finding of Check, or no finding if want is empty.
func heard(t *testing.T, l *listener, want string) {
	t.Helper()
	said := strings.Join(l.said, "\n")
	if want == "" && said != "" || !strings.Contains(said, want) {
		t.Errorf("Check said %q, want %q in it", said, want)
	}
}

// A provisioned agent's disk is changed.
func TestCheckFindsChangedDisks(t *testing.T) {
	t.Parallel()
	write := func(name, content string, mode os.FileMode) func(*testing.T, *Agent, *Agent) {
		return func(t *testing.T, a, _ *Agent) {
			path := filepath.Join(a.Dir, name)
			if err := os.WriteFile(path, []byte(content), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	copied := func(name string) func(*testing.T, *Agent, *Agent) {
		return func(t *testing.T, a, other *Agent) {
			b, err := os.ReadFile(filepath.Join(other.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			write(name, string(b), 0o600)(t, a, other)
		}
	}
	tests := map[string]struct {
		do   func(t *testing.T, a, other *Agent)
		want string
	}{
		"nothing":                   {func(*testing.T, *Agent, *Agent) {}, ""},
		"another's certificate":     {copied("certificate.pem"), "not on its record"},
		"another's key":             {copied("private.pem"), "not the key of certificate.pem"},
		"no certificate":            {write("certificate.pem", "", 0o600), "its disk has no certificate"},
		"a key that is none":        {write("private.pem", "", 0o600), "private.pem"},
		"a configuration of no use": {write("server.conf", "hello\n", 0o600), a1},
		"a key that other users can read": {func(t *testing.T, a, _ *Agent) {
			if err := os.Chmod(filepath.Join(a.Dir, "private.pem"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "want mode 0600"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &listener{TB: t}
			f := New(l, Options{})
			token := f.Token(nil)
			a, other := f.Agent(a1, token), f.Agent("web2.example.net", token)
			f.WaitProvisioned(a, other)
			a.Stop()
			tt.do(t, a, other)
			f.Check()
			heard(t, l, tt.want)
		})
	}
}

const a1 = "web1.example.net"
