package broker_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"muster/provisioner/broker"
)

// outside is a nats-server in this process, configured by Text, with a site's gate.
type outside struct {
	*site
	keys     broker.Keys
	server   *server.Server
	url      string // where clients connect
	external *broker.External
	path     string // of the server's configuration
}

// newOutside starts both. edit, if not nil, changes the configuration first.
func newOutside(t testing.TB, edit func(string) string) *outside {
	t.Helper()
	o := newServer(t, edit)
	o.external = o.provisioner(t, o.keys, o.url)
	return o
}

// newServer starts the server without provisioners.
func newServer(t testing.TB, edit func(string) string) *outside {
	t.Helper()
	keys, err := broker.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	o := &outside{site: newSite(t), keys: keys, path: serverFile(t, keys, edit)}
	o.server = startServer(t, o.path)
	o.url = o.server.ClientURL()
	return o
}

func startServer(t testing.TB, path string) *server.Server {
	t.Helper()
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatal(err)
	}
	opts.NoSigs, opts.NoLog = true, true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Shutdown()
			s.WaitForShutdown()
		}()
		receive(t, "end of the server", ended)
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	return s
}

// serverFile writes the configuration of a server on a free port and returns its path. edit may be nil.
func serverFile(t testing.TB, keys broker.Keys, edit func(string) string) string {
	t.Helper()
	text, err := broker.ServerConfig{
		Name: "n1", Listen: "127.0.0.1:-1", StoreDir: t.TempDir(), Certificate: "c", Key: "k", CA: "a", Keys: keys,
	}.Text()
	if err != nil {
		t.Fatal(err)
	}
	// Without TLS, which these tests do not need.
	before, rest, _ := strings.Cut(text, "tls {")
	_, after, ok := strings.Cut(rest, "}\n")
	if !ok {
		t.Fatalf("no tls block:\n%s", text)
	}
	if text = before + after; edit != nil {
		text = edit(text)
	}
	path := filepath.Join(t.TempDir(), "nats-server.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// provisioner answers the callout of the server at url until the test ends.
func (o *outside) provisioner(t testing.TB, keys broker.Keys, url string) *broker.External {
	t.Helper()
	return o.provisionerWith(t, broker.ExternalConfig{URLs: url, Keys: keys, Gate: o.config(t).Gate})
}

func (o *outside) provisionerWith(t testing.TB, cfg broker.ExternalConfig) *broker.External {
	t.Helper()
	e, err := broker.NewExternal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	starting, started := context.WithTimeout(t.Context(), patience)
	defer started()
	if err := e.Start(starting); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- e.Authenticate(ctx, func() { close(ready) }) }()
	receive(t, "callout", ready)
	t.Cleanup(func() {
		cancel()
		if err := receive(t, "end of the callout", done); err != nil {
			t.Error(err)
		}
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// Without an xkey, tokens would be readable between servers.
func TestCalloutInClearIsNotAnswered(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(string) string{
		"encrypted": nil,
		"in clear": func(text string) string {
			before, rest, _ := strings.Cut(text, "    xkey: ")
			_, after, _ := strings.Cut(rest, "\n")
			return before + after
		},
	} {
		o := newOutside(t, edit)
		connect := func() (*nats.Conn, error) {
			return nats.Connect(o.url, nats.Token(goodToken), nats.Name(strings.Repeat("A", 22)),
				nats.Timeout(10*time.Second))
		}
		nc, err := connect()
		// The server pings an admitted client only after seconds, which nats.go does not expect.
		for n := 0; n < 5 && edit == nil && err != nil && strings.Contains(err.Error(), "got 'PING'"); n++ {
			nc, err = connect()
		}
		if err == nil {
			nc.Close()
		}
		if admitted := err == nil; admitted != (edit == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNewExternalListsEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := broker.NewExternal(broker.ExternalConfig{URLs: "http://u:hush@n1", Keys: broker.Keys{
		Provisioner: "hush-1", System: "SAhush-2", Issuer: "hush-3", XKey: "hush-4",
	}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"server 1 contains a user", "credentials: ", "system credentials: ", "issuer: ",
		"xkey: ", "gate: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hush") {
		t.Errorf("a secret in %v", err)
	}
	if !errors.Is(err, broker.ErrKey) {
		t.Errorf("%v does not wrap %v", err, broker.ErrKey)
	}
}

func TestExternalIsNotRunningBeforeStart(t *testing.T) {
	t.Parallel()
	keys, err := broker.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	gate := newSite(t).config(t).Gate
	e, err := broker.NewExternal(broker.ExternalConfig{URLs: "nats://127.0.0.1:1", Keys: keys, Gate: gate})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Recheck(t.Context(), "web1.example.net"), e.RecheckAll(t.Context())); !errors.Is(err,
		broker.ErrNotRunning) {
		t.Errorf("Recheck = %v, want %v", err, broker.ErrNotRunning)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := e.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Start without a server = %v, want %v", err, context.DeadlineExceeded)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Errorf("Stop = %v", err)
	}
}
