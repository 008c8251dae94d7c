package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner/broker"
)

// batched is a running broker with a stream that takes batches.
type batched struct {
	*site
	js    jetstream.JetStream
	nc    *nats.Conn
	store string // directory
	link  string // where the server stages batches
}

func newBatched(t *testing.T, edits ...func(*broker.Config)) *batched {
	t.Helper()
	b := &batched{}
	b.site = newSite(t, append(edits, func(c *broker.Config) { c.Batched, b.store = "S", c.StoreDir })...)
	b.link = filepath.Join(b.store, "jetstream", broker.AccountMuster, "streams", "S", "batches")
	b.nc = b.muster(t)
	var err error
	if b.js, err = jetstream.New(b.nc); err != nil {
		t.Fatal(err)
	}
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"muster.node.*"}, AllowAtomicPublish: true}); err != nil {
		t.Fatal(err)
	}
	return b
}

// begin sends the first of two writes of a batch, finish the second; the server
// answers each.
func (b *batched) begin(t *testing.T) (finish func(context.Context) error) {
	t.Helper()
	id := wire.NewID()
	send := func(ctx context.Context, n int) ([]byte, error) {
		m := nats.NewMsg("muster.node.web" + strconv.Itoa(n))
		m.Header = nats.Header{"Nats-Batch-Id": {id}, "Nats-Batch-Sequence": {strconv.Itoa(n)}}
		if n == 2 {
			m.Header["Nats-Batch-Commit"] = []string{"1"}
		}
		answer, err := b.nc.RequestMsgWithContext(ctx, m)
		if err != nil {
			return nil, err
		}
		return answer.Data, nil
	}
	if answer, err := send(t.Context(), 1); err != nil || len(answer) > 0 {
		t.Fatalf("first write of a batch: %q, %v", answer, err)
	}
	return func(ctx context.Context) error {
		answer, err := send(ctx, 2)
		if err == nil && !bytes.Contains(answer, []byte(`"batch":`)) {
			err = fmt.Errorf("answered %s", answer)
		}
		return err
	}
}

// staged returns the directory in memory, once there is one.
func (b *batched) staged(t *testing.T) string {
	t.Helper()
	var dir string
	eventually(t, "place in memory", func() bool {
		var err error
		if dir, err = os.Readlink(b.link); err != nil {
			return false
		}
		_, err = os.Stat(dir)
		return err == nil
	})
	return dir
}

// TestBatchesAreStagedInMemory looks at what the server writes while a batch is
// not complete: if it has another place for that one day, this tells.
func TestBatchesAreStagedInMemory(t *testing.T) {
	t.Parallel()
	b := newBatched(t)
	dir := b.staged(t)
	if s, err := os.Stat(dir); err != nil || s.Mode().Perm() != 0o700 {
		t.Errorf("%s: %v, %v, want it closed to others", dir, s.Mode(), err)
	}
	finish := b.begin(t)
	if n := entries(t, dir); n != 1 {
		t.Errorf("%d batches staged in memory, want the one that is not complete", n)
	}
	if err := finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.messages(t); n != 2 {
		t.Errorf("%d messages in the stream, want 2", n)
	}
	eventually(t, "memory given back", func() bool { return entries(t, dir) == 0 })
	stop(t, b.Broker)
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s after the broker has stopped: %v, want it gone", dir, err)
	}
	if _, err := os.Lstat(b.link); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s after the broker has stopped: %v, want it gone", b.link, err)
	}
}

// TestStagingBeginsAnew after a restart, after the machine has lost what was in
// memory, and when somebody has cleared it away.
func TestStagingBeginsAnew(t *testing.T) {
	t.Parallel()
	b := newBatched(t)
	dir := b.staged(t)
	for _, lose := range []bool{false, true} {
		b.begin(t) // never finished
		if lose {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "connection after the restart", b.nc.IsConnected)
		if again := b.staged(t); again != dir || entries(t, dir) != 0 {
			t.Errorf("after a restart %d batches are staged in %s, want none in %s", entries(t, dir), again, dir)
		}
		if err := b.begin(t)(t.Context()); err != nil {
			t.Errorf("a batch after the restart: %v", err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	b.staged(t)
	if err := b.begin(t)(t.Context()); err != nil {
		t.Errorf("a batch after the memory was cleared: %v", err)
	}
	if n := b.messages(t); n != 6 {
		t.Errorf("%d messages in the stream, want 6 of three batches", n)
	}
}

// TestMemoryOfOthersIsNotUsed: anybody may make a directory of the name that
// ours would have.
func TestMemoryOfOthersIsNotUsed(t *testing.T) {
	t.Parallel()
	for name, occupy := range map[string]func(string) error{
		"open to others":  func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o755)) },
		"somebody else's": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 12345, 12345)) },
		"a link":          func(dir string) error { return os.Symlink(os.TempDir(), dir) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "somebody else's" && os.Geteuid() != 0 {
				t.Skip("only root can give a directory to somebody")
			}
			store := t.TempDir()
			dir := broker.StageDir(store, "S")
			if err := occupy(dir); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Remove(dir) })
			b := newBatched(t, func(c *broker.Config) { c.StoreDir = store })
			finish := b.begin(t)
			if s, err := os.Lstat(b.link); err != nil || !s.IsDir() {
				t.Errorf("batches are staged in %v, %v, want the server's own directory", s, err)
			}
			if err := finish(t.Context()); err != nil {
				t.Errorf("batch on disk: %v", err)
			}
			stop(t, b.Broker)
			if _, err := os.Lstat(dir); err != nil {
				t.Errorf("what is not ours: %v, want it left alone", err)
			}
		})
	}
}

// entries returns how many entries a directory has.
func entries(t *testing.T, dir string) int {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// messages returns how many messages the stream has.
func (b *batched) messages(t *testing.T) uint64 {
	t.Helper()
	stream, err := b.js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State.Msgs
}
