// Package files replaces a set of files all at once, with owner and mode, as
// Kubernetes' AtomicWriter does.
//
// A directory holds generations, one directory for each complete set, and two
// symbolic links: ..data leads to the set in force, ..next to the one being
// made. The paths that programs read are symbolic links through ..data:
//
//	private.pem -> ..data/private.pem
//	..data      -> ..set-K2QF…
//	..next      -> ..set-7WJM…
//
// One rename(2), of ..next over ..data, switches every path. Before it all of
// them read as before, after it all are new. Every step may be the last: what
// is neither in force nor being made is removed by [Dir.Clean].
//
// Other files in the directory are never touched. A plain file in the place of
// a link that is to be made is first copied into the set in force, so that the
// link shows what the file showed.
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
)

// ErrOccupied means that something stands where a set is to be shown and cannot
// be replaced: a directory, or a link into another set. A person has to move it.
var ErrOccupied = errors.New("cannot be replaced")

// Names in a directory.
const (
	dataLink = "..data" // leads to the set in force
	nextLink = "..next" // leads to the set being made
	prefix   = "..set-" // of generations
)

// A File is one file of a set.
type File struct {
	Name string // slash-separated path within the set
	Data []byte
	Mode fs.FileMode // permissions, whatever the umask
}

// Config configures [New].
type Config struct {
	// Dir is the directory of the generations.
	Dir string

	// Shown maps top-level names of the sets to the paths at which programs find
	// them. Names that are not in it have no path but [Dir.Path].
	Shown map[string]string

	// Step is called after each change on disk, and Sync in place of fsync(2) of a
	// directory. For tests; optional.
	Step func(name string)
	Sync func(dir string) error
}

// A Dir is a directory of sets. One process at a time may change it; a lock is
// the caller's business. Methods are not safe for concurrent use.
type Dir struct {
	cfg      Config
	unsynced bool // names may not be on disk yet
	above    bool // names of the directories above may not be, either
}

// New returns a Dir. It touches no file.
func New(cfg Config) *Dir {
	if cfg.Step == nil {
		cfg.Step = func(string) {}
	}
	if cfg.Sync == nil {
		cfg.Sync = SyncDir
	}
	// A process that was killed may have left names to be synced.
	return &Dir{cfg: cfg, unsynced: true, above: true}
}

// Make makes the directory, with mode 0700, and those that shown paths are in,
// with mode 0755, as far as they are missing.
func (d *Dir) Make() error {
	for _, dir := range append(d.showing(), filepath.Dir(d.cfg.Dir)) {
		if dir == d.cfg.Dir {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return os.MkdirAll(d.cfg.Dir, 0o700)
}

// Path returns where to read a file of the set in force: its shown path, if it
// has one.
func (d *Dir) Path(name string) string {
	top, below, _ := strings.Cut(name, "/")
	if at, ok := d.cfg.Shown[top]; ok {
		return filepath.Join(at, filepath.FromSlash(below))
	}
	return filepath.Join(d.cfg.Dir, dataLink, filepath.FromSlash(name))
}

// StagedPath returns where a file of the set being made is.
func (d *Dir) StagedPath(name string) string {
	return filepath.Join(d.cfg.Dir, nextLink, filepath.FromSlash(name))
}

// Begin begins the next set with its first files, in place of one that was
// begun before. They are on disk, names and all, when it returns nil; until
// then the former one may be there still.
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
	if err := d.link(filepath.Join(d.cfg.Dir, nextLink), name); err != nil {
		return err
	}
	return d.Sync()
}

func (d *Dir) openNext() (root *os.Root, next string, err error) {
	if root, err = os.OpenRoot(d.cfg.Dir); err != nil {
		return nil, "", err
	}
	if next, err = root.Readlink(nextLink); err != nil {
		return nil, "", errors.Join(err, root.Close())
	}
	return root, next, nil
}

// Switch completes the set being made with the files of set, keeps of those
// that were staged the ones named, and puts it in force. If it fails, the set
// before is in force still, and Switch can be called again. After it, [Dir.Sync]
// makes the switch outlast a power failure, and [Dir.Clean] removes the set
// before.
func (d *Dir) Switch(set []File, keep ...string) error {
	root, next, err := d.openNext()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := d.tidy(root, next, keep); err != nil {
		return err
	}
	for _, f := range set {
		if err := d.write(root, next, f); err != nil {
			return err
		}
	}
	if err := d.syncBelow(filepath.Join(d.cfg.Dir, next)); err != nil {
		return err
	}
	d.cfg.Step("set written")
	for _, name := range slices.Sorted(maps.Keys(d.cfg.Shown)) {
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
	if err := root.Rename(nextLink, dataLink); err != nil {
		return err
	}
	d.unsynced = true
	d.cfg.Step("switched")
	return nil
}

// tidy removes from a generation what an earlier attempt has left.
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

// Sync makes the names of what was made and switched durable. Once they are, it
// costs nothing.
func (d *Dir) Sync() error {
	if !d.unsynced {
		return nil
	}
	dirs := append(d.showing(), d.cfg.Dir)
	for _, dir := range dirs {
		if err := d.cfg.Sync(dir); err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		for up := filepath.Dir(dir); d.above && up != dir; dir, up = up, filepath.Dir(up) {
			// A directory that may not be read has got no name from this process.
			if err := d.cfg.Sync(up); err != nil && !errors.Is(err, fs.ErrPermission) {
				return err
			}
		}
	}
	d.unsynced, d.above = false, false
	d.cfg.Step("synced")
	return nil
}

// Clean removes generations that are neither in force nor being made, and links
// to names that the set in force does not have.
func (d *Dir) Clean() error {
	root, err := os.OpenRoot(d.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for name, at := range d.cfg.Shown {
		if _, err := root.Stat(path.Join(dataLink, name)); errors.Is(err, fs.ErrNotExist) && d.shown(name) {
			if err := os.Remove(at); err != nil {
				return err
			}
			d.unsynced = true
		}
	}
	data, _ := root.Readlink(dataLink) // empty: there is none
	next, _ := root.Readlink(nextLink)
	entries, err := os.ReadDir(d.cfg.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) || e.Name() == data || e.Name() == next {
			continue
		}
		// Until then a power failure may bring back the set before, which has to be whole.
		if err := d.Sync(); err != nil {
			return err
		}
		if err := root.RemoveAll(e.Name()); err != nil {
			return fmt.Errorf("remove the set before: %w", err)
		}
		d.cfg.Step("generation removed")
	}
	return nil
}

func (d *Dir) newGeneration(root *os.Root) (string, error) {
	name := prefix + rand.Text()
	// Open to other programs as far as the directory is; files have modes of their own.
	if err := root.Mkdir(name, 0o755); err != nil {
		return "", err
	}
	d.cfg.Step("generation made")
	return name, nil
}

// write writes a file to a generation, and syncs it. Its name is not durable.
func (d *Dir) write(root *os.Root, generation string, f File) error {
	if !filepath.IsLocal(filepath.FromSlash(f.Name)) {
		return fmt.Errorf("file name %q, want one within a directory", f.Name)
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
	err = errors.Join(err, file.Chmod(f.Mode.Perm()), file.Sync(), file.Close())
	if err == nil {
		d.cfg.Step("wrote " + f.Name)
	}
	return err
}

// syncBelow makes all names in a directory durable.
func (d *Dir) syncBelow(dir string) error {
	return filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		return d.cfg.Sync(at)
	})
}

// showing are the directories that shown paths are in, each once.
func (d *Dir) showing() []string {
	var dirs []string
	for _, at := range d.cfg.Shown {
		dirs = append(dirs, filepath.Dir(at))
	}
	slices.Sort(dirs)
	return slices.DeleteFunc(slices.Compact(dirs), func(dir string) bool { return dir == d.cfg.Dir })
}
