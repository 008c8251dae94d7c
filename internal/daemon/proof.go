package daemon

import (
	"fmt"
	"slices"
	"time"

	"muster/provisioner/journal"
)

// A file is a journal that a restore was given, and what it says of itself.
type file struct {
	path    string
	journal *journal.Journal
	owner   journal.Joined
	ids     []string  // of all journals that it has been
	made    bool      // it was not there
	listed  bool      // the backup says that it marked its owner's journal
	marked  bool      // and it has the line, and no lossy restore after it
	joined  bool      // it was begun after the backup, and somebody else's journal says so
	ends    time.Time // see [JournalEnd]

	peers []*journal.Joined // others that may have joined after the backup
}

// look reads what proves of a journal.
//
// Its line that says that the backup was begun was on disk before anything was
// read for that, and every later line was on disk before what it says had any
// effect. So a journal with it, to which nothing happened but appending, lacks
// nothing that its provisioner has done since. One that was written too late is
// not on the backup's own list.
func look(path string, j *journal.Journal, name string, info *BackupInfo) (*file, error) {
	f := &file{path: path, journal: j, owner: j.Owner()}
	if f.owner.Provisioner == "" {
		f.owner.Provisioner = name // of an earlier version, which gave no others
	}
	f.listed = info.Marked == nil || slices.Contains(info.Marked, f.owner.Provisioner)
	lost, forgotten := false, 0
	err := j.Each(func(l *journal.Line) error {
		switch {
		case l.Owner != nil:
			f.ids = append(f.ids, l.Owner.Journal)
		case l.From != nil && l.From.Lost:
			f.marked, lost = false, true
		case l.Backup != nil && l.Backup.ID == info.ID && f.listed:
			f.marked, lost = true, false
			f.peers = f.peers[forgotten:]
		case l.Alone != nil && !f.marked:
			forgotten = len(f.peers) // before the backup, if it comes yet
		case l.Joined != nil && info.after(l.Joined):
			f.peers = append(f.peers, l.Joined)
		}
		return nil
	})
	if lost {
		f.ids = nil // what it was begun as proves nothing any more
	}
	return f, err
}

// after reports whether a journal may have been begun after what the backup knows
// of its provisioner.
func (i *BackupInfo) after(j *journal.Joined) bool {
	for _, n := range i.noted {
		if n.Name == j.Provisioner {
			return n.Journal != j.Journal && !j.At.Before(n.Since)
		}
	}
	return true
}

// prove returns what is missing to say that journals have all that any
// provisioner has done since the backup, nil if nothing is.
//
// Whoever the backup notes must be there with a journal that it has marked.
// Whoever has joined later has been written down by somebody who joined before
// (see [Daemon.join]), up to somebody whom the backup notes: all of them have to be there
// as well, each with the journal that it has begun then.
func prove(info *BackupInfo, files []*file) (missing []error) {
	good := func(f *file) bool { return f.marked || f.joined }
	// As long as anybody is found: who has joined may have others written down.
	for found := true; found; {
		found = false
		for _, f := range files {
			for _, p := range f.peers {
				i := slices.IndexFunc(files, func(f *file) bool { return slices.Contains(f.ids, p.Journal) })
				if good(f) && i >= 0 && !good(files[i]) {
					files[i].joined, found = true, true
				}
			}
		}
	}
	for _, f := range files {
		switch {
		case good(f):
		case f.made:
			missing = append(missing, fmt.Errorf("%s is not there, the journal of the provisioner that the configuration describes: put it in its place", f.path))
		default:
			missing = append(missing, fmt.Errorf("%s does not say that backup %s was begun, so it may be new, or an older copy, or have lost its place", f.path, info.ID))
		}
		for _, p := range f.peers {
			if !slices.ContainsFunc(files, func(f *file) bool { return slices.Contains(f.ids, p.Journal) }) {
				missing = append(missing, fmt.Errorf("provisioner %s has joined after the backup, by %s, and its journal is not there: give it with --journal", p.Provisioner, f.path))
			}
		}
	}
	for _, n := range info.noted {
		if !slices.ContainsFunc(files, func(f *file) bool { return f.owner.Provisioner == n.Name && f.marked }) {
			missing = append(missing, fmt.Errorf("provisioner %s has written to the store, and no journal of its own is known to go on from the backup: put it in its place, or give it with --journal", n.Name))
		}
	}
	return missing
}
