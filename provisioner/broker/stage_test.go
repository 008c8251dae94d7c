package broker_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/testproc"
	"muster/provisioner/broker"
)

// This fails if nats-server moves its batch directory. Leftovers of a killed process are replaced, and a stop
// leaves nothing.
func TestBatchesAreStagedInMemory(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/shm"); err != nil {
		if testproc.InCI() {
			t.Fatal(err)
		}
		t.Skip("no shared memory")
	}
	var store string
	s := newSite(t, func(c *broker.Config) { store = c.StoreDir })
	link := filepath.Join(store, "jetstream", broker.AccountMuster, "streams", "S", "batches")
	begin := func() *nats.Msg {
		js, err := jetstream.New(s.muster(t))
		if err != nil {
			t.Fatal(err)
		}
		config := jetstream.StreamConfig{Name: "S", Subjects: []string{"muster.node.*"}, AllowAtomicPublish: true}
		if _, err := js.CreateOrUpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		s.StageBatches("S")
		m := nats.NewMsg("muster.node.web1")
		m.Header = nats.Header{"Nats-Batch-Id": {"batch"}, "Nats-Batch-Sequence": {"1"}}
		if _, err := js.Conn().RequestMsgWithContext(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	begin()
	staged, err := os.Readlink(link)
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(staged); err != nil || len(entries) != 1 {
		t.Errorf("%s: %v, %v, want the incomplete batch", staged, entries, err)
	}
	if info, err := os.Stat(staged); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%s: %v, %v, want it closed to other users", staged, info.Mode(), err)
	}
	stop(t, s.Broker)
	if _, err := os.Lstat(staged); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s after the stop: %v", staged, err)
	}

	if err := os.MkdirAll(filepath.Join(staged, "of a killed process"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := begin()
	if entries, err := os.ReadDir(staged); err != nil || len(entries) != 1 ||
		entries[0].Name() == "of a killed process" {
		t.Errorf("%s: %v, %v, want the incomplete batch alone", staged, entries, err)
	}
	m.Header = nats.Header{"Nats-Batch-Id": {"batch"}, "Nats-Batch-Sequence": {"2"}, "Nats-Batch-Commit": {"1"}}
	js, err := jetstream.New(s.muster(t))
	if err != nil {
		t.Fatal(err)
	}
	if ack, err := js.PublishMsg(t.Context(), m); err != nil || ack.Sequence != 2 {
		t.Errorf("the batch is answered %+v, %v, want its second message in the stream", ack, err)
	}
}
