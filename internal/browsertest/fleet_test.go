package browsertest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster/provisioner/trust"

	"github.com/chromedp/chromedp"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/testproc"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/operate"
)

// markup is what a hostile node reports of itself.
const markup = `"><script>alert(1)</script><img src=x onerror=alert(2)>`

// shadowed decides differently about the first ten nodes.
const shadowed = `package muster.enroll

default allow := false

allow if not regex.match("^web[0-9]\\.", input.identity)

reasons contains "one digit is too few" if not allow

certificate := {"ttl": "720h"}
`

// fleet returns a fleet with a node in each state, refusals, forged tokens, pending nodes, and a hostile node.
func fleet(t *testing.T, nodes int) *testbed.Fleet {
	t.Helper()
	if !testproc.InCI() {
		t.Skip("needs a browser: `make browser` runs it")
	}
	shadow := t.TempDir()
	if err := os.WriteFile(filepath.Join(shadow, "policy.rego"), []byte(shadowed), 0o600); err != nil {
		t.Fatal(err)
	}
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.API.Listen, c.API.Addresses, c.ShadowPolicy = "127.0.0.1:0", []string{"127.0.0.1"}, shadow
	}})
	f.Allow("web*.example.net")
	for i := range nodes {
		n := f.Node(fmt.Sprintf("web%d.example.net", i+1))
		n.Facts = testbed.Facts(t, map[string]any{"role": "web", "rack": fmt.Sprintf("r%d", i%4),
			"private": testbed.Fact})
		e := f.Enroll(n)
		if i != 4 { // web5 never confirms
			f.Apply(n, e)
		}
		if i == 1 {
			serve(f, n, e)
		}
	}
	f.Revoke("web3.example.net")
	f.Retire("web4.example.net")
	wait(t, f, "db1.example.net", map[string]any{"role": "database", "serialnumber": "PX-4711",
		"networking": map[string]any{"ip": "10.2.0.17", "mac": "52:54:00:12:34:56"}})
	wait(t, f, "db2.example.net", map[string]any{"role": markup, "serialnumber": markup})
	wait(t, f, "lb1.example.net", map[string]any{"role": "load balancer"})
	f.Refused(f.Node("broker.fleet.test"))
	f.Refused(f.Node(markup))
	for range 3 {
		n := f.Node("web6.example.net") // another key
		f.Refused(n)
	}
	return f
}

// serve has a node ask for service certificates: one is issued, one waits, one is stuck with a hostile text.
func serve(f *testbed.Fleet, n *simnode.Node, e *wire.Enrolled) {
	f.AskService(n, e, "https", "www."+n.Identity, nil)
	f.AskService(n, e, "internal-endpoint", "haproxy.internal.example.net", nil)
	f.AskService(n, e, "sql", "", &wire.CertificateState{
		State: "failed",
		Stuck: true,
		Error: markup,
		Since: f.Clock.Now().UTC(),
	})
}

// wait has a node ask that then waits for approval.
func wait(t *testing.T, f *testbed.Fleet, identity string, facts map[string]any) {
	t.Helper()
	n := f.Node(identity)
	n.Facts = testbed.Facts(t, facts)
	if code := f.Refused(n); code != wire.CodeApprovalPending {
		t.Fatalf("%s: %s", identity, code)
	}
	f.Eventually(identity+" waits", func() bool {
		w, err := f.Daemon().Orders().Keys.Waiting(f.Context(), wire.Identity(identity))
		return err == nil && len(w) == 1
	})
}

// operator adds an operator and returns a token for it.
func operator(t *testing.T, f *testbed.Fleet, name string, role trust.OperatorRole) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := jwt.MarshalPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Daemon().Orders().Operators.Add(f.Context(),
		operate.NewOperator{Name: name, Role: role, Public: public}, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	return sign(t, f, name, key)
}

func sign(t *testing.T, f *testbed.Fleet, name string, key crypto.Signer) string {
	t.Helper()
	now := f.Clock.Now()
	text, err := jwt.SignOperator(key, jwt.OperatorClaims{
		Operator:  name,
		Audience:  f.Daemon().Store().Installation().ID,
		ID:        wire.NewID(),
		IssuedAt:  now,
		ExpiresAt: now.Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// signIn opens a tab with a signed-in operator.
func signIn(t *testing.T, f *testbed.Fleet, name string, role trust.OperatorRole) *tab {
	t.Helper()
	token := operator(t, f, name, role)
	b := open(t, f.Daemon().APIURL())
	b.enter(token)
	return b
}

// enter signs in with a token.
func (b *tab) enter(token string) {
	b.t.Helper()
	b.visit("/login")
	b.do(chromedp.SetValue("#token", token, chromedp.ByQuery), chromedp.Click("main button", chromedp.ByQuery),
		chromedp.WaitVisible(".tiles", chromedp.ByQuery))
}
