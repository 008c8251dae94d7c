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

// nats-server writes beside the blocks of a stream an index of what is in them, and believes
// it when it starts, without a look at the blocks. It makes the index of what it has in
// memory, every two minutes and when it ends. A server whose disk failed, was unmounted, and
// was mounted again where it had been, had looked for its blocks in an empty directory
// meanwhile, and concluded that there are no messages. It wrote that down when it ended,
// onto the disk with all of them, and the next server had none (v2.15.2; TestADiskThatIsAway).
//
// So an index counts only if the server that wrote it ended well. Without, all is
// read from the blocks, which are what was synced.
const (
	indexFile = "index.db" // v2.15.3, streamStreamStateFile
	blocksDir = "msgs"     // where it is, of a stream and of a Raft log

	// endedWell is the file in a store directory that says that the last server on it
	// met no trouble with its files, and ended.
	endedWell = "ended-well"
)

// forgetIndexes takes away the indexes in a store, unless the last server on it ended well.
// It may end after each step: what says so goes first, and for good.
func forgetIndexes(store string) error {
	err := os.Remove(filepath.Join(store, endedWell))
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

// ReadAnew has the next server on a store read all of its blocks, and believe no index.
func ReadAnew(store string) error {
	err := os.Remove(filepath.Join(store, endedWell))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// keepIndexes says that the server on a store has ended, and has met no trouble. If that
// cannot be written the next start takes longer, and nothing else.
func keepIndexes(store string) {
	f, err := os.OpenFile(filepath.Join(store, endedWell), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	_ = f.Close() // nothing was written to it
}
