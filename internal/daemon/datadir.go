package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"muster/internal/inputfile"
	"muster/provisioner/httpapi"
	"muster/provisioner/store"
)

// StoreDir is the directory of the embedded store.
func (c *Config) StoreDir() string { return filepath.Join(c.DataDir, "broker") }

// JournalPath is the journal of revocations.
func (c *Config) JournalPath() string {
	return cmp.Or(c.Revocations.Journal, filepath.Join(c.DataDir, "revocations.journal"))
}

// Watermarks returns the watermark files: beside the store, and beside the journal if that is elsewhere.
func (c *Config) Watermarks() []string {
	paths := []string{filepath.Join(c.DataDir, "store.watermark")}
	if dir := filepath.Dir(c.JournalPath()); dir != c.DataDir {
		paths = append(paths, filepath.Join(dir, filepath.Base(c.JournalPath())+".watermark"))
	}
	return paths
}

// StreamsDir is where nats-server keeps streams.
func StreamsDir(storeDir string) string { return filepath.Join(storeDir, "jetstream") }

// RestoringDir is where a restore prepares a store.
func RestoringDir(storeDir string) string { return filepath.Join(storeDir, "restoring") }

// CheckEmpty returns [store.ErrNotEmpty] if there are streams in dir.
func CheckEmpty(dir string) error {
	err := filepath.WalkDir(StreamsDir(dir), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			err = fmt.Errorf("%w: %s is there; move %s away, and keep it until the fleet works again",
				store.ErrNotEmpty, path, dir)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// checkRestored refuses after an interrupted restore: an empty store would not freeze tokens.
func checkRestored(storeDir string) error {
	staging := RestoringDir(storeDir)
	if _, err := os.Stat(staging); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	err := CheckEmpty(storeDir)
	if errors.Is(err, store.ErrNotEmpty) {
		return nil // leftovers of a complete restore
	}
	if err == nil {
		err = fmt.Errorf("%w, see %s: run the restore again, or remove that directory to start with an empty store",
			store.ErrHalfRestored, staging)
	}
	return err
}

// A missing directory is no error here: its disk may be mounted before Run, which checks again.
func (c *Config) checkDataDir() error {
	dir := c.DataDir
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	err = inputfile.SafeDir(dir, c.owner())
	if journal := filepath.Dir(c.JournalPath()); err == nil && journal != dir {
		err = inputfile.SafeDir(journal, c.owner())
		if errors.Is(err, fs.ErrNotExist) { // as of the data directory
			err = nil
		}
	}
	return err
}

// checkMounted refuses the mount point of an unmounted disk. A new store there would give tokens all their uses
// again.
func (c *Config) checkMounted() error {
	entries, err := os.ReadDir(c.DataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data_dir: %s is missing: is its disk not mounted? For a new store, make it: "+
			"mkdir -m 700 %s", c.DataDir, inputfile.ShellWord(c.DataDir))
	}
	if err != nil || len(entries) > 0 {
		return err
	}
	for _, path := range append(c.Watermarks(), c.JournalPath()) {
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			return fmt.Errorf("data_dir: %s is empty, but %s belongs to a store: is its disk not mounted?",
				c.DataDir, path)
		}
	}
	return nil
}

// SocketOf returns the control socket of the provisioner with this configuration file. Only data_dir must be valid.
func SocketOf(path string) (string, error) {
	cfg, err := readUnchecked(path)
	if err != nil {
		return "", err
	}
	if cfg.DataDir == "" {
		return "", errors.New(path + ": data_dir: missing")
	}
	return cfg.socket(), nil
}

func (c *Config) socket() string { return filepath.Join(c.DataDir, httpapi.SocketName) }
