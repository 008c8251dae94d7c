package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"muster/internal/wire"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

var (
	// ErrNotRunning means that the broker is not started, or stopped.
	ErrNotRunning = errors.New("broker is not running")

	// ErrStoreInUse means that another broker uses the directory.
	ErrStoreInUse = errors.New("store directory is in use by another broker")
)

const reconnectWait = 100 * time.Millisecond

// A Broker is a NATS server in this process. It is safe for concurrent use.
type Broker struct {
	// Set by New, then read-only.
	cfg  Config
	gate *Gate
	log  *natsLog

	// rechecks counts calls of Recheck; see authentication.admit.
	rechecks atomic.Uint64

	mu     sync.Mutex         // guards the rest
	server *runningServer     // nil unless running
	cancel context.CancelFunc // cancels pending calls of the gate
}

// New returns an error that lists every mistake in cfg. It starts nothing.
func New(cfg Config) (*Broker, error) {
	_, _, listenErr := splitListen(cfg.Listen)
	_, _, webErr := splitListen(cmp.Or(cfg.WebSocket.Listen, ":0"))
	gate, gateErr := NewGate(cfg.Gate)
	if err := errors.Join(listenErr, webErr, gateErr); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, DefaultMaxConnections)
	cfg.Gate = gate.cfg // with defaults
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Broker{cfg: cfg, gate: gate, log: newNATSLog(cfg.Log)}, nil
}

// reachable makes a listener's URL one that this machine reaches.
var reachable = strings.NewReplacer("tls:", "nats:", "//:", "//127.0.0.1:", "//0.0.0.0:", "//127.0.0.1:",
	"//[::]:", "//[::1]:")

// URL returns nats://host:port for this machine, or "" unless running.
func (b *Broker) URL() string {
	s, err := b.running()
	if err != nil {
		return ""
	}
	return reachable.Replace(s.ClientURL())
}

// Connect returns an unrestricted connection to [AccountMuster]. It reconnects until closed; close it before
// [Broker.Stop].
func (b *Broker) Connect(name string, opts ...nats.Option) (*nats.Conn, error) {
	s, err := b.running()
	if err != nil {
		return nil, err
	}
	all := append([]nats.Option{
		nats.InProcessServer(s),
		nats.Name(name),
		nats.Timeout(dialTimeout), // the default of 2 s is too short for a machine that pauses
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(0, 0),
		logErrors(b.cfg.Log),
	}, opts...)
	nc, err := nats.Connect("", all...)
	if err != nil {
		return nil, fmt.Errorf("connect to own broker: %w", err)
	}
	return nc, nil
}

func (b *Broker) running() (*runningServer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server == nil {
		return nil, ErrNotRunning
	}
	return b.server, nil
}

const (
	sharedMemory = "/dev/shm"

	// batchesDir is nats-server's directory (v2.15.3, getBatchStoreDir); a test fails if it changes.
	batchesDir = "batches"
)

// StageBatches keeps a stream's incomplete batches in shared memory by a symbolic link, which saves five syncs a
// batch. The stream is synced before the acknowledgement. After a power failure, the stream may have part of a
// batch; that is harmless, since the batch was not acknowledged. Without shared memory, StageBatches does nothing.
func (b *Broker) StageBatches(stream string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server == nil || b.server.staged != "" {
		return
	}
	link, err := filepath.Abs(filepath.Join(b.cfg.StoreDir, "jetstream", AccountMuster, "streams", stream, batchesDir))
	if err != nil {
		return
	}
	// A start removes what a killed process left under this name.
	staged := filepath.Join(sharedMemory, "muster-"+wire.Sum([]byte(link))[:16])
	if os.RemoveAll(staged) != nil || os.Mkdir(staged, 0o700) != nil {
		return // no shared memory, or another user has that name
	}
	if os.Symlink(staged, link) != nil { // a batch has been written already
		_ = os.Remove(staged)
		return
	}
	b.server.staged = staged
}
