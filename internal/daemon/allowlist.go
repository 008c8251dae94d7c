package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"muster/internal/conffile"
	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner"
)

// allowCheck is how often the allow-list is looked at for changes: an operator
// who approves a machine sees it come up with the machine's next try.
const allowCheck = time.Second

// allowFile is the allow-list as it is written.
type allowFile struct {
	// Allow lists the names that may enroll without having been seen before.
	Allow []allowEntry `yaml:"allow"`
}

// allowEntry is one line of it.
type allowEntry struct {
	// Pattern is a name or a pattern of names: `web*.example.net` covers one
	// label, `**.example.net` any number, a lone `*` everything. Required.
	Pattern string `yaml:"pattern"`

	// Comment is for people. Optional.
	Comment string `yaml:"comment"`

	// Expires ends the entry, in RFC 3339. Optional.
	Expires time.Time `yaml:"expires"`
}

// Validate reports everything wrong with the list.
func (f *allowFile) Validate() error {
	var errs []error
	for i, e := range f.Allow {
		if _, err := wire.ParsePattern(e.Pattern); err != nil {
			errs = append(errs, fmt.Errorf("allow[%d].pattern: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// allowed is a list that has been read: whole names in a table, since there may
// be a hundred thousand, and patterns in their order.
type allowed struct {
	names    map[wire.Identity]policies.AllowEntry
	patterns []policies.AllowEntry
}

// allowList is the allow-list file as it was last read without a mistake.
type allowList struct {
	path string // "" if there is none
	now  func() time.Time
	log  *slog.Logger

	list atomic.Pointer[allowed]

	// unread is why the file as it is now is not in force, nil if it is.
	unread atomic.Pointer[error]

	seen os.FileInfo // only touched by load and run
}

// loadAllowList reads the list for the first time, when a mistake in it is an
// error. An empty path is an empty list.
func loadAllowList(path string, opts Options) (*allowList, error) {
	l := &allowList{path: path, now: opts.Now, log: opts.Log}
	l.list.Store(&allowed{})
	if path == "" {
		return l, nil
	}
	return l, l.load()
}

// load reads the file and puts it in place of what was read before.
func (l *allowList) load() error {
	info, err := os.Stat(l.path)
	if err != nil {
		return err
	}
	var f allowFile
	if err := conffile.LoadYAML(l.path, &f); err != nil {
		return err // it is read again: what kept it from being read may leave no trace in info
	}
	l.seen = info
	a := &allowed{names: make(map[wire.Identity]policies.AllowEntry)}
	for _, e := range f.Allow {
		entry := policies.AllowEntry{Pattern: e.Pattern, Comment: e.Comment, ExpiresAt: e.Expires.UTC()}
		if e.Expires.IsZero() {
			entry.ExpiresAt = time.Time{}
		}
		if !strings.ContainsAny(e.Pattern, "*?") {
			a.names[wire.Identity(e.Pattern)] = entry
			continue
		}
		a.patterns = append(a.patterns, entry)
	}
	l.list.Store(a)
	return nil
}

// run reads the list again whenever the file changes. A list with a mistake
// leaves the one before it in force.
func (l *allowList) run(ctx context.Context) error {
	if l.path == "" {
		return nil
	}
	tick := time.NewTicker(allowCheck)
	defer tick.Stop()
	said := "" // why it was not read
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		info, err := os.Stat(l.path)
		if err == nil && said == "" && os.SameFile(info, l.seen) && info.ModTime().Equal(l.seen.ModTime()) && info.Size() == l.seen.Size() {
			continue
		}
		if err == nil {
			err = l.load()
		}
		if err != nil {
			l.unread.Store(&err)
			if err.Error() != said { // once, not once a second
				said = err.Error()
				l.log.ErrorContext(ctx, "allow-list not read: the one before stays in force", "err", err)
			}
			continue
		}
		said = ""
		l.unread.Store(nil)
		l.log.InfoContext(ctx, "allow-list read again")
	}
}

// match returns the entry that covers id and has not expired, or nil.
func (l *allowList) match(id wire.Identity) *policies.AllowEntry {
	list, now := l.list.Load(), l.now()
	valid := func(e policies.AllowEntry) bool { return e.ExpiresAt.IsZero() || now.Before(e.ExpiresAt) }
	if e, ok := list.names[id]; ok && valid(e) {
		return &e
	}
	for _, e := range list.patterns {
		if valid(e) && wire.Pattern(e.Pattern).Match(id) {
			return &e
		}
	}
	return nil
}

// everything reports whether an entry that has not expired covers every name.
func (l *allowList) everything() bool {
	now := l.now()
	return slices.ContainsFunc(l.list.Load().patterns, func(e policies.AllowEntry) bool {
		return provisioner.AnyName(wire.Pattern(e.Pattern)) && (e.ExpiresAt.IsZero() || now.Before(e.ExpiresAt))
	})
}
