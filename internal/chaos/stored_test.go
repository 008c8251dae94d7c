package chaos_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// stored is one message of a stream.
type stored struct {
	subject  string
	data     []byte
	sequence uint64
}

// readStore reads a copy of a broker's store with a nats-server without muster, and returns the messages of its
// streams in order.
func readStore(t *testing.T, dir, scratch string) map[string][]stored {
	t.Helper()
	store := filepath.Join(scratch, "store-copy")
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(store, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	opts := &server.Options{}
	const accounts = `accounts { MUSTER { jetstream: enabled, users: [{user: checker, password: checker}] } }`
	if err := opts.ProcessConfigString(accounts); err != nil {
		t.Fatal(err)
	}
	opts.ServerName, opts.Host, opts.Port = "muster", "127.0.0.1", server.RANDOM_PORT
	opts.JetStream, opts.StoreDir, opts.NoSigs, opts.NoLog = true, store, true, true
	opts.JetStreamMaxStore, opts.JetStreamMaxMemory = 1<<40, 64<<20
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(patience) {
		t.Fatal("the copy of the store does not open")
	}
	nc, err := nats.Connect(s.ClientURL(), nats.UserInfo("checker", "checker"), nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	all, err := readStreams(ctx, nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	return all
}

// readStreams returns the messages of the streams that the checker looks at.
func readStreams(ctx context.Context, nc *nats.Conn) (map[string][]stored, error) {
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		return nil, err
	}
	all := map[string][]stored{}
	for _, name := range []string{"MUSTER_NODES", "MUSTER_CLAIMS"} {
		if all[name], err = readStream(ctx, js, name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return all, nil
}

func readStream(ctx context.Context, js jetstream.JetStream, name string) ([]stored, error) {
	stream, err := js.Stream(ctx, name)
	if err != nil || stream.CachedInfo().State.Msgs == 0 {
		return nil, err
	}
	consumer, err := js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	var all []stored
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		all = append(all, stored{m.Subject(), m.Data(), meta.Sequence.Stream})
		if meta.NumPending == 0 {
			return all, nil
		}
	}
}
