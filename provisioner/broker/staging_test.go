package broker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
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
	js   jetstream.JetStream
	nc   *nats.Conn
	cfg  broker.Config
	link string // where the server stages batches
}

func newBatched(t *testing.T, edits ...func(*broker.Config)) *batched {
	t.Helper()
	b := &batched{}
	b.site = newSite(t, append(edits, func(c *broker.Config) { c.Batched = "S"; b.cfg = *c })...)
	b.link = filepath.Join(b.cfg.StoreDir, "jetstream", broker.AccountMuster, "streams", "S", "batches")
	b.connect(t)
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"muster.node.*"}, AllowAtomicPublish: true}); err != nil {
		t.Fatal(err)
	}
	return b
}

// write sends write n of the batch, the last one with commit, and looks at the answer.
func (b *batched) write(t *testing.T, batch string, n int, commit bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m := nats.NewMsg("muster.node.web" + strconv.Itoa(n))
	m.Header = nats.Header{"Nats-Batch-Id": {batch}, "Nats-Batch-Sequence": {strconv.Itoa(n)}}
	if commit {
		m.Header["Nats-Batch-Commit"] = []string{"1"}
	}
	answer, err := b.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		t.Fatalf("write %d of a batch: %v", n, err)
	}
	if committed := bytes.Contains(answer.Data, []byte(`"batch":`)); committed != commit || !commit && len(answer.Data) > 0 {
		t.Fatalf("write %d of a batch: answered %q", n, answer.Data)
	}
}

// begin sends the first n writes of a batch, finish one more, which is its last.
func (b *batched) begin(t *testing.T, n int) (finish func()) {
	t.Helper()
	id := wire.NewID()
	for i := range n {
		b.write(t, id, i+1, false)
	}
	return func() { t.Helper(); b.write(t, id, n+1, true) }
}

// restart begins anew on the same store. What is sent on the connection of before
// may be lost, and nobody would answer.
func (b *batched) restart(t *testing.T) {
	t.Helper()
	restart(t, b.Broker)
	b.connect(t)
}

// connect makes a connection.
func (b *batched) connect(t *testing.T) {
	t.Helper()
	b.nc = b.muster(t)
	var err error
	if b.js, err = jetstream.New(b.nc); err != nil {
		t.Fatal(err)
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
	finish := b.begin(t, 1)
	if n := entries(t, dir); n != 1 {
		t.Errorf("%d batches staged in memory, want the one that is not complete", n)
	}
	finish()
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
		b.begin(t, 1) // never finished
		if lose {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
		b.restart(t)
		if again := b.staged(t); again != dir || entries(t, dir) != 0 {
			t.Errorf("after a restart %d batches are staged in %s, want none in %s", entries(t, dir), again, dir)
		}
		b.begin(t, 1)()
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	b.staged(t)
	b.begin(t, 1)()
	if n := b.messages(t); n != 6 {
		t.Errorf("%d messages in the stream, want 6 of three batches", n)
	}
}

// TestABrokerThatWasKilledGoesOnWithABatch which is in the stream in part. No kill hits that
// moment at will, so the test makes what there is after one.
func TestABrokerThatWasKilledGoesOnWithABatch(t *testing.T) {
	t.Parallel()
	b := newBatched(t)
	dir := b.staged(t)
	finish := b.begin(t, 2)
	eventually(t, "second write in memory", func() bool {
		blocks, err := filepath.Glob(filepath.Join(dir, "*", "msgs", "*.blk"))
		if err != nil || len(blocks) != 1 {
			return false
		}
		block, err := os.ReadFile(blocks[0])
		return err == nil && bytes.Contains(block, []byte("muster.node.web2"))
	})
	memory := t.TempDir()
	if err := os.CopyFS(memory, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	finish()
	stop(t, b.Broker)
	cutAfterFirst(t, filepath.Join(filepath.Dir(b.link), "msgs"))
	if err := errors.Join(os.Mkdir(dir, 0o700), os.CopyFS(dir, os.DirFS(memory)), os.Symlink(dir, b.link)); err != nil {
		t.Fatal(err)
	}

	b.Broker = start(t, b.cfg)
	b.connect(t)
	stream, err := b.js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.GetLastMsgForSubject(t.Context(), "muster.node.web2"); err != nil {
		t.Errorf("the second write, which only the memory had: %v", err)
	}
	if n := entries(t, b.staged(t)); n != 0 {
		t.Errorf("%d batches in memory, want none", n)
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
			finish := b.begin(t, 1)
			if s, err := os.Lstat(b.link); err != nil || !s.IsDir() {
				t.Errorf("batches are staged in %v, %v, want the server's own directory", s, err)
			}
			finish()
			stop(t, b.Broker)
			if _, err := os.Lstat(dir); err != nil {
				t.Errorf("what is not ours: %v, want it left alone", err)
			}
		})
	}
}

// cutAfterFirst leaves the first message of a stream: what there is when a server is
// killed after that. A message begins with its length, whose highest bit says that it has headers.
func cutAfterFirst(t *testing.T, msgs string) {
	t.Helper()
	path := filepath.Join(msgs, "1.blk")
	block, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := int64(binary.LittleEndian.Uint32(block) &^ (1 << 31))
	if err := errors.Join(os.Truncate(path, first), os.Remove(filepath.Join(msgs, "index.db"))); err != nil {
		t.Fatal(err)
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
