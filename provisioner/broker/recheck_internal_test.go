package broker

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/fleet"
)

const gatePatience = 30 * time.Second

// servers is a server with connections of nodes, an External, and the gate's decisions.
type servers struct {
	*External
	server *server.Server

	mu    sync.Mutex
	admit func(id wire.Identity, c Certificate) error // guarded by mu
}

func newServers(t *testing.T) *servers {
	t.Helper()
	keys, err := NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	pairs, err := keys.pairs()
	if err != nil {
		t.Fatal(err)
	}
	fleet, system := server.NewAccount(AccountFleet), server.NewAccount(AccountSystem)
	permitted := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: systemPublish[:]},
		Subscribe: &server.SubjectPermission{Allow: systemSubscribe[:]},
	}
	f := &servers{admit: func(wire.Identity, Certificate) error { return nil }}
	f.server, err = server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		SystemAccount: AccountSystem, Accounts: []*server.Account{fleet, system},
		Users: []*server.User{
			{Username: "web1.example.net", Password: "secret", Account: fleet},
			{Username: "web2.example.net", Password: "secret", Account: fleet},
			{Username: "other", Password: "secret", Account: system},
		},
		Nkeys: []*server.NkeyUser{{Nkey: pairs.system.public, Account: system, Permissions: permitted}},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.server.Start()
	t.Cleanup(func() { f.server.Shutdown(); f.server.WaitForShutdown() })
	if !f.server.ReadyForConnections(gatePatience) {
		t.Fatal("the server does not start")
	}
	f.External, err = NewExternal(ExternalConfig{URLs: f.server.ClientURL(), Keys: keys, Gate: GateConfig{
		TrustDomain: "example.net",
		VerifyToken: func(Presented) (time.Time, error) { return time.Time{}, nil },
		AdmitNode: func(_ context.Context, id wire.Identity, c Certificate) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.admit(id, c)
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), gatePatience)
	defer cancel()
	if err := f.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Stop(context.Background()) })
	return f
}

func (f *servers) says(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.admit = func(wire.Identity, Certificate) error { return err }
}

// connect returns a connection and a channel that closes when it ends.
func (f *servers) connect(t *testing.T, user string) (*nats.Conn, <-chan struct{}) {
	t.Helper()
	closed := make(chan struct{})
	nc, err := nats.Connect(f.server.ClientURL(), nats.UserInfo(user, "secret"), nats.NoReconnect(),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc, closed
}

func ended(t *testing.T, what string, closed <-chan struct{}) {
	t.Helper()
	select {
	case <-closed:
	case <-time.After(gatePatience):
		t.Fatalf("%s: the connection stays", what)
	}
}

func TestExternalRecheckDropsRevokedConnections(t *testing.T) {
	t.Parallel()
	f := newServers(t)
	many := []wire.Identity{"web1.example.net"}
	for len(many) <= maxSingleQueries {
		many = append(many, "never.example.net")
	}
	for what, recheck := range map[string]func() error{
		"one":  func() error { return f.Recheck(t.Context(), "web1.example.net") },
		"many": func() error { return f.Recheck(t.Context(), many...) },
	} {
		nc, closed := f.connect(t, "web1.example.net")
		other, _ := f.connect(t, "web2.example.net")
		f.says(&Denied{wire.CodeRevocationsUnknown, errors.New("not fresh")})
		if err := recheck(); err == nil {
			t.Errorf("%s: no error, and the gate does not know", what)
		}
		f.says(nil)
		if err := errors.Join(recheck(), nc.Flush()); err != nil {
			t.Errorf("%s: a node that is admitted: %v", what, err)
		}
		f.says(errors.New("revoked"))
		if err := recheck(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		ended(t, what, closed)
		if err := other.Flush(); err != nil {
			t.Errorf("%s: the connection of another node: %v", what, err)
		}
	}
	_, closed := f.connect(t, "web2.example.net")
	if err := f.RecheckAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended(t, "all", closed)
}

func TestConnectionsBeyondAPageAreRechecked(t *testing.T) {
	t.Parallel()
	f := newServers(t)
	f.control.page = 4
	var all []<-chan struct{}
	for range 23 {
		_, closed := f.connect(t, "web1.example.net")
		all = append(all, closed)
	}
	f.says(errors.New("revoked"))
	for range 5 { // entries move up when connections end
		if err := f.RecheckAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, closed := range all {
		ended(t, "a page", closed)
	}
}

// A known server does not answer, or refuses to.
func TestSilentServerIsNamedAndDelaysNoOther(t *testing.T) {
	t.Parallel()
	f := newServers(t)
	appeared := make(chan struct{}, 10)
	f.control.appeared = func() { appeared <- struct{}{} }
	other, _ := f.connect(t, "other")
	const silent = "NSILENT"
	if err := other.Publish("$SYS.SERVER."+silent+".STATSZ", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	ended(t, "a server that is heard of for the first time", appeared)
	f.says(errors.New("revoked"))
	_, closed := f.connect(t, "web1.example.net")
	if err := f.Recheck(t.Context(), "web1.example.net"); err == nil || !strings.Contains(err.Error(), silent) {
		t.Errorf("Recheck = %v, want the server named", err)
	}
	ended(t, "at the server that answers", closed)
	if _, err := other.Subscribe(connzSubject, func(m *nats.Msg) {
		b, err := json.Marshal(serverReply[server.Connz]{Server: server.ServerInfo{ID: silent},
			Error: &server.ApiError{Code: 500, Description: "not now"}})
		if err != nil || m.Respond(b) != nil {
			t.Error("no answer")
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := other.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Recheck(t.Context(), "web1.example.net"); err == nil || !strings.Contains(err.Error(), "not now") {
		t.Errorf("Recheck = %v, want what the server says", err)
	}
}

// told has the newest state of nodes.
type told struct {
	mu   sync.Mutex
	open map[wire.Identity]bool
	all  bool // listed
}

func (k *told) Changed(_ fleet.Broker, c fleet.Connection) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[c.Node] = c.Ended.IsZero()
}

func (k *told) Listed(open fleet.Open, _ time.Time) {
	for b, all := range open {
		for _, c := range all {
			k.Changed(b, c)
		}
	}
}

func (k *told) Settled(at time.Time, _ bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = !at.IsZero()
}

func (k *told) says(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(gatePatience); time.Now().Before(end); runtime.Gosched() {
		k.mu.Lock()
		ok := done()
		k.mu.Unlock()
		if ok {
			return
		}
	}
	t.Fatalf("not told of %s", what)
}

func TestConnectionsOfExternalServersAreFollowed(t *testing.T) {
	t.Parallel()
	f := newServers(t)
	f.connect(t, "web1.example.net")
	k := &told{open: make(map[wire.Identity]bool)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Follow(ctx, k) }()
	k.says(t, "the node that was connected before", func() bool { return k.all && k.open["web1.example.net"] })
	second, _ := f.connect(t, "web2.example.net")
	k.says(t, "a new connection", func() bool { return k.open["web2.example.net"] })
	second.Close()
	k.says(t, "the end of a connection", func() bool { return !k.open["web2.example.net"] })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
