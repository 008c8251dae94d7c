package broker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner/broker"
)

func TestNewListsEveryMistake(t *testing.T) {
	t.Parallel()
	s := &site{ca: newAuthority(t), log: &buffer{}}
	tests := map[string]struct {
		edit func(*broker.Config)
		want []string
	}{
		"empty": {func(c *broker.Config) { *c = broker.Config{} },
			[]string{"listen address", "TrustDomain, VerifyToken and AdmitNode"}},
		"no port":       {func(c *broker.Config) { c.Listen = "127.0.0.1" }, []string{"host:port"}},
		"port too high": {func(c *broker.Config) { c.Listen = "127.0.0.1:65536" }, []string{"65535"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := s.config(t)
			tt.edit(&cfg)
			_, err := broker.New(cfg)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("New error = %v, want it to say %q", err, want)
				}
			}
		})
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	s := &site{ca: newAuthority(t), log: &buffer{}}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { busy.Close() }) // after the parallel subtests

	tests := map[string]struct {
		edit func(*broker.Config)
		want string // the cause
	}{
		"store below a file": {func(c *broker.Config) { c.StoreDir = filepath.Join(file, "store") }, "not a directory"},
		"store is a file":    {func(c *broker.Config) { c.StoreDir = file }, "not a directory"},
		"jetstream directory is a file": {func(c *broker.Config) {
			if err := os.WriteFile(filepath.Join(c.StoreDir, "jetstream"), nil, 0o600); err != nil {
				t.Error(err)
			}
		}, "not a directory"},
		"port in use": {func(c *broker.Config) { c.Listen = busy.Addr().String() }, "address already in use"},
		"no address":  {func(c *broker.Config) { c.Listen = "192.0.2.1:0" }, "cannot assign"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := s.config(t)
			tt.edit(&cfg)
			b, err := broker.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := b.Start(ctx); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Start error = %v, want %q at once", err, tt.want)
			}
			if _, err := b.Connect("x"); !errors.Is(err, broker.ErrNotRunning) {
				t.Errorf("Connect error = %v, want %v", err, broker.ErrNotRunning)
			}
			if url := b.URL(); url != "" {
				t.Errorf("URL = %q, want none", url)
			}
			stop(t, b)
		})
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := &site{ca: newAuthority(t), log: &buffer{}}
	cfg := s.config(t)
	b, err := broker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// The server may be quicker than the context.
	if err := b.Start(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Start error = %v, want %v", err, context.Canceled)
	}
	stop(t, b)
	start(t, cfg) // the store is free again
}

func TestStoreServesOneBroker(t *testing.T) {
	t.Parallel()
	s := &site{ca: newAuthority(t), log: &buffer{}}
	cfg := s.config(t)
	first := start(t, cfg)
	second, err := broker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Start(t.Context()); !errors.Is(err, broker.ErrStoreInUse) {
		t.Fatalf("Start of a second broker = %v, want %v", err, broker.ErrStoreInUse)
	}
	stop(t, first)
	stop(t, first)
	start(t, cfg)
}

func TestRestartKeepsTheStore(t *testing.T) {
	t.Parallel()
	s := &site{ca: newAuthority(t), log: &buffer{}}
	cfg := s.config(t)
	first := start(t, cfg)
	stream := open(t, first, func(js jetstream.JetStream) (jetstream.Stream, error) {
		return js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"muster.node.*"}})
	})
	if got := stream.CachedInfo().Config.Storage; got != jetstream.FileStorage {
		t.Fatalf("storage = %v, want a file", got)
	}
	nc, err := first.Connect("writer")
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := js.Publish(t.Context(), "muster.node.web1", []byte("record")); err != nil {
			t.Fatal(err)
		}
	}
	nc.Close()
	stop(t, first)

	again := open(t, start(t, cfg), func(js jetstream.JetStream) (jetstream.Stream, error) {
		return js.Stream(t.Context(), "S")
	})
	m, err := again.GetMsg(t.Context(), 3)
	if err != nil || string(m.Data) != "record" {
		t.Errorf("third message after the restart = %v, %v, want it kept", m, err)
	}
}

func open(t *testing.T, b *broker.Broker, get func(jetstream.JetStream) (jetstream.Stream, error)) jetstream.Stream {
	t.Helper()
	stream, err := get(streams(t, b))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func TestServerSettings(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	js := s.Server().JetStreamConfig()
	if !js.SyncAlways {
		t.Error("JetStream does not sync each write before it acknowledges it")
	}
	if js.MaxStore != 64<<20 {
		t.Errorf("store = %d bytes, want what was configured", js.MaxStore)
	}
	for name, want := range map[string]bool{
		broker.AccountMuster: true, broker.AccountFleet: false, broker.AccountProvisioning: false, broker.AccountSystem: false,
	} {
		account, err := s.Server().LookupAccount(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := account.JetStreamEnabled(); got != want {
			t.Errorf("JetStream in %s: %v, want %v", name, got, want)
		}
	}
	if addr := s.Server().MonitorAddr(); addr != nil {
		t.Errorf("monitoring listens on %v", addr)
	}
	if got := s.Server().SystemAccount().Name; got != broker.AccountSystem {
		t.Errorf("system account = %q", got)
	}
}

func TestSyncStaysWithoutAStoreLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *broker.Config) { c.MaxStoreBytes = 0 })
	if js := s.Server().JetStreamConfig(); !js.SyncAlways || js.MaxStore <= 0 {
		t.Errorf("sync always %v, store of %d bytes", js.SyncAlways, js.MaxStore)
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	for listen, host := range map[string]string{
		"127.0.0.1:0": "127.0.0.1", "127.0.0.1:-1": "127.0.0.1", "0.0.0.0:0": "127.0.0.1", ":0": "127.0.0.1", "localhost:0": "localhost",
	} {
		t.Run(listen, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(c *broker.Config) { c.Listen = listen })
			if !strings.HasPrefix(s.URL(), "nats://"+host+":") {
				t.Errorf("URL = %q, want host %s", s.URL(), host)
			}
			s.client(t, nats.Token(goodToken))
		})
	}
}

func TestStopDoesNotWaitForTheGate(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	s := newSite(t, func(c *broker.Config) {
		c.Gate.AdmitNode = func(ctx context.Context, _ wire.Identity, _ broker.Certificate) error {
			close(asked)
			<-ctx.Done() // a store that does not answer
			return ctx.Err()
		}
	})
	c := s.dial(t, s.tlsConfig(s.ca.issue(t, wire.RoleNode, "web1.example.net")))
	if _, err := fmt.Fprintf(c.conn, "CONNECT {\"name\":%q,\"protocol\":1,\"headers\":true}\r\n", c.name); err != nil {
		t.Fatal(err)
	}
	receive(t, "question to the gate", asked)
	begun := time.Now()
	stop(t, s.Broker)
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("Stop took %v", took)
	}
}
