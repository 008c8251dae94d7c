package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"muster/internal/disk"
	"muster/internal/inputfile"
	"muster/internal/wire"
	"muster/provisioner/trust"
)

var (
	// ErrJournalInUse means that another process has the journal open.
	ErrJournalInUse = errors.New("journal is in use by another process")

	// ErrJournalFailed means that a write failed, or that the file was replaced or cut since it was opened. The journal
	// writes nothing more: end the process.
	ErrJournalFailed = errors.New("the journal could not be written")

	// ErrJournalForeign means that the journal belongs to another installation.
	ErrJournalForeign = errors.New("the journal belongs to another installation")

	// ErrJournalDamaged means that the file was altered.
	ErrJournalDamaged = errors.New("the journal is damaged")
)

// A Journal keeps revocations in a file outside of the store. It is safe for concurrent use. Close it.
//
// Each entry is a line "SUM JSON", synced before [Journal.Append] returns. SUM is the hex SHA-256 of the previous sum
// and the JSON. The first line names the installation. An incomplete last line comes from a crash during a write, and
// is cut off. A wrong sum means damage, since a lost entry would admit a revoked node. One process at a time can open a
// journal.
type Journal struct {
	path string

	mu           sync.Mutex
	file         *os.File            // guarded by mu
	size         int64               // guarded by mu
	sum          string              // guarded by mu: of the last line
	installation string              // guarded by mu; "" before the first line
	entries      []*trust.Revocation // guarded by mu: in the order of the file
	ids          map[string]bool     // guarded by mu: of entries
	failed       error               // guarded by mu: first error of writing or checking
}

// A journalHead is the first line of a journal.
type journalHead struct {
	Journal      int    `json:"journal"` // version of the format
	Installation string `json:"installation"`
}

const journalVersion = 1

// OpenJournal opens and locks the journal. It creates a missing one. Errors wrap [ErrJournalInUse] or
// [ErrJournalDamaged].
func OpenJournal(path string) (*Journal, error) {
	_, missing := os.Lstat(path)
	f, err := inputfile.OpenState(path, os.O_APPEND)
	if err != nil {
		return nil, err
	}
	j := &Journal{path: path, file: f, ids: make(map[string]bool)}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%s: %w", path, ErrJournalInUse)
	}
	if err == nil && missing != nil {
		err = disk.SyncDir(filepath.Dir(path))
	}
	complete := 0
	if err == nil {
		complete, err = j.load(f)
	}
	if err == nil {
		j.size, err = int64(complete), f.Truncate(int64(complete))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return j, nil
}

// load reads the entries. complete is the length of all complete lines.
func (j *Journal) load(f *os.File) (complete int, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if mode := info.Mode(); mode.Perm()&0o077 != 0 {
		return 0, fmt.Errorf("%s has mode %v, want a file that only its owner can read and write: chmod 600", j.path,
			mode)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	complete = bytes.LastIndexByte(b, '\n') + 1
	number := 0
	for line := range bytes.Lines(b[:complete]) {
		number++
		if err := j.addLine(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			return 0, fmt.Errorf("%w: %s: line %d: %w", ErrJournalDamaged, j.path, number, err)
		}
	}
	return complete, nil
}

func (j *Journal) addLine(line []byte) error {
	sum, text, _ := bytes.Cut(line, []byte(" "))
	if want := nextSum(j.sum, text); string(sum) != want {
		return errors.New("the checksum is wrong: the line was altered, or a line before it is missing")
	}
	if j.sum == "" {
		var head journalHead
		if err := wire.DecodeStrict(text, &head); err != nil {
			return err
		}
		if head.Journal != journalVersion || head.Installation == "" {
			return fmt.Errorf("journal of version %d of installation %q, this program reads version %d",
				head.Journal, head.Installation, journalVersion)
		}
		j.installation = head.Installation
	} else {
		var e trust.Revocation
		if err := wire.DecodeStrict(text, &e); err != nil {
			return err
		}
		if err := e.Check(); err != nil {
			return err
		}
		j.entries, j.ids[e.ID] = append(j.entries, &e), true
	}
	j.sum = string(sum)
	return nil
}

func nextSum(before string, text []byte) string {
	h := sha256.New()
	_, _ = h.Write([]byte(before)) // never fails
	_, _ = h.Write(text)
	return hex.EncodeToString(h.Sum(nil))
}

// Installation returns the id of the installation, "" for a new journal.
func (j *Journal) Installation() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.installation
}

// Begin writes the installation. Repeating it is harmless.
func (j *Journal) Begin(installation string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch j.installation {
	case installation:
		return nil
	case "":
	default:
		return fmt.Errorf("%w: %s belongs to %s, the store to %s: configure the store's journal, or "+
			"move this file away",
			ErrJournalForeign, j.path, j.installation, installation)
	}
	if err := j.write(journalHead{journalVersion, installation}); err != nil {
		return err
	}
	j.installation = installation
	return nil
}

// Append implements [trust.Journal]. Call [Journal.Begin] before.
func (j *Journal) Append(entries ...*trust.Revocation) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.installation == "" {
		return fmt.Errorf("%s: no revocation can be written before the installation is known", j.path)
	}
	var unknown []any
	for _, e := range entries {
		if !j.ids[e.ID] {
			j.entries, j.ids[e.ID] = append(j.entries, e), true
			unknown = append(unknown, e)
		}
	}
	return j.write(unknown...)
}

// check fails the journal for good if the file was moved or cut. The next start writes what it lacks. The caller holds
// mu.
func (j *Journal) check() error {
	if j.failed != nil {
		return j.failed
	}
	err := disk.InPlace(j.file)
	if err == nil {
		info, unknown := j.file.Stat()
		if err = unknown; err == nil && info.Size() != j.size {
			err = fmt.Errorf("%s was cut or written to since the start: it has %d bytes, want %d", j.path, info.Size(),
				j.size)
		}
	}
	if err != nil {
		return j.fail(err)
	}
	return nil
}

// fail makes all later writes fail. The caller holds mu.
func (j *Journal) fail(err error) error {
	j.failed = fmt.Errorf("%w: %w", ErrJournalFailed, err)
	return j.failed
}

// After one failed write all later writes fail. The caller holds mu.
func (j *Journal) write(lines ...any) error {
	if err := j.check(); err != nil || len(lines) == 0 {
		return err
	}
	var b bytes.Buffer
	sum := j.sum
	for _, l := range lines {
		text, err := json.Marshal(l)
		if err != nil {
			return j.fail(err)
		}
		sum = nextSum(sum, text)
		fmt.Fprintf(&b, "%s %s\n", sum, text)
	}
	_, err := j.file.Write(b.Bytes())
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return j.fail(err)
	}
	j.sum = sum
	j.size += int64(b.Len())
	return nil
}

// Err checks the file, and returns the first error of a write or check, or nil.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.check()
}

// Entries implements [trust.Journal].
func (j *Journal) Entries() []*trust.Revocation {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

// Close closes the file.
func (j *Journal) Close() error { return j.file.Close() }
