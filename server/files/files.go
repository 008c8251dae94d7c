// Package files replaces a set of files atomically, with owner and mode, as Kubernetes' AtomicWriter does.
//
// A directory holds one generation per complete set, and two symbolic links: ..data leads to the set in force, ..next
// to the one being made. Programs read paths that are symbolic links through ..data:
//
//	private.pem -> ..data/private.pem
//	..data      -> ..set-K2QF…
//	..next      -> ..set-7WJM…
//
// One rename(2) of ..next over ..data switches every path. A crash at any step leaves the former set or the new one
// in force; [Dir.Clean] removes the rest.
//
// On Windows ..data and ..next are directories, and paths are hard links. A switch takes several renames, which
// [Dir.Clean] completes after a crash.
//
// Other files in the directory are never touched. If a plain file is where a link belongs, it is first copied into the
// set in force, so that the link has the same content. What a person changed is kept beside it, as NAME.before-TIME.
package files

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"muster/internal/disk"
)

// ErrOccupied means that a directory, or a link into another set, is where a link belongs. An operator has to move it
// away.
var ErrOccupied = errors.New("cannot be replaced")

const (
	dataLink = "..data" // leads to the set in force
	nextLink = "..next" // leads to the set being made
	prefix   = "..set-" // of generations
)

// A File is one file of a set.
type File struct {
	Name string // slash-separated path in the set
	Data []byte
	Mode fs.FileMode // independent of the umask
}

// Config configures [New].
type Config struct {
	// Dir holds the generations.
	Dir string

	// Links maps top-level names in a set to the paths where programs find them.
	Links map[string]string

	// Kept is called for what a person wrote at a path, and the copy that was made before it is replaced. Optional.
	Kept func(path, kept string)

	// For tests. Step is called after each change on disk; Sync replaces fsync(2) of a directory.
	Step func(name string)
	Sync func(dir string) error
}

// A Dir is a directory of sets. Only one process at a time may change it: the caller must hold a lock. Methods are not
// safe for concurrent use.
type Dir struct{ cfg Config }

// New returns the directory of cfg. It touches no disk.
func New(cfg Config) *Dir {
	if cfg.Kept == nil {
		cfg.Kept = func(string, string) {}
	}
	if cfg.Step == nil {
		cfg.Step = func(string) {}
	}
	if cfg.Sync == nil {
		cfg.Sync = disk.SyncDir
	}
	return &Dir{cfg}
}

// Make creates missing directories: Dir with mode 0700, those of Links with mode 0755.
func (d *Dir) Make() error {
	for _, dir := range append(d.linkDirs(), filepath.Dir(d.cfg.Dir)) {
		if dir == d.cfg.Dir {
			continue
		}
		if err := makeDir(dir, 0o755); err != nil {
			return err
		}
	}
	return makeDir(d.cfg.Dir, 0o700)
}

// Path returns the path of a file of the set in force: its link if it has one.
func (d *Dir) Path(name string) string {
	top, below, _ := strings.Cut(name, "/")
	if at, ok := d.cfg.Links[top]; ok {
		return filepath.Join(at, filepath.FromSlash(below))
	}
	return filepath.Join(d.cfg.Dir, dataLink, filepath.FromSlash(name))
}

// StagedPath returns the path of a file of the set being made.
func (d *Dir) StagedPath(name string) string {
	return filepath.Join(d.cfg.Dir, nextLink, filepath.FromSlash(name))
}

// Begin starts the next set with its first files, instead of any started before. If it returns nil, they are durable;
// after an error, the former ones may remain.
func (d *Dir) Begin(first ...File) error {
	root, err := os.OpenRoot(d.cfg.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	name, err := d.newGeneration(root)
	if err != nil {
		return err
	}
	for _, f := range first {
		if err := d.write(root, name, f); err != nil {
			return err
		}
	}
	if err := d.cfg.Sync(filepath.Join(d.cfg.Dir, name)); err != nil {
		return err
	}
	if err := d.stage(root, name); err != nil {
		return err
	}
	return d.Sync()
}

// Switch adds the files of set to the set being made, keeps the named files already in it, and puts it in force. After
// an error the former set is still in force, and Switch can be called again. [Dir.Sync] makes the switch durable,
// [Dir.Clean] removes the former set.
func (d *Dir) Switch(set []File, keep ...string) error {
	root, err := os.OpenRoot(d.cfg.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	next, err := d.staged(root)
	if err != nil {
		return err
	}
	if err := d.tidy(root, next, keep); err != nil {
		return err
	}
	for _, f := range set {
		if err := d.write(root, next, f); err != nil {
			return err
		}
	}
	if err := d.stamp(root, next); err != nil {
		return err
	}
	if err := d.syncBelow(filepath.Join(d.cfg.Dir, next)); err != nil {
		return err
	}
	d.cfg.Step("set written")
	for _, name := range slices.Sorted(maps.Keys(d.cfg.Links)) {
		if err := d.keepChanged(root, name); err != nil {
			return err
		}
		if _, err := root.Lstat(path.Join(next, name)); err != nil {
			continue
		}
		if err := d.show(root, name); err != nil {
			return err
		}
	}
	if err := d.Sync(); err != nil {
		return err
	}
	if err := d.putInForce(root); err != nil {
		return err
	}
	d.cfg.Step("switched")
	return nil
}

// tidy removes the files of a former attempt from a generation.
func (d *Dir) tidy(root *os.Root, generation string, keep []string) error {
	entries, err := os.ReadDir(filepath.Join(d.cfg.Dir, generation))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if slices.Contains(keep, e.Name()) {
			continue
		}
		if err := root.RemoveAll(path.Join(generation, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Sync makes the names in the directory, and those on the way to it, durable.
func (d *Dir) Sync() error {
	dirs := append(d.linkDirs(), d.cfg.Dir)
	for _, dir := range dirs {
		if err := d.cfg.Sync(dir); err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		for up := filepath.Dir(dir); up != dir; dir, up = up, filepath.Dir(up) {
			// This process cannot have created names in an unreadable directory.
			if err := d.cfg.Sync(up); err != nil && !errors.Is(err, fs.ErrPermission) {
				return err
			}
		}
	}
	d.cfg.Step("synced")
	return nil
}

// Clean removes generations that are neither in force nor being made, and links to names that the set in force lacks.
func (d *Dir) Clean() error {
	root, err := os.OpenRoot(d.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := d.finish(root); err != nil {
		return err
	}
	for name, at := range d.cfg.Links {
		if _, err := root.Stat(path.Join(dataLink, name)); errors.Is(err, fs.ErrNotExist) && d.isLinked(name) {
			if err := os.Remove(at); err != nil {
				return err
			}
		}
	}
	data, _ := root.Readlink(dataLink)
	next, _ := root.Readlink(nextLink)
	entries, err := os.ReadDir(d.cfg.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) || e.Name() == data || e.Name() == next {
			continue
		}
		// Before the sync, a power failure may restore the former set, which must be complete.
		if err := d.Sync(); err != nil {
			return err
		}
		if err := root.RemoveAll(e.Name()); err != nil {
			return fmt.Errorf("remove the former set: %w", err)
		}
		d.cfg.Step("generation removed")
	}
	return nil
}

func (d *Dir) newGeneration(root *os.Root) (string, error) {
	name := prefix + rand.Text()
	// Dir and the files' modes limit access.
	if err := root.Mkdir(name, 0o755); err != nil {
		return "", err
	}
	d.cfg.Step("generation made")
	return name, nil
}

// write writes and syncs a file, but not its name.
func (d *Dir) write(root *os.Root, generation string, f File) error {
	if !filepath.IsLocal(filepath.FromSlash(f.Name)) {
		return fmt.Errorf("file name %q, want a relative path that stays in the directory", f.Name)
	}
	name := path.Join(generation, f.Name)
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(f.Data)
	err = errors.Join(err, setMode(file, f.Mode.Perm()), file.Sync(), file.Close())
	if err == nil {
		d.cfg.Step("wrote " + f.Name)
	}
	return err
}

func (d *Dir) syncBelow(dir string) error {
	return filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		return d.cfg.Sync(at)
	})
}

func (d *Dir) linkDirs() []string {
	var dirs []string
	for _, at := range d.cfg.Links {
		dirs = append(dirs, filepath.Dir(at))
	}
	slices.Sort(dirs)
	return slices.DeleteFunc(slices.Compact(dirs), func(dir string) bool { return dir == d.cfg.Dir })
}
