package provisioner_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"github.com/google/go-cmp/cmp"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/operate"
)

// newSigner returns a key and its public half.
func newSigner(t *testing.T) (ed25519.PrivateKey, []byte, jwt.SignerID) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b, err := jwt.MarshalPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	id, err := jwt.Fingerprint(pub)
	if err != nil {
		t.Fatal(err)
	}
	return key, b, id
}

// signedBy returns a node with a good token of a signer.
func signedBy(t *testing.T, f *testbed.Fleet, key ed25519.PrivateKey, name string) *simnode.Node {
	t.Helper()
	token, err := jwt.Sign(key, f.Claims())
	if err != nil {
		t.Fatal(err)
	}
	n, err := simnode.New(name, token)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSignersComeAndGo adds and removes a signer with limits at one provisioner. Every other one follows, also after
// a restart.
func TestSignersComeAndGo(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) { c.Site = "ams1" }})
	ps := []*provisioner.Provisioner{f.Daemon().Operator(), another(t, f, nil)}
	key, public, id := newSigner(t)
	web, db := signedBy(t, f, key, web1), signedBy(t, f, key, "db1.example.net")
	everywhere := func(n *simnode.Node, want wire.Code) {
		t.Helper()
		for _, p := range ps {
			f.Eventually(n.Identity+" is answered "+
				string(want)+" everywhere", func() bool { return codeAt(f, p, n) == want })
		}
	}
	everywhere(web, wire.CodeTokenInvalid)
	added, err := testbed.Orders(ps[1]).Signers.Add(f.Context(), trust.NewSigner{
		Public: public, Name: "racks", Sites: []string{"ams1", "lon1"}, Identities: []string{"web*.example.net"},
	}, testbed.Operator())
	if err != nil {
		t.Fatal(err)
	}
	want := &trust.SignerInfo{
		ID:         id,
		Name:       "racks",
		Source:     trust.SignerOfStore,
		KeyType:    "Ed25519",
		Sites:      []jwt.Site{"ams1", "lon1"},
		Identities: []wire.Pattern{"web*.example.net"},
		By:         testbed.Operator().By,
		Why:        testbed.Operator().Why,
		At:         added.At,
	}
	if diff := cmp.Diff(want, added); diff != "" || added.At.IsZero() {
		t.Errorf("added (-want +got):\n%s", diff)
	}
	if code := codeAt(f, ps[1], web); code != "" {
		t.Errorf("where it was added: %q", code)
	}
	everywhere(web, "")
	everywhere(db, wire.CodeTokenIdentity)
	// Other limits: databases now, and another site.
	if _, err := testbed.Orders(ps[0]).Signers.Add(f.Context(),
		trust.NewSigner{Public: public, Name: "databases", Identities: []string{"db*.example.net"}},
		testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	everywhere(db, "")
	everywhere(signedBy(t, f, key, "web2.example.net"), wire.CodeTokenIdentity)
	if _, err := testbed.Orders(ps[0]).Signers.Add(f.Context(),
		trust.NewSigner{Public: public, Name: "databases", Sites: []string{"lon1"}}, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	everywhere(signedBy(t, f, key, "db2.example.net"), wire.CodeTokenSite)

	if left, err := testbed.Orders(ps[1]).Signers.Remove(f.Context(), id, testbed.Operator()); left != 1 || err != nil {
		t.Fatalf("RemoveSigner = %d, %v", left, err)
	}
	if code := codeAt(f, ps[1], db); code != wire.CodeTokenInvalid {
		t.Errorf("where it was removed: %q", code)
	}
	everywhere(db, wire.CodeTokenInvalid)
	if left, err := testbed.Orders(ps[0]).Signers.Remove(f.Context(), id, testbed.Operator()); left != 1 || err != nil {
		t.Errorf("removed once more: %d, %v", left, err)
	}
	f.Stop()
	f.Start()
	if code := codeAt(f, f.Daemon().Operator(), db); code != wire.CodeTokenInvalid {
		t.Errorf("after a restart: %q", code)
	}
	list, err := f.Daemon().Orders().Signers.List(f.Context())
	if err != nil || len(list) != 2 || list[0].Name != "databases" || !list[0].Removed || list[0].InFile ||
		list[1].Name != "signer" || list[1].Source != trust.SignerOfFile || list[1].Removed {
		t.Errorf("signers %+v, %v", list, err)
	}
	if _, err := f.Daemon().Orders().Signers.Add(f.Context(), trust.NewSigner{Public: public, Name: "databases"},
		testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	f.Enroll(signedBy(t, f, key, "db3.example.net"))
	if added, removed := emitted(f, events.SignerAdded), emitted(f, events.SignerRemoved); len(added) != 4 ||
		len(removed) != 1 || removed[0].Signer != id || removed[0].By == "" {
		t.Errorf("events %+v, %+v", added, removed)
	}
	f.Check()
}

// TestASignerOfTheFileIsRemoved removes the only signer of provisioner.yaml. Its tokens enroll no node, not even
// right after a restart, and the fleet goes on.
func TestASignerOfTheFileIsRemoved(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	other := another(t, f, nil)
	n, e := inFleet(t, f, web1)
	list, err := f.Daemon().Orders().Signers.List(f.Context())
	if err != nil || len(list) != 1 || list[0].Source != trust.SignerOfFile || !list[0].InFile {
		t.Fatalf("signers %+v, %v", list, err)
	}
	if left, err := f.Daemon().Orders().Signers.Remove(f.Context(), list[0].ID, testbed.Operator()); left != 0 ||
		err != nil {
		t.Fatalf("RemoveSigner = %d, %v", left, err)
	}
	stranger, err := simnode.New("web2.example.net", n.Token)
	if err != nil {
		t.Fatal(err)
	}
	if code := codeAt(f, f.Daemon().Operator(), stranger); code != wire.CodeTokenInvalid {
		t.Errorf("where it was removed: %q", code)
	}
	if _, err := f.Daemon().Orders().Nodes.Command(f.Context(), web1, operate.CommandOrder{Verb: wire.VerbReprovision},
		testbed.Operator()); !errors.Is(err, trust.ErrState) || !strings.Contains(err.Error(), "which was removed") {
		t.Errorf("a node of the fleet is sent to enroll with a token that is good no more: %v", err)
	}
	f.Eventually("the other provisioner refuses", func() bool {
		_, err := other.Gate.AdmitToken(n.Token, "")
		return errors.Is(err, jwt.ErrUnknownSigner)
	})
	for range 2 {
		if err := f.Daemon().Admits(f.Context(), web1, e.Serial); err != nil {
			t.Errorf("the fleet: %v", err)
		}
		if nc, err := simnode.Dial(f.URL(), n.Token); err == nil {
			nc.Close()
			t.Error("the broker admits the token")
		}
		f.Stop()
		f.Start()
	}
	// The same key again.
	found, public, _ := newSigner(t)
	if _, err := f.Daemon().Orders().Signers.Add(f.Context(), trust.NewSigner{Public: public, Name: "new"},
		testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	f.Enroll(signedBy(t, f, found, "web3.example.net"))
	if code := codeAt(f, f.Daemon().Operator(), stranger); code != wire.CodeTokenInvalid {
		t.Errorf("the removed one beside a new one: %q", code)
	}
	f.Check()
}

// slowTrust is a store whose process is suspended right before it adds a signer, an operator or an allow-list entry.
type slowTrust struct {
	provisioner.Store
	stopped, goOn chan struct{}
}

func (s *slowTrust) Logs() *orders.Logs {
	return testbed.WrapLogs(s.Store.Logs(), func(_ context.Context, _ string, put testbed.Put) (trust.Revision, error) {
		s.stopped <- struct{}{}
		<-s.goOn
		return put()
	})
}

// TestASuspendedProcessUndoesNoRemoval: another process removes the signer between read and write. It stays removed,
// and the order fails. Operators likewise.
func TestASuspendedProcessUndoesNoRemoval(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	p := f.Daemon().Operator()
	slow := &slowTrust{stopped: make(chan struct{}), goOn: make(chan struct{})}
	other := another(t, f, func(s provisioner.Store) provisioner.Store { slow.Store = s; return slow })
	key, public, id := newSigner(t)
	if _, err := testbed.Orders(p).Signers.Add(f.Context(), trust.NewSigner{Public: public, Name: "racks"},
		testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	if _, err := testbed.Orders(p).Operators.Add(f.Context(),
		operate.NewOperator{Name: "anna", Role: trust.RoleViewer, Public: public}, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]struct{ add, remove func() error }{
		"signer": {
			add: func() error {
				_, err := testbed.Orders(other).Signers.Add(f.Context(),
					trust.NewSigner{Public: public, Name: "racks", Sites: []string{"ams1"}}, testbed.Operator())
				return err
			},
			remove: func() error {
				_, err := testbed.Orders(p).Signers.Remove(f.Context(), id, testbed.Operator())
				return err
			},
		},
		"operator": {
			add: func() error {
				_, err := testbed.Orders(other).Operators.Add(f.Context(),
					operate.NewOperator{Name: "anna", Role: trust.RoleAdmin, Public: public}, testbed.Operator())
				return err
			},
			remove: func() error { return testbed.Orders(p).Operators.Remove(f.Context(), "anna", testbed.Operator()) },
		},
	} {
		added := make(chan error, 1)
		go func() { added <- change.add() }()
		<-slow.stopped
		if err := change.remove(); err != nil {
			t.Fatalf("%s: removed: %v", what, err)
		}
		slow.goOn <- struct{}{}
		if err := <-added; !errors.Is(err, trust.ErrState) {
			t.Errorf("%s: added in ignorance of the removal: %v, want %v", what, err, trust.ErrState)
		}
	}
	signers, err := testbed.Orders(p).Signers.List(f.Context())
	if err != nil || !slices.ContainsFunc(signers, func(s trust.SignerInfo) bool { return s.ID == id && s.Removed }) {
		t.Errorf("the removed signer is trusted again: %+v, %v", signers, err)
	}
	operators, err := testbed.Orders(p).Operators.List(f.Context())
	if err != nil || len(operators) != 1 || !operators[0].Removed {
		t.Errorf("the removed operator is one again: %+v, %v", operators, err)
	}
	if code := codeAt(f, p, signedBy(t, f, key, web1)); code != wire.CodeTokenInvalid {
		t.Errorf("a token of the removed signer: %q", code)
	}
}
