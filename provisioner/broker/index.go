package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"muster/internal/disk"
)

// nats-server writes an index beside a stream's blocks and trusts it at startup. After a disk was unmounted and
// mounted again, the index contained no messages (v2.15.2; TestADiskThatIsAway). So an index is used only after a
// clean shutdown.
const (
	indexFile = "index.db" // v2.15.3, streamStreamStateFile
	blocksDir = "msgs"     // its directory, in streams and Raft logs

	// cleanShutdownFile is written when a server ends with a healthy store.
	cleanShutdownFile = "clean-shutdown"
)

// removeUntrustedIndexes removes the marker of a clean shutdown, else all indexes. A crash after any step is
// harmless.
func removeUntrustedIndexes(store string) error {
	err := os.Remove(filepath.Join(store, cleanShutdownFile))
	if err == nil {
		return disk.SyncDir(store)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("store directory: %w", err)
	}
	root, err := os.OpenRoot(filepath.Join(store, "jetstream"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing has been stored yet
	}
	if err != nil {
		return fmt.Errorf("store directory: %w", err)
	}
	defer func() { _ = root.Close() }() // nothing was written to it
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != indexFile || path.Base(path.Dir(name)) != blocksDir {
			return err
		}
		return root.Remove(name)
	})
	if err != nil {
		return fmt.Errorf("store directory: %w", err)
	}
	return nil
}

// RebuildIndexes makes the next start read all blocks.
func RebuildIndexes(store string) error {
	err := os.Remove(filepath.Join(store, cleanShutdownFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func markCleanShutdown(store string) {
	f, err := os.OpenFile(filepath.Join(store, cleanShutdownFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	_ = f.Close() // nothing was written to it
}
