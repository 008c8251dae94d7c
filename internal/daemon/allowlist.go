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

// allowCheck is how often the allow-list is looked at for changes, and how long it has to
// rest before it counts: an operator who approves a machine sees it come up with the
// machine's next try. A list that is read while it is written may lack its end, and still
// be one: of nobody, or with a name that covers more than was meant.
const allowCheck = 500 * time.Millisecond

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

	// Expires ends the entry, in RFC 3339. Optional; if it is there, it has a value.
	Expires time.Time `yaml:"expires" conffile:"limit"`
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

	seen os.FileInfo // what list was read from; only touched by run
}

// loadAllowList reads the list for the first time, when a mistake in it is an
// error. An empty path is an empty list.
func loadAllowList(path string, opts Options) (*allowList, error) {
	l := &allowList{path: path, now: opts.Now, log: opts.Log}
	l.list.Store(&allowed{})
	if path == "" {
		return l, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return l, err
	}
	a, err := l.read()
	if err != nil {
		return l, err
	}
	l.seen = info
	l.list.Store(a)
	return l, nil
}

// read reads the file.
func (l *allowList) read() (*allowed, error) {
	var f allowFile
	if err := conffile.LoadYAML(l.path, &f); err != nil {
		return nil, err
	}
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
	return a, nil
}

// run reads the list again whenever the file has changed, and rests. A list with a
// mistake leaves the one before it in force.
func (l *allowList) run(ctx context.Context) error {
	if l.path == "" {
		return nil
	}
	tick := time.NewTicker(allowCheck)
	defer tick.Stop()
	said := ""           // why it was not read
	var last os.FileInfo // what the look before found, nil if that was no file
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		info, err := os.Stat(l.path)
		rests := err == nil && unchanged(last, info)
		last = info
		if err == nil && (!rests || said == "" && unchanged(l.seen, info)) {
			continue
		}
		var list *allowed
		if err == nil {
			list, err = l.read() // also one with a mistake: what kept it from being read may leave no trace in info
			if now, gone := os.Stat(l.path); gone == nil && !unchanged(info, now) {
				continue // somebody writes it
			}
		}
		if err != nil {
			l.unread.Store(&err)
			if err.Error() != said { // once, not once a second
				said = err.Error()
				l.log.ErrorContext(ctx, "allow-list not read: the one before stays in force", "err", err)
			}
			continue
		}
		l.seen = info
		l.list.Store(list)
		said = ""
		l.unread.Store(nil)
		l.log.InfoContext(ctx, "allow-list read again")
	}
}

// unchanged reports whether a file is the one that was there before, with what was in it;
// before is nil if there was none.
func unchanged(before, info os.FileInfo) bool {
	return before != nil && os.SameFile(info, before) && info.ModTime().Equal(before.ModTime()) && info.Size() == before.Size()
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
