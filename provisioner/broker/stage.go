package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
)

const (
	sharedMemory = "/dev/shm"

	// batchesDir is getBatchStoreDir of v2.15.3; a test fails if it moves.
	batchesDir = "batches"
)

// StageBatches keeps incomplete batches of an existing stream in shared memory, through a symbolic link, which
// saves five syncs a batch. The stream itself is synced before the acknowledgement. After a power failure part of a
// batch may be in the stream: harmless, since none was acknowledged and each message is valid alone. Without shared
// memory, batches stay on disk.
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
	// The name is stable, so that a start removes what a killed process left.
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
