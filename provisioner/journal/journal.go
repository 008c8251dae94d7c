// Package journal keeps in a file outside the store what a store that is restored
// from a backup must not have forgotten: revocations, removed signers, operators and
// allow-list entries, spent uses of limited tokens, and whom a name was taken from.
//
// The file is only ever appended to: a JSON object for each entry, a line each,
// on disk before the call returns. Those who append at the same time share one
// write and one sync. See [Line] for what there is. A last line without its end is what a crash
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
	"sync/atomic"

	"golang.org/x/sys/unix"

	"muster/provisioner"
)

// ErrInUse means that another process has the journal open. Stop it, or give
// this provisioner a journal of its own.
var ErrInUse = errors.New("journal is in use by another process")

// ErrFailed means that a write to the journal has failed. Nothing more is written: end the process, and
// start another one.
var ErrFailed = errors.New("the journal could not be written")

// ErrDamaged means that something in the journal's file is no entry. The text names the line.
var ErrDamaged = errors.New("the journal is damaged")

// A Journal is an open journal. It is safe for concurrent use. Close it.
type Journal struct {
	path string
	cut  int64 // bytes that Open cut off

	failed  chan struct{}         // closed with the first write that fails
	failure atomic.Pointer[error] // why it did

	mu   sync.Mutex
	file *os.File // guarded by mu; nil when closed
	size int64    // guarded by mu: of what is on disk for certain

	queue sync.Mutex
	next  *batch // guarded by queue: lines that wait for mu; nil if there are none

	revoking sync.Mutex // one call of Append at a time

	known sync.Mutex
	ids   map[string]bool // guarded by known: revocations that are in the file
	at    position        // guarded by known: claims that are in the file
	owner Joined          // guarded by known

	lately []*provisioner.JournaledClaims // guarded by known: the newest, in no order, and up to as many older ones
	places []provisioner.ClaimSum         // guarded by known: of the newest, by place modulo its length; nil before the first
	sums   []provisioner.ClaimSum         // guarded by known: of all that there were at Open, until somebody has them

	signers   map[string]*provisioner.SignerEntry   // guarded by known: the newest of each id
	operators map[string]*provisioner.OperatorEntry // guarded by known: the newest of each name

	allowances map[string]*provisioner.Allowance // guarded by known: the newest of each pattern
}

// A batch is what one write brings to the disk, for all who wait for it.
type batch struct {
	lines   []byte // guarded by Journal.queue
	written bool   // guarded by Journal.mu, and so is err
	err     error
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
	j := &Journal{
		path: path, file: f, failed: make(chan struct{}), ids: make(map[string]bool),
		signers: make(map[string]*provisioner.SignerEntry), operators: make(map[string]*provisioner.OperatorEntry),
		allowances: make(map[string]*provisioner.Allowance),
	}
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
	// Who had it may have taken the file away: what is written to that is lost.
	mine, err := j.file.Stat()
	if there, gone := os.Stat(j.path); err != nil || gone != nil || !os.SameFile(mine, there) {
		return fmt.Errorf("%s: %w, or was until a moment ago", j.path, ErrInUse)
	}
	size, torn, err := read(j.file, j.path, func(l *Line) error {
		j.note(l)
		if l.Claims != nil {
			j.sums = append(j.sums, j.places[l.Claims.At%places]) // as noted just now
		}
		return nil
	})
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
	_, _, err = read(f, path, func(*Line) error { return nil })
	return err
}

// Append implements [provisioner.Journal].
func (j *Journal) Append(entries ...*provisioner.Revocation) error {
	j.revoking.Lock() // or two who append the same would both find it missing
	defer j.revoking.Unlock()
	var lines []*Line
	fresh := make(map[string]bool)
	j.known.Lock()
	for _, e := range entries {
		if !j.ids[e.ID] && !fresh[e.ID] {
			fresh[e.ID] = true
			lines = append(lines, &Line{Revocation: e})
		}
	}
	j.known.Unlock()
	return j.append(lines)
}

// append brings lines to the disk, and takes note of them.
func (j *Journal) append(lines []*Line) error {
	if len(lines) == 0 {
		return nil
	}
	var b bytes.Buffer
	for _, l := range lines {
		text, err := json.Marshal(l)
		if err != nil {
			return fmt.Errorf("%s: %w", j.path, err)
		}
		b.Write(append(text, '\n')) // JSON has no line end of its own
	}
	if err := j.commit(b.Bytes()); err != nil {
		return err // names the path already
	}
	j.known.Lock()
	defer j.known.Unlock()
	for _, l := range lines {
		j.note(l)
	}
	return nil
}

// note takes in what a line says. The caller holds known, or is alone.
func (j *Journal) note(l *Line) {
	switch {
	case l.Revocation != nil:
		j.ids[l.ID] = true
	case l.From != nil:
		j.at.begin(l.From)
		j.lately, j.places, j.sums = nil, nil, nil
	case l.Owner != nil:
		j.owner = *l.Owner
	case l.Claims != nil:
		j.at.add(l.Claims.At)
		j.place(l.Claims)
		if j.lately = append(j.lately, l.Claims); len(j.lately) == 2*lately {
			j.lately = newest(j.lately)
		}
	case l.Signer != nil:
		j.signers[string(l.Signer.ID)] = l.Signer
	case l.Operator != nil:
		j.operators[l.Operator.Name] = l.Operator
	case l.Allowance != nil:
		j.allowances[string(l.Allowance.Pattern)] = l.Allowance
	}
}

// commit writes lines together with those of everybody who waits for the file
// at the same time: whoever gets it first writes for all of them.
func (j *Journal) commit(lines []byte) error {
	j.queue.Lock()
	if j.next == nil {
		j.next = &batch{}
	}
	b := j.next
	b.lines = append(b.lines, lines...)
	j.queue.Unlock()

	j.mu.Lock()
	defer j.mu.Unlock()
	if b.written {
		return b.err
	}
	j.queue.Lock()
	j.next = nil // it is b: only its writer takes it away
	j.queue.Unlock()
	b.written, b.err = true, fmt.Errorf("%s: %w", j.path, fs.ErrClosed)
	if j.file != nil {
		b.err = j.write(b.lines)
	}
	return b.err
}

// write appends whole lines. The first error is the last word: what a failed sync left in memory
// must not be taken for written, and the next [Open] cuts off what is not whole. The caller holds mu.
func (j *Journal) write(b []byte) error {
	if err := j.Err(); err != nil {
		return err
	}
	if err := j.put(b); err != nil {
		err = fmt.Errorf("%w: %w", ErrFailed, err)
		j.failure.Store(&err)
		close(j.failed)
		return err
	}
	j.size += int64(len(b))
	return nil
}

// put brings lines to the disk, in the file that has the journal's name. The caller holds mu.
//
// It looks at the name once the lines are on disk: if it did so before, they would count where
// another file is put in place in between. The look costs 4 µs, the sync 400 and more (measured).
func (j *Journal) put(b []byte) error {
	if _, err := j.file.Write(b); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	mine, err := j.file.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Stat(j.path); err != nil || !os.SameFile(mine, there) {
		return fmt.Errorf("%s: removed or replaced while it is in use, so what is written to it is lost", j.path)
	}
	return nil
}

// Failed is closed once a write has failed.
func (j *Journal) Failed() <-chan struct{} { return j.failed }

// Err returns the first error of a write, which wraps [ErrFailed], or nil.
func (j *Journal) Err() error {
	if err := j.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Entries implements [provisioner.Journal]. It reads the file.
func (j *Journal) Entries() ([]*provisioner.Revocation, error) {
	var entries []*provisioner.Revocation
	err := j.Each(func(l *Line) error {
		if l.Revocation != nil {
			entries = append(entries, l.Revocation)
		}
		return nil
	})
	return entries, err
}

// Each calls each for every line of the file, in order, and stops at its first
// error. It must not append.
func (j *Journal) Each(each func(*Line) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return fmt.Errorf("%s: %w", j.path, fs.ErrClosed)
	}
	_, _, err := read(io.NewSectionReader(j.file, 0, j.size), j.path, each)
	return err
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

// read calls each for every line, and returns where the last whole one ends and
// how many bytes come after that. It stops at the first error of each.
func read(r io.Reader, path string, each func(*Line) error) (size, torn int64, err error) {
	b := bufio.NewReader(r)
	for n := 1; ; n++ {
		text, err := b.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return size, int64(len(text)), nil
		}
		if err != nil {
			return 0, 0, err
		}
		l, err := parseLine(text)
		if err != nil {
			later := ""
			if json.Valid(text) { // a line that was damaged seldom is
				later = "if a later version of muster has written it, run that one; else "
			}
			return 0, 0, fmt.Errorf("%w: %s: line %d: no entry: %w: %sput a good copy in its place; to go on without what the line said, remove it",
				ErrDamaged, path, n, err, later)
		}
		size += int64(len(text))
		if err := each(l); err != nil {
			return 0, 0, err
		}
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
