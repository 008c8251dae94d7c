package broker_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/testdisk"
	"muster/provisioner/broker"
)

// records makes a stream and returns a function that publishes to it.
func records(t *testing.T, b *broker.Broker) (jetstream.JetStream, func() error) {
	t.Helper()
	js := streams(t, b)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S",
		Subjects: []string{"muster.node.*"}}); err != nil {
		t.Fatal(err)
	}
	return js, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := js.Publish(ctx, "muster.node.web1", make([]byte, 1024), jetstream.WithRetryAttempts(0))
		return err
	}
}

// watch returns the error that ends the watch.
func watch(t *testing.T, b *broker.Broker) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { ended <- b.Watch(ctx, func(error) {}) }()
	return ended
}

// failed expects ErrStoreFailed.
func failed(t *testing.T, ended <-chan error, want string) {
	t.Helper()
	select {
	case err := <-ended:
		if !errors.Is(err, broker.ErrStoreFailed) || !strings.Contains(err.Error(), want) {
			t.Errorf("watch = %v, want %v, with %q", err, broker.ErrStoreFailed, want)
		}
	case <-time.After(patience):
		t.Error("nothing is said of the store")
	}
}

// What was acknowledged is there after a restart with free space.
func TestFullDiskIsAFailure(t *testing.T) {
	t.Parallel()
	d := testdisk.New(t, 128<<20)
	var cfg broker.Config
	s := newSite(t, func(c *broker.Config) { c.StoreDir = d.Dir; cfg = *c })
	_, publish := records(t, s.Broker)
	ended := watch(t, s.Broker)
	d.Fill(0)
	n := uint64(0)
	for publish() == nil {
		n++
	}
	failed(t, ended, "no space left on device")
	stop(t, s.Broker) // so that this process may start another one; it keeps no index
	d.Free()
	stream, err := streams(t, start(t, cfg)).Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.CachedInfo().State.Msgs; got < n {
		t.Errorf("%d messages, want the %d that were acknowledged", got, n)
	}
}

// The server keeps acknowledging although the directory is gone.
func TestMissingDirectoryIsAFailure(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"moved":   func(dir string) error { return os.Rename(dir, dir+".away") },
		"another in its place": func(dir string) error {
			err := errors.Join(os.Rename(dir, dir+".away"), os.Mkdir(dir, 0o700))
			return errors.Join(err, os.WriteFile(broker.LockFile(dir), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var dir string
			s := newSite(t, func(c *broker.Config) { dir = c.StoreDir })
			records(t, s.Broker)
			ended := watch(t, s.Broker)
			if err := take(dir); err != nil {
				t.Fatal(err)
			}
			failed(t, ended, "was replaced since")
		})
	}
}

// nats-server skips a stream without its metadata file, and a new one would be made in its place.
func TestDamagedStreamPreventsStart(t *testing.T) {
	t.Parallel()
	var cfg broker.Config
	s := newSite(t, func(c *broker.Config) { cfg = *c })
	records(t, s.Broker)
	stop(t, s.Broker)
	if err := os.Remove(filepath.Join(cfg.StoreDir, "jetstream", broker.AccountMuster, "streams", "S",
		"meta.inf")); err != nil {
		t.Fatal(err)
	}
	b, err := broker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); !errors.Is(err, broker.ErrStoreDamaged) {
		t.Errorf("start = %v, want %v", err, broker.ErrStoreDamaged)
	}
}

// TestStartReadsAllBlocks leaves an index behind by an orderly stop: the start does not use it, and nothing is lost.
func TestStartReadsAllBlocks(t *testing.T) {
	t.Parallel()
	var cfg broker.Config
	s := newSite(t, func(c *broker.Config) { cfg = *c })
	b := s.Broker
	js := streams(t, b)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S",
		Subjects: []string{"muster.node.*"}}); err != nil {
		t.Fatal(err)
	}
	index := filepath.Join(cfg.StoreDir, "jetstream", broker.AccountMuster, "streams", "S", "msgs", "index.db")
	for i := range 2 {
		if _, err := streams(t, b).Publish(t.Context(), "muster.node.web1", nil); err != nil {
			t.Fatal(err)
		}
		stop(t, b)
		if _, err := os.Stat(index); err != nil {
			t.Fatalf("%v: has nats-server another name for it now?", err)
		}
		b = start(t, cfg)
		if _, err := os.Stat(index); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the index: %v", err)
		}
		stream, err := streams(t, b).Stream(t.Context(), "S")
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Msgs; n != uint64(i+1) {
			t.Errorf("%d messages, want %d", n, i+1)
		}
	}
}

func streams(t *testing.T, b *broker.Broker) jetstream.JetStream {
	t.Helper()
	nc, err := b.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// A stream is on disk that the server does not know yet.
func TestNewStreamIsNotAFailure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newSite(t, func(c *broker.Config) { c.StoreDir = dir })
	records(t, s.Broker)
	made, err := filepath.Glob(filepath.Join(dir, "jetstream/*/streams/S"))
	if err != nil || len(made) != 1 {
		t.Fatalf("streams on disk: %v, %v", made, err)
	}
	if err := os.Mkdir(filepath.Join(filepath.Dir(made[0]), "NEW"), 0o700); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-watch(t, s.Broker):
		t.Errorf("watch = %v", err)
	case <-time.After(2500 * time.Millisecond):
	}
}
