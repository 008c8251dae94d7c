// Package journal keeps revocations in a file outside the store, for the day on
// which the store is restored from a backup and has forgotten what was revoked
// since.
//
// The file is only ever appended to: a JSON object for each entry, a line each,
// on disk before the call returns. A last line without its end is what a crash
// leaves of an entry that nobody was told about; it is cut off when the file is
// opened. Anything else that is not an entry is an error that names the line,
// since an entry that is passed over lets somebody in. The file holds no secret,
// but whoever can write it can keep nodes out, so it is its owner's alone. One
// process uses it at a time.
package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"muster/provisioner"
)

// ErrInUse means that another process has the journal open. Stop it, or give
// this provisioner a journal of its own.
var ErrInUse = errors.New("journal is in use by another process")

// A Journal is an open journal. It is safe for concurrent use. Close it.
type Journal struct {
	path string
	cut  int64 // bytes that Open cut off

	mu   sync.Mutex
	file *os.File        // guarded by mu; nil when closed
	size int64           // guarded by mu: of what is on disk for certain
	ids  map[string]bool // guarded by mu: entries that are in the file
	bad  bool            // guarded by mu: the file may end in part of a line
}

// Open opens the journal at path, or makes an empty one that only its owner can
// read and write, in a directory that exists. It returns [ErrInUse] if another
// process has it, and an error with the number of the line if a line is no
// entry.
func Open(path string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err // names the path already
	}
	j := &Journal{path: path, file: f, ids: make(map[string]bool)}
	if err := j.open(); err != nil {
		_ = f.Close()
		return nil, err
	}
	return j, nil
}

// open locks the file, reads it and cuts off what a crash left.
func (j *Journal) open() error {
	if err := checkMode(j.file); err != nil {
		return err
	}
	if err := unix.Flock(int(j.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s: %w", j.path, ErrInUse)
	} else if err != nil {
		return fmt.Errorf("%s: lock: %w", j.path, err)
	}
	size, torn, err := read(j.file, j.path, func(e *provisioner.Revocation) { j.ids[e.ID] = true })
	if err != nil {
		return err
	}
	j.size, j.cut = size, torn
	if torn > 0 {
		if err := errors.Join(j.file.Truncate(size), j.file.Sync()); err != nil {
			return fmt.Errorf("%s: cut off %d bytes of an unfinished entry: %w", j.path, torn, err)
		}
	}
	// A new file is lost with its name, until its directory is on disk.
	return syncDir(filepath.Dir(j.path))
}

// Cut returns how many bytes of an unfinished entry Open has cut off.
func (j *Journal) Cut() int64 { return j.cut }

// Check reports what would keep Open from opening the journal, without changing
// anything: a mode that lets others in, a line that is no entry, a directory
// that is not there. A journal that does not exist yet is none.
func Check(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	if err := checkMode(f); err != nil {
		return err
	}
	_, _, err = read(f, path, func(*provisioner.Revocation) {})
	return err
}

// Append implements [provisioner.Journal]. After an error nothing of what was
// given is in the file, unless that cannot be mended either, in which case the
// next call begins with it.
func (j *Journal) Append(entries ...*provisioner.Revocation) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return fmt.Errorf("%s: %w", j.path, fs.ErrClosed)
	}
	var b bytes.Buffer
	fresh := make(map[string]bool)
	for _, e := range entries {
		if j.ids[e.ID] || fresh[e.ID] {
			continue
		}
		line, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("%s: %w", j.path, err)
		}
		fresh[e.ID] = true
		b.Write(append(line, '\n')) // JSON has no line end of its own
	}
	if b.Len() == 0 {
		return nil
	}
	if err := j.write(b.Bytes()); err != nil {
		return err // names the path already
	}
	for id := range fresh {
		j.ids[id] = true
	}
	return nil
}

// write appends whole lines, or nothing: half a line in the middle would be
// read as damage. The caller holds mu.
func (j *Journal) write(b []byte) error {
	if j.bad {
		if err := j.mend(); err != nil {
			return err
		}
	}
	_, err := j.file.Write(b)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		// What a failed sync left in memory must not be taken for written, so it
		// goes, too.
		j.bad = true
		return errors.Join(err, j.mend())
	}
	j.size += int64(len(b))
	return nil
}

// mend cuts off what failed writes have left.
func (j *Journal) mend() error {
	if err := errors.Join(j.file.Truncate(j.size), j.file.Sync()); err != nil {
		return err
	}
	j.bad = false
	return nil
}

// Entries implements [provisioner.Journal]. It reads the file.
func (j *Journal) Entries() ([]*provisioner.Revocation, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil, fmt.Errorf("%s: %w", j.path, fs.ErrClosed)
	}
	var entries []*provisioner.Revocation
	_, _, err := read(io.NewSectionReader(j.file, 0, j.size), j.path, func(e *provisioner.Revocation) { entries = append(entries, e) })
	return entries, err
}

// Close closes the file. Everything is on disk already.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	f := j.file
	j.file = nil
	// Before closing: a child process that is being started has the file open,
	// too, until it runs its program.
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}

// read calls each for every entry, and returns where the last whole line ends
// and how many bytes come after that.
func read(r io.Reader, path string, each func(*provisioner.Revocation)) (size, torn int64, err error) {
	b := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := b.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return size, int64(len(line)), nil
		}
		if err != nil {
			return 0, 0, err
		}
		e := new(provisioner.Revocation)
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err = d.Decode(e); err == nil {
			err = e.Check()
		}
		if err == nil && len(bytes.TrimSpace(line[d.InputOffset():])) > 0 {
			err = errors.New("more than one entry")
		}
		if err != nil {
			return 0, 0, fmt.Errorf("%s: line %d: no entry: %w: put a good copy in its place; to go on without what the line said, remove it", path, n, err)
		}
		size += int64(len(line))
		each(e)
	}
}

// checkMode reports whether others than the owner can use the file.
func checkMode(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file", f.Name())
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s: mode %04o lets others in: chmod 600 %s", f.Name(), mode, f.Name())
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
