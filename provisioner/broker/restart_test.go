package broker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/testdisk"
	"muster/provisioner/broker"
)

// TestRestart replaces the server under connections that stay: port, store,
// subscriptions and lock are the same.
func TestRestart(t *testing.T) {
	t.Parallel()
	var cfg broker.Config
	s := newSite(t, func(c *broker.Config) { cfg = *c })
	url := s.URL()
	nc := s.muster(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"muster.node.*"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "muster.node.web1", []byte("record")); err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 16)
	if _, err := nc.Subscribe("greetings", func(m *nats.Msg) { heard <- string(m.Data) }); err != nil {
		t.Fatal(err)
	}
	for range 2 { // restarting again is harmless
		restart(t, s.Broker)
		if got := s.URL(); got != url {
			t.Errorf("URL = %q, want %q", got, url)
		}
	}
	eventually(t, "connection after the restart", nc.IsConnected)
	stream, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.GetMsg(t.Context(), 1); err != nil || string(m.Data) != "record" {
		t.Errorf("message = %v, %v, want it kept", m, err)
	}
	if err := nc.Publish("greetings", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, "greeting", heard); got != "hello" {
		t.Errorf("heard %q", got)
	}
	s.client(t, nats.Token(goodToken)) // nodes find it where it was
	other, err := broker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(t.Context()); !errors.Is(err, broker.ErrStoreInUse) {
		t.Errorf("Start of another broker on the store = %v, want %v", err, broker.ErrStoreInUse)
	}
}

// TestRestartThatFails leaves nothing running, and can be repeated.
func TestRestartThatFails(t *testing.T) {
	t.Parallel()
	var cfg broker.Config
	s := newSite(t, func(c *broker.Config) { cfg = *c })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for s.Restart(ended) == nil { // the server may be quicker than the context
	}
	if url := s.URL(); url != "" {
		t.Errorf("URL = %q, want none", url)
	}
	if _, err := s.Connect("x"); !errors.Is(err, broker.ErrNotRunning) {
		t.Errorf("Connect = %v, want %v", err, broker.ErrNotRunning)
	}
	restart(t, s.Broker)
	for s.Restart(ended) == nil {
	}
	stop(t, s.Broker)
	if err := s.Restart(t.Context()); !errors.Is(err, broker.ErrNotRunning) {
		t.Errorf("Restart after Stop = %v, want %v", err, broker.ErrNotRunning)
	}
	start(t, cfg) // the store is free again
}

// TestAStoreThatTakesLonger than whoever restarts the broker waits is there in the end:
// what has begun is not begun anew.
func TestAStoreThatTakesLonger(t *testing.T) {
	t.Parallel()
	var waits atomic.Pointer[context.Context] // of the call that restarts
	var begun atomic.Int64
	s := newSite(t, func(c *broker.Config) {
		c.StoreLimit = func() (int64, error) {
			if ctx := waits.Load(); ctx != nil {
				begun.Add(1)
				<-(*ctx).Done()
			}
			return 1 << 30, nil
		}
	})
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		waits.Store(&ctx)
		err := s.Restart(ctx)
		cancel()
		if err == nil {
			break
		}
		if strings.Contains(err.Error(), "address already in use") { // see restart
			begun.Store(0)
			continue
		}
		if n := begun.Load(); n > 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Restart = %v after %d beginnings, want %v and one", err, n, context.DeadlineExceeded)
		}
		if url := s.URL(); url != "" {
			t.Errorf("URL = %q while it starts, want none", url)
		}
	}
	streams(t, s.Broker)
}

// TestAStopWhileAServerStarts leaves nothing of it, and gives the store free.
func TestAStopWhileAServerStarts(t *testing.T) {
	t.Parallel()
	var cfg broker.Config
	var slow atomic.Bool
	began, goOn := make(chan struct{}), make(chan struct{})
	s := newSite(t, func(c *broker.Config) {
		c.StoreLimit = func() (int64, error) {
			if slow.Load() {
				close(began)
				<-goOn
			}
			return 1 << 30, nil
		}
		cfg = *c
	})
	slow.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	if err := s.Restart(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Restart = %v, want %v", err, context.Canceled)
	}
	if err := s.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Stop = %v while a server starts, want %v", err, context.Canceled)
	}
	slow.Store(false)
	close(goOn)
	stop(t, s.Broker)
	start(t, cfg)
}

// TestAServerThatDoesNotEnd waits for a disk that takes nothing. Whoever restarts it is told so
// for as long as it does, and can go on once it has ended.
func TestAServerThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	d := testdisk.New(t, 128<<20)
	s := newSite(t, func(c *broker.Config) { c.StoreDir = d.Dir })
	if _, err := streams(t, s.Broker).CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"muster.node.*"}}); err != nil {
		t.Fatal(err)
	}
	thaw := d.Freeze()
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := s.Restart(ctx); !errors.Is(err, broker.ErrHangs) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Restart = %v, want %v and %v", err, broker.ErrHangs, context.DeadlineExceeded)
		}
	}
	thaw()
	restart(t, s.Broker)
	if _, err := streams(t, s.Broker).Stream(t.Context(), "S"); err != nil {
		t.Error(err)
	}
}

// TestAStreamThatCannotBeWritten is told to whoever asked for it, and works
// again after a restart: not before, whatever space there is.
func TestAStreamThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	d := testdisk.New(t, 128<<20)
	failed := make(chan error, 100) // more than a test with one stream makes
	s := newSite(t, func(c *broker.Config) {
		c.StoreDir = d.Dir
		c.WriteFailed = func(err error) { failed <- err }
	})
	js, err := jetstream.New(s.muster(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"muster.node.*"}}); err != nil {
		t.Fatal(err)
	}
	publish := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := js.Publish(ctx, "muster.node.web1", make([]byte, 1024), jetstream.WithRetryAttempts(0))
			done <- err
		}()
		select {
		case err := <-done:
			return err
		case err := <-failed: // and there will be no answer
			cancel()
			<-done
			return err
		}
	}
	d.Fill(0)
	n := 0
	for publish() == nil {
		n++
	}
	d.Free()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := js.Publish(ctx, "muster.node.web1", nil); err == nil {
		t.Error("a write after the disk was freed was acknowledged: is a restart still needed?")
	}
	restart(t, s.Broker)
	eventually(t, "a write", func() bool { return publish() == nil })
	stream, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil || info.State.Msgs < uint64(n)+1 {
		t.Errorf("%d messages (%v), want the %d that were acknowledged and one more", info.State.Msgs, err, n)
	}
}

// TestADiskThatIsAwayForAMoment fails, is unmounted, and is mounted again where it was.
// The server that had it sees no files in between: what it makes of that must not
// count, whoever starts the next one.
func TestADiskThatIsAwayForAMoment(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(t *testing.T, s *site, cfg broker.Config) jetstream.JetStream{
		"restart": func(t *testing.T, s *site, _ broker.Config) jetstream.JetStream {
			restart(t, s.Broker)
			return streams(t, s.Broker)
		},
		"another process": func(t *testing.T, s *site, cfg broker.Config) jetstream.JetStream {
			stop(t, s.Broker)
			return streams(t, start(t, cfg))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := testdisk.New(t, 128<<20)
			failed := make(chan error, 100) // more than a test with one stream makes
			var cfg broker.Config
			s := newSite(t, func(c *broker.Config) {
				c.StoreDir = filepath.Join(d.Dir, "data")
				c.WriteFailed = func(err error) { failed <- err }
				cfg = *c
			})
			js := streams(t, s.Broker)
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"muster.node.*"}}); err != nil {
				t.Fatal(err)
			}
			const records = 100
			for i := range records {
				if _, err := js.Publish(t.Context(), fmt.Sprintf("muster.node.web%d", i), make([]byte, 1024)); err != nil {
					t.Fatal(err)
				}
			}
			// A write under compare-and-set has the server look for the message before.
			write := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := js.Publish(ctx, "muster.node.web1", nil, jetstream.WithRetryAttempts(0), jetstream.WithExpectLastSequencePerSubject(2))
				return err
			}
			d.Fail()
			if err := write(); err == nil {
				t.Error("a write to a disk that has failed was acknowledged")
			}
			d.MendAfter(func() {
				if err := write(); err == nil {
					t.Error("a write to a disk that is not there was acknowledged")
				}
				for !strings.Contains(receive(t, "word that there are no files", failed).Error(), "data missing") {
				}
			})
			stream, err := next(t, s, cfg).Stream(t.Context(), "S")
			if err != nil {
				t.Fatal(err)
			}
			if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != records {
				t.Errorf("%d messages (%v), want the %d that were acknowledged", info.State.Msgs, err, records)
			}
		})
	}
}

// TestIndexesCountIfTheServerEndedWell starts on a store whose last server did, and on one
// whose last server was killed. Nothing is lost in either case.
func TestIndexesCountIfTheServerEndedWell(t *testing.T) {
	t.Parallel()
	var cfg broker.Config
	s := newSite(t, func(c *broker.Config) { cfg = *c })
	b := s.Broker
	js := streams(t, b)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"muster.node.*"}}); err != nil {
		t.Fatal(err)
	}
	index := filepath.Join(cfg.StoreDir, "jetstream", broker.AccountMuster, "streams", "S", "msgs", "index.db")
	for i, killed := range []bool{false, true, false} {
		if _, err := streams(t, b).Publish(t.Context(), "muster.node.web1", nil); err != nil {
			t.Fatal(err)
		}
		stop(t, b)
		if _, err := os.Stat(index); err != nil {
			t.Fatalf("%v: has nats-server another name for it now?", err)
		}
		if killed {
			if err := os.Remove(filepath.Join(cfg.StoreDir, "ended-well")); err != nil {
				t.Fatal(err)
			}
		}
		b = start(t, cfg)
		if _, err := os.Stat(index); killed != errors.Is(err, os.ErrNotExist) {
			t.Errorf("killed %v: the index: %v", killed, err)
		}
		stream, err := streams(t, b).Stream(t.Context(), "S")
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Msgs; n != uint64(i+1) {
			t.Errorf("killed %v: %d messages, want %d", killed, n, i+1)
		}
	}
}

// restart restarts a broker. Its port was any one that was free, so that meanwhile
// somebody's connection may leave from it: then the broker tries again, as its keeper does.
func restart(t *testing.T, b *broker.Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	for {
		err := b.Restart(ctx)
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "address already in use") || ctx.Err() != nil {
			t.Fatalf("Restart = %v", err)
		}
	}
}

// streams connects to the streams of a broker.
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
