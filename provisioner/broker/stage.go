package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
)

const (
	// sharedMemory is the file system in memory that every Linux has.
	sharedMemory = "/dev/shm"

	// batchesDir is where nats-server stages batches in a stream's directory (v2.15.3, getBatchStoreDir). A test fails
	// if it moves.
	batchesDir = "batches"
)

// StageBatches has the running server keep what there is of a batch until it is complete in shared memory, by a link
// in place of a directory of the stream, which exists. The server writes each batch twice: it syncs it five times
// before it is complete, and once in the stream before it acknowledges. After a power failure a batch may have been
// written in part, which does no harm: none of its writes was acknowledged, and each is good by itself. The server
// removes the link at its start. Without shared memory, batches are staged on the disk.
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
	// The name follows from the store's, so that a start removes what a killed process has left.
	sum := sha256.Sum256([]byte(link))
	staged := filepath.Join(sharedMemory, "muster-"+hex.EncodeToString(sum[:8]))
	if os.RemoveAll(staged) != nil || os.Mkdir(staged, 0o700) != nil {
		return // there is no shared memory, or another user has that name
	}
	if os.Symlink(staged, link) != nil { // there was a batch before
		_ = os.Remove(staged)
		return
	}
	b.server.staged = staged
}
