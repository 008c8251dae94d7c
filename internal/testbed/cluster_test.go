package testbed_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/daemon"
	"muster/internal/setup"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/broker"
	"muster/provisioner/operate"
	"muster/provisioner/store"
	"muster/provisioner/trust"
)

// TestAClusterEnrolls enrolls over three nats-server processes and two provisioners: plain and sealed agents up to
// normal mode, simulated nodes at each server; then renewal, and a revocation that drops a node's connections to all
// servers.
func TestAClusterEnrolls(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 3})
	f.AddProvisioner("second.fleet.test", func(_ *testbed.Provisioner, c *daemon.Config) {
		c.API.Listen, c.API.Names = "127.0.0.1:0", []string{"api.fleet.test", "console.fleet.test"}
	})
	agents := []*testbed.Agent{f.Agent("plain.example.net", f.Token(nil)),
		f.Agent("sealed.example.net", f.Token(f.Seal))}
	f.WaitProvisioned(agents...)

	var live []*nats.Conn
	n := f.Node("web1.example.net")
	given := f.Enroll(n)
	if r := f.Apply(n, given); r.Applied == nil {
		t.Fatalf("not confirmed: %+v", r)
	}
	other := f.Node("web2.example.net")
	stays := f.Enroll(other)
	f.Apply(other, stays)
	n, given = f.Renew(n, given)
	if r := f.AppliedOverFleet(n, given); r.Applied == nil {
		t.Fatalf("renewal not confirmed: %+v", r)
	}
	for _, s := range f.Servers() {
		live = append(live, dialFleet(t, s, n, given))
	}
	kept := dialFleet(t, f.Servers()[0], other, stays)
	f.Revoke(n.Identity)
	for i, nc := range live {
		f.Eventually(fmt.Sprintf("the connection to %s is dropped", f.Servers()[i].Name), nc.IsClosed)
	}
	if nc, err := n.DialFleet(f.URL(), given); err == nil {
		nc.Close()
		t.Error("the revoked node connects again")
	}
	if kept.IsClosed() {
		t.Error("another node was dropped as well")
	}
	for _, name := range []string{"second.fleet.test", "console.fleet.test"} {
		f.Eventually("the other provisioner's "+name+" is reserved", func() bool {
			_, err := f.Daemon().Orders().AllowList.Add(f.Context(),
				operate.AllowOrder{Pattern: name}, trust.Cause{By: "test", Why: "a node like any other"})
			return err != nil && strings.Contains(err.Error(), "another provisioner")
		})
	}
	f.Check()
}

// dialFleet connects a provisioned node to this server alone.
func dialFleet(t *testing.T, s *testbed.Server, n *simnode.Node, e *wire.Enrolled) *nats.Conn {
	t.Helper()
	nc, err := n.DialFleet(s.URL(), e, nats.NoReconnect())
	if err != nil {
		t.Fatalf("%s connects to %s: %v", n.Identity, s.Name, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// A node renews while its former certificate has a connection to each server.
func TestASupersededCertificateIsDroppedEverywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 3})
	n := f.Node("web1.example.net")
	given := f.Enroll(n)
	f.Apply(n, given)
	var before []*nats.Conn
	for _, s := range f.Servers() {
		before = append(before, dialFleet(t, s, n, given))
	}
	next, newer := f.Renew(n, given)
	after := dialFleet(t, f.Servers()[1], next, newer)
	if r := f.AppliedOverFleet(next, newer); r.Applied == nil {
		t.Fatalf("renewal not confirmed: %+v", r)
	}
	for i, nc := range before {
		f.Eventually(fmt.Sprintf("the connection to %s is dropped", f.Servers()[i].Name), nc.IsClosed)
	}
	if err := after.Flush(); err != nil {
		t.Errorf("the new certificate's connection: %v", err)
	}
	f.Check()
}

// More nodes than a token has uses ask two provisioners at once.
func TestALimitedTokenAtTwoProvisioners(t *testing.T) {
	t.Parallel()
	const uses, nodes = 7, 20
	f := testbed.New(t, testbed.Options{Servers: 1})
	f.AddProvisioner("second.fleet.test")
	token := f.Token(func(c *jwt.Claims) {
		if err := c.SetLimits(jwt.Limits{Uses: uses}); err != nil {
			t.Fatal(err)
		}
	})
	w := wave(t, f, token, nodes, func(r *wire.Refusal) bool { return r.Code == wire.CodeTokenUsedUp.SentAs() })
	w.Wait()
	if got := len(w.provisioned()); got != uses {
		t.Errorf("%d nodes are provisioned with a token of %d uses: %v", got, uses, w.refused())
	}
	f.Check()
}

// The leader of the records is killed while nodes enroll: after some seconds without a leader all nodes end
// provisioned, and nothing acknowledged is lost.
func TestNothingIsLostWhenAServerIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	const nodes = 40
	f := testbed.New(t, testbed.Options{Servers: 3})
	f.AddProvisioner("second.fleet.test")
	w := wave(t, f, f.Token(nil), nodes, nil)
	w.reached(nodes / 4)
	leader := f.Leader("MUSTER_NODES")
	leader.Kill()
	w.Wait()
	if got := len(w.provisioned()); got != nodes {
		t.Errorf("%d of %d nodes are provisioned: %v", got, nodes, w.refused())
	}
	leader.Start()
	f.Check()
}

// nodesAt is a wave of simulated nodes.
type nodesAt struct {
	sync.WaitGroup
	f    *testbed.Fleet
	mu   sync.Mutex
	done map[string]bool       // guarded by mu: by identity
	last map[string]*wire.Code // guarded by mu: the last refusal
	told map[string]string     // guarded by mu: serial that each node got
}

// wave has nodes enroll and confirm until they are provisioned or finally refused.
func wave(t *testing.T, f *testbed.Fleet, token string, nodes int, final func(*wire.Refusal) bool) *nodesAt {
	return waveAs(t, f, token, nodes, final, func(int) bool { return true })
}

// waveAs is a wave where node i starts only once may allows it.
func waveAs(t *testing.T, f *testbed.Fleet, token string, nodes int, final func(*wire.Refusal) bool,
	may func(int) bool) *nodesAt {
	w := &nodesAt{f: f, done: map[string]bool{}, last: map[string]*wire.Code{}, told: map[string]string{}}
	ctx := f.Context()
	for i := range nodes {
		n, err := simnode.New(fmt.Sprintf("node%d.example.net", i), token)
		if err != nil {
			t.Fatal(err)
		}
		w.Go(func() {
			again := time.NewTicker(50 * time.Millisecond)
			defer again.Stop()
			for !may(i) || !w.try(ctx, t, n, final) {
				select {
				case <-ctx.Done():
					t.Errorf("%s is not provisioned: %v", n.Identity, ctx.Err())
					return
				case <-again.C:
				}
			}
		})
	}
	return w
}

// try reports whether the node is finished.
func (w *nodesAt) try(ctx context.Context, t *testing.T, n *simnode.Node, final func(*wire.Refusal) bool) bool {
	nc, err := simnode.Dial(w.f.URL(), n.Token)
	if err != nil {
		return false
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := simnode.Enroll(ctx, nc, n.Request())
	if err != nil {
		return false
	}
	w.mu.Lock()
	if r.Refusal != nil {
		w.last[n.Identity] = &r.Refusal.Code
		w.mu.Unlock()
		return final != nil && final(r.Refusal)
	}
	if before := w.told[n.Identity]; before != "" && before != r.Enrolled.Serial {
		t.Errorf("%s was told certificate %s and then %s", n.Identity, before, r.Enrolled.Serial)
	}
	w.told[n.Identity] = r.Enrolled.Serial
	w.mu.Unlock()
	a, err := n.Confirm(r.Enrolled)
	if err != nil {
		t.Error(err)
		return true
	}
	if r, err = simnode.Apply(ctx, nc, a); err != nil || r.Applied == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[n.Identity] = true
	return true
}

// reached waits until n nodes are provisioned.
func (w *nodesAt) reached(n int) {
	w.f.Eventually(fmt.Sprintf("%d nodes are provisioned", n), func() bool { return len(w.provisioned()) >= n })
}

func (w *nodesAt) provisioned() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for id := range w.done {
		list = append(list, id)
	}
	return list
}

// refused describes the last refusals.
func (w *nodesAt) refused() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for id, code := range w.last {
		if !w.done[id] {
			fmt.Fprintf(&b, "%s: %s; ", id, *code)
		}
	}
	return b.String()
}

// A provisioner of another authority uses the servers and secrets of the first.
func TestAnotherInstallationIsRefused(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	dir := filepath.Join(t.TempDir(), "other")
	if err := setup.Init(dir, setup.Installation{
		Name:        "other.fleet.test",
		TrustDomain: "fleet.test",
		Cluster:     f.URL(),
		Replicas:    1,
	}); err != nil {
		t.Fatal(err)
	}
	copySecrets(t, f.Dir, dir)
	d, err := daemon.Load(filepath.Join(dir, "provisioner.yaml"), daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Run(f.Context(), func() { t.Error("it serves") }); !errors.Is(err, store.ErrInstallation) {
		t.Errorf("Run = %v, want %v", err, store.ErrInstallation)
	}
}

func copySecrets(t *testing.T, from, to string) {
	t.Helper()
	for _, name := range []string{"provisioner", "system", "issuer", "xkey"} {
		b, err := os.ReadFile(filepath.Join(from, "cluster", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, "cluster", name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A server's configuration lacks the line about syncing.
func TestAServerThatDoesNotSyncIsRefused(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	s := f.Servers()[0]
	f.Stop()
	path := filepath.Join(s.Dir, "nats-server.conf")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lax := strings.Replace(string(b), "sync_interval: always", "", 1)
	if lax == string(b) {
		t.Fatal("the configuration does not say that writes are synced")
	}
	if err := os.WriteFile(path, []byte(lax), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	s.Start()
	d, err := daemon.Load(filepath.Join(f.Dir, "provisioner.yaml"), daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Run(f.Context(), func() { t.Error("it serves") }); !errors.Is(err, broker.ErrNotSynced) {
		t.Errorf("Run = %v, want %v", err, broker.ErrNotSynced)
	}
}

// No provisioner answers the brokers' callout.
func TestNodesWaitWithoutAProvisioner(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	n := f.Node("web1.example.net")
	given := f.Enroll(n)
	f.Apply(n, given)
	live := dialFleet(t, f.Servers()[0], n, given)
	f.Stop()
	a := f.Agent("web2.example.net", f.Token(nil))
	f.Eventually("the agent says what is missing", func() bool {
		return strings.Contains(f.Log(), "start the provisioner that serves this broker")
	})
	if err := live.Flush(); err != nil {
		t.Errorf("a connection that was there: %v", err)
	}
	f.Start()
	f.WaitProvisioned(a)
	f.Check()
}

// Connections through a nats-server have the same permissions as with an embedded broker.
func TestTheCalloutGivesTheEmbeddedBrokersPermissions(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	url := f.Servers()[0].URL()
	for name, opts := range map[string][]nats.Option{
		"nothing":                      {},
		"an unsigned token":            {nats.Token("eyJhbGciOiJub25lIn0.e30.")},
		"a good token, no proper name": {nats.Token(f.Token(nil))},
		"a password":                   {nats.UserInfo("muster", "muster")},
	} {
		nc, err := nats.Connect(url, append(opts, nats.NoReconnect(), nats.Timeout(10*time.Second))...)
		if err == nil {
			nc.Close()
		}
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v, want that it is refused", name, err)
		}
	}
	n := f.Node("web1.example.net")
	given := f.Enroll(n)
	stranger := f.Node("web2.example.net")
	unconfirmed := *given
	if nc, err := (&simnode.Node{Identity: n.Identity, Key: stranger.Key}).DialFleet(url, &unconfirmed); err == nil {
		nc.Close()
		t.Error("a certificate without its key connects")
	}
	violations := make(chan error, 16)
	heard := nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violations <- err })
	for kind, dial := range map[string]func() (*nats.Conn, error){
		"a token":       func() (*nats.Conn, error) { return simnode.Dial(url, f.Token(nil), heard) },
		"a certificate": func() (*nats.Conn, error) { return n.DialFleet(url, given, heard) },
	} {
		nc, err := dial()
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		defer nc.Close()
		for _, subject := range []string{">", "_INBOX.>", "muster.>", "$SYS.>", "$JS.API.>"} {
			if _, err := nc.SubscribeSync(subject); err != nil {
				t.Fatal(err)
			}
			refused(t, kind+" subscribes "+subject, violations)
		}
		for _, subject := range []string{"muster.node.web1_example_net", "$JS.API.STREAM.LIST",
			wire.CommandSubject("web9.example.net"), "$SYS.REQ.USER.AUTH"} {
			if err := nc.Publish(subject, nil); err != nil {
				t.Fatal(err)
			}
			refused(t, kind+" publishes "+subject, violations)
		}
		f.Eventually(kind+" is told how much it may send", func() bool {
			return nc.MaxPayload() == wire.MaxMessageBytes
		})
	}
	f.Check()
}

// refused waits for a permission violation.
func refused(t *testing.T, what string, violations <-chan error) {
	t.Helper()
	select {
	case err := <-violations:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("%s, and is not refused", what)
	}
}

// The token is about to expire.
func TestAConnectionEndsWithItsToken(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	var nc *nats.Conn
	life := 3 * time.Second
	f.Eventually("a connection with such a token is admitted", func() (connects bool) {
		token := f.Token(func(c *jwt.Claims) { c.ExpiresAt = time.Now().Add(life) })
		life *= 2 // a slow machine missed it
		var err error
		nc, err = simnode.Dial(f.URL(), token)
		return err == nil
	})
	defer nc.Close()
	f.Eventually("the connection ends", nc.IsClosed)
}
