package setup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"

	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/disk"
)

// Lines returns what provisioner.yaml is to say: its `ca:` with all that belongs
// to it.
func (r *Rolled) Lines() string {
	var b strings.Builder
	b.WriteString("ca:\n")
	values := r.values()
	for _, key := range []string{"root", "certificate", "key"} {
		fmt.Fprintf(&b, "  %s: %s\n", key, conffile.YAMLText(values[key]))
	}
	for _, line := range r.previous() {
		b.WriteString("  " + line + "\n")
	}
	return b.String()
}

func (r *Rolled) values() map[string]string {
	return map[string]string{"root": r.relative(r.after.CA.Root), "certificate": r.relative(r.after.CA.Certificate), "key": r.relative(r.after.CA.Key)}
}

func (r *Rolled) previous() []string {
	p := r.after.CA.Previous[0]
	return []string{
		"previous:",
		"  - root: " + conffile.YAMLText(r.relative(p.Root)),
		"    certificate: " + conffile.YAMLText(r.relative(p.Certificate)),
		"    key: " + conffile.YAMLText(r.relative(p.Key)),
		"    cross: " + conffile.YAMLText(r.relative(p.Cross)),
	}
}

// relative returns a path as provisioner.yaml spells it.
func (r *Rolled) relative(path string) string {
	if rel, err := filepath.Rel(filepath.Dir(r.config), path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// Write changes the values and adds the lines of [Rolled.Lines] to
// provisioner.yaml and leaves the rest of it as it is. The file before is kept
// beside it; the path is returned. The new one is read as a provisioner reads
// it, with all that it names, before it takes the old one's place by a rename:
// provisioner.yaml is the one or the other at any time. Where the file is
// written in a way that a program had better not change, the error wraps
// [conffile.ErrEdit].
func (r *Rolled) Write(opts daemon.Options) (kept string, err error) {
	text, err := conffile.EditYAML(r.text, "ca", r.values(), r.previous())
	if err != nil {
		return "", fmt.Errorf("%s: %w", r.config, err)
	}
	info, err := os.Stat(r.config)
	if err != nil {
		return "", err
	}
	dir, base := filepath.Dir(r.config), filepath.Base(r.config)
	next := filepath.Join(dir, "."+base+".new")
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a run that was cut short
		return "", err
	}
	if err := writeLike(next, info, text); err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(next) }() // it has its name, or is not wanted
	r.reached("edited")
	if err := r.try(next, opts); err != nil {
		return "", err
	}
	kept = filepath.Join(dir, base+".before-"+filepath.Base(r.Dir))
	if now, err := os.ReadFile(r.config); err != nil || !bytes.Equal(now, r.text) {
		return "", errors.Join(err, fmt.Errorf("%s: changed meanwhile: do it again", r.config))
	}
	// The rename takes one name of the file before, this one stays.
	if err := os.Link(r.config, kept); errors.Is(err, fs.ErrExist) {
		if b, err := os.ReadFile(kept); err != nil || !bytes.Equal(b, r.text) {
			return "", fmt.Errorf("%s: is there and is another file: move it away", kept)
		}
	} else if err != nil {
		return "", err
	}
	r.reached("kept")
	if err := errors.Join(os.Rename(next, r.config), disk.SyncDir(dir)); err != nil {
		return "", err
	}
	r.reached("changed")
	return kept, nil
}

// try loads an edited file, and sees that it differs from the one before in
// what it should and in nothing else.
func (r *Rolled) try(path string, opts daemon.Options) error {
	cfg, err := daemon.ReadConfig(path)
	if err == nil && !reflect.DeepEqual(cfg, r.after) {
		err = errors.New("it would say something else")
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", r.config, conffile.ErrEdit, err)
	}
	opts.Keys = *r.keys.Clone()
	d, err := daemon.New(cfg, opts)
	if err != nil {
		return fmt.Errorf("%s is as it was, since this provisioner would not start:\n%w", r.config, err)
	}
	return d.Usable()
}

// writeLike writes a new file with the owner and permissions of another.
func writeLike(path string, like fs.FileInfo, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if stat, ok := like.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		err = errors.Join(err, f.Chown(int(stat.Uid), int(stat.Gid)))
	}
	err = errors.Join(err, f.Chmod(like.Mode().Perm()), f.Sync(), f.Close())
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
