package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"muster/provisioner/store"
)

// StoreDir is where a broker of our own keeps the store.
func (c *Config) StoreDir() string { return filepath.Join(c.DataDir, "broker") }

// JournalPath is where revocations are kept outside the store.
func (c *Config) JournalPath() string {
	if c.Revocations.Journal != "" {
		return c.Revocations.Journal
	}
	return filepath.Join(c.DataDir, "revocations.journal")
}

// Watermarks are the files that say what the store had: one beside it, and one beside the journal, if that is
// elsewhere.
func (c *Config) Watermarks() []string {
	paths := []string{filepath.Join(c.DataDir, "store.watermark")}
	if dir := filepath.Dir(c.JournalPath()); dir != c.DataDir {
		paths = append(paths, filepath.Join(dir, filepath.Base(c.JournalPath())+".watermark"))
	}
	return paths
}

// crlPath is where the newest CRLs are, for brokers and others that read files.
func (c *Config) crlPath() string { return filepath.Join(c.DataDir, "crl.pem") }

// StreamsDir is the directory in which the broker of a store directory keeps streams.
func StreamsDir(storeDir string) string { return filepath.Join(storeDir, "jetstream") }

// RestoringDir is where a restore fills a store before that gets its place: in the store directory, which may be on
// another disk than what is around it.
func RestoringDir(storeDir string) string { return filepath.Join(storeDir, "restoring") }

// CheckEmpty returns [store.ErrNotEmpty] if a broker has ever kept a stream in
// its directory.
func CheckEmpty(dir string) error {
	err := filepath.WalkDir(StreamsDir(dir), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			err = fmt.Errorf("%w: %s is there; move %s away and keep it until the fleet is well again", store.ErrNotEmpty, path, dir)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// halfRestored returns [store.ErrHalfRestored] if a restore was cut short before the
// store got its place: a provisioner that started would make an empty one, in which
// nothing is frozen that the restore was to freeze.
func halfRestored(storeDir string) error {
	staging := RestoringDir(storeDir)
	if _, err := os.Stat(staging); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	err := CheckEmpty(storeDir)
	if errors.Is(err, store.ErrNotEmpty) {
		return nil // it has its place, what is left is nobody's
	}
	if err == nil {
		err = fmt.Errorf("%w: %s is what there is of it: restore once more, or remove that to begin with an empty store", store.ErrHalfRestored, staging)
	}
	return err
}

// checkDataDir reports why the data directory cannot be used: what is there must be a directory that we can write to.
// One that is missing is for Run to report, since its disk may be mounted later.
func checkDataDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no directory", dir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// checkMounted returns an error if the data directory looks like the mount point of a disk that is not mounted: it is
// missing, or empty although a journal or watermark outside of it is of an installation. A store made there would be
// a new installation, whose tokens have all of their uses.
func (c *Config) checkMounted() error {
	entries, err := os.ReadDir(c.DataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data_dir: %s is missing: is its disk not mounted? Only 'muster provisioner init' makes it", c.DataDir)
	}
	if err != nil || len(entries) > 0 {
		return err
	}
	for _, path := range append(c.Watermarks(), c.JournalPath()) {
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			return fmt.Errorf("data_dir: %s is empty, and %s is of a store: is its disk not mounted?", c.DataDir, path)
		}
	}
	return nil
}
