package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
)

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
	sum := sha256.Sum256([]byte(link))
	staged := filepath.Join(sharedMemory, "muster-"+hex.EncodeToString(sum[:8]))
	if os.RemoveAll(staged) != nil || os.Mkdir(staged, 0o700) != nil {
		return // no shared memory, or another user has that name
	}
	if os.Symlink(staged, link) != nil { // a batch has been written already
		_ = os.Remove(staged)
		return
	}
	b.server.staged = staged
}
