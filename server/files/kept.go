package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"muster/internal/inputfile"
)

// sumsFile has the SHA-256 of each file of a set as it was written, so that a later change of a person is seen.
const sumsFile = ".sums"

// writeSums writes the sums of all files of a generation.
func (d *Dir) writeSums(root *os.Root, generation string) error {
	sums := make(map[string]string)
	err := fs.WalkDir(root.FS(), generation, func(at string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := root.ReadFile(at)
		sums[strings.TrimPrefix(at, generation+"/")] = sumOf(b)
		return err
	})
	if err != nil {
		return err
	}
	b, err := json.Marshal(sums)
	if err != nil {
		return err
	}
	return d.write(root, generation, File{Name: sumsFile, Data: b, Mode: 0o600})
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// keepChanged copies what a person wrote at the path of a name beside it, before the next set replaces it. Repeating is
// harmless: what has a copy is not copied again.
func (d *Dir) keepChanged(root *os.Root, next, name string) error {
	at := d.cfg.Links[name]
	info, err := os.Lstat(at)
	if err != nil || info.IsDir() {
		return nil // nothing is there, or makeLinkFor refuses it
	}
	if target, err := os.Readlink(at); err == nil && !d.isLinked(name) {
		return d.keepLink(at, target)
	}
	if info.Mode()&fs.ModeSymlink == 0 && !info.Mode().IsRegular() {
		kept := at + d.suffix()
		d.cfg.Kept(at, kept)
		return os.Rename(at, kept) // no program could use it
	}
	written := make(map[string]string)
	if b, err := root.ReadFile(path.Join(dataLink, sumsFile)); err == nil {
		_ = json.Unmarshal(b, &written) // else all files count as changed
	}
	real, err := filepath.EvalSymlinks(at)
	if err != nil {
		return nil // a broken link
	}
	return filepath.WalkDir(real, func(file string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		below := filepath.ToSlash(strings.TrimPrefix(file, real)) // begins with a slash, or is empty
		b, err := inputfile.Read(file, inputfile.Configured, inputfile.MaxBytes)
		if err != nil || sumOf(b) == written[name+below] {
			return err
		}
		if same, err := root.ReadFile(path.Join(next, name) + below); err == nil && bytes.Equal(same, b) {
			return nil
		}
		return d.keepFile(at, below, file, b)
	})
}

func (d *Dir) suffix() string { return ".before-" + time.Now().UTC().Format("20060102T150405Z") }

// keepFile keeps the copy in the directory of sets if that of the path takes none.
func (d *Dir) keepFile(at, below, file string, b []byte) error {
	elsewhere := filepath.Join(d.cfg.Dir, filepath.Base(at))
	for _, base := range []string{at, elsewhere} {
		copies, _ := filepath.Glob(base + ".before-*" + below)
		for _, c := range copies {
			if old, err := inputfile.Read(c, inputfile.Configured, inputfile.MaxBytes); err == nil && bytes.Equal(old, b) {
				return nil
			}
		}
	}
	kept := at + d.suffix() + below
	err := d.copyTo(kept, file, b)
	if err != nil && elsewhere != at {
		kept = elsewhere + d.suffix() + below
		err = d.copyTo(kept, file, b)
	}
	if err != nil {
		return fmt.Errorf("keep a copy of %s: %w", file, err)
	}
	d.cfg.Kept(at+below, kept)
	return nil
}

func (d *Dir) copyTo(kept, file string, b []byte) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		return err
	}
	if err := Replace(kept, b, info.Mode().Perm()); err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		_ = os.Chown(kept, int(owner.Uid), int(owner.Gid)) // only root can, and only root's files have another owner
	}
	return d.cfg.Sync(filepath.Dir(kept))
}

func (d *Dir) keepLink(at, target string) error {
	copies, _ := filepath.Glob(at + ".before-*")
	for _, c := range copies {
		if old, err := os.Readlink(c); err == nil && old == target {
			return nil
		}
	}
	kept := at + d.suffix()
	if err := os.Symlink(target, kept); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("keep the link %s: %w", at, err)
	}
	d.cfg.Kept(at, kept)
	return nil
}
