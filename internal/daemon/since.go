package daemon

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/journal"
	"muster/provisioner/store"
)

// since is what journals say that came after a backup.
type since struct {
	journals []*journal.Journal
	made     absent // the journal that the configuration names, and data_dir, of which it takes the owner, if they were not there
	info     *BackupInfo

	revocations []ordered                          // all there are: the backup may lack any
	signers     []line[*provisioner.SignerEntry]   // all there are: their times say which is the last
	operators   []line[*provisioner.OperatorEntry] // as those
	allowances  []line[*provisioner.Allowance]     // as those
	claims      []*provisioner.JournaledClaims     // after those of the backup
	takeovers   []*provisioner.Takeover            // after the backup, the last of each name
	newest      time.Time                          // that any entry names
	ends        []JournalEnd

	lost     error                // why this may not be all; nil if it is
	from     time.Time            // when what may be lost begins, if lost is not nil
	renumber bool                 // claims have other places than the journals say
	through  provisioner.Revision // of the restored claims
}

// errLost is what keeps a restore from going on without an operator's word.
var errLost = errors.New("the journal may not have all that came after the backup")

// readJournals reads the journal that the configuration names, and the others.
// Close what it returns, also with an error. They are locked meanwhile: no
// provisioner writes them.
func (r *Restore) readJournals(cfg Config, info *BackupInfo) (*since, error) {
	s := &since{info: info, made: absentUpTo(cfg.DataDir)}
	if err := errors.Join(os.MkdirAll(cfg.DataDir, 0o700), s.made.give()); err != nil {
		return s, err
	}
	var files []*file
	for _, path := range apart(append([]string{cfg.journalPath()}, r.Journals...)) {
		_, missing := os.Lstat(path)
		j, err := journal.Open(path)
		if errors.Is(err, journal.ErrInUse) {
			return s, fmt.Errorf("revocations.journal: %w: stop the provisioner that has it", err)
		}
		if err != nil {
			return s, fmt.Errorf("revocations.journal: %w", err)
		}
		s.journals = append(s.journals, j)
		if errors.Is(missing, fs.ErrNotExist) {
			s.made = append(absent{path}, s.made...)
		}
		if err := giveAllTo(path, cfg.DataDir); err != nil {
			return s, err
		}
		f, err := look(path, j, cfg.Name, info)
		if err != nil {
			return s, err
		}
		f.made = errors.Is(missing, fs.ErrNotExist)
		files = append(files, f)
	}
	lost := prove(info, files)
	for _, f := range files {
		if err := s.read(f); err != nil {
			return s, err
		}
		s.ends = append(s.ends, JournalEnd{File: f.path, At: f.ends})
	}
	if err := s.order(); err != nil {
		lost = append(lost, err)
	}
	s.see(info.EndedAt)
	s.lost = errors.Join(lost...)
	return s, nil
}

// apart leaves paths out that are those of a file before: the configuration's own
// journal may be named once more.
func apart(paths []string) (all []string) {
	var seen []os.FileInfo
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && slices.ContainsFunc(seen, func(other os.FileInfo) bool { return os.SameFile(info, other) }) {
			continue
		}
		if err == nil {
			seen = append(seen, info)
		}
		all = append(all, path)
	}
	return all
}

// inFlight is how long before a backup a name may have been given to another key
// in the journal, and not in the record that the backup has: the record follows
// the line, and provisioners whose clocks are further apart issue nothing.
const inFlight = 5 * time.Minute

// read reads one journal. What comes after the line that says that the backup was
// begun counts as newer than that, or all of it if it was begun later.
func (s *since) read(f *file) error {
	marked := f.joined
	var claims []*provisioner.JournaledClaims
	takeovers := make(map[wire.Identity]*provisioner.Takeover)
	renumber := false
	var revoked ordered  // the last one
	var newest time.Time // that a line names, of those that may be of after the backup
	see := func(at time.Time) {
		if at.After(newest) {
			newest = at
		}
	}
	var signers sayings[*provisioner.SignerEntry]
	var operators sayings[*provisioner.OperatorEntry]
	var allowances sayings[*provisioner.Allowance]
	err := f.journal.Each(func(l *journal.Line) error {
		if at := l.Time(); at.After(f.ends) {
			f.ends = at
		}
		switch {
		case l.From != nil && l.From.Installation != s.info.Installation:
			return fmt.Errorf("%s is of installation %s, the backup of %s: name the journal that belongs to it, or move this one away",
				f.path, l.From.Installation, s.info.Installation)
		case l.From != nil:
			// What was spent before a lossy restore stays spent, under whatever
			// place; whether it is all is not known.
			marked = marked && !l.From.Lost
			renumber = renumber || l.From.Lost
			see(l.From.At)
		case l.Backup != nil && l.Backup.ID == s.info.ID && f.listed:
			// Places from here on are those of the backup.
			marked, renumber, claims = true, false, nil
			// What a line before names and the backup's end is not past is of a clock that was
			// ahead: by it the restored store's clocks would all be behind, for as long.
			newest = l.Backup.At
		case l.Backup != nil:
			see(l.Backup.At)
		case l.Revocation != nil:
			// A journal's own order is what happened, whatever clocks did.
			if revoked.at.After(l.At) {
				revoked = ordered{l.Revocation, revoked.at}
			} else {
				revoked = ordered{l.Revocation, l.At}
			}
			s.revocations = append(s.revocations, revoked)
			if t := takeovers[l.Node]; t != nil && l.Kind == provisioner.RetiredNode && !l.At.Before(t.At) {
				delete(takeovers, l.Node) // free for any key since then
			}
			see(l.At)
		case l.Signer != nil:
			signers.add(string(l.Signer.ID), line[*provisioner.SignerEntry]{l.Signer, change{l.Signer.At, l.Signer.Removed, marked}})
			see(l.Signer.At)
		case l.Operator != nil:
			operators.add(l.Operator.Name, line[*provisioner.OperatorEntry]{l.Operator, change{l.Operator.At, l.Operator.Removed, marked}})
			see(l.Operator.At)
		case l.Allowance != nil:
			allowances.add(string(l.Allowance.Pattern), line[*provisioner.Allowance]{l.Allowance, change{l.Allowance.At, l.Allowance.Removed, marked}})
			see(l.Allowance.At)
		case l.Takeover != nil && (marked || l.Takeover.At.After(s.info.StartedAt.Add(-inFlight))):
			takeovers[l.Takeover.Identity] = l.Takeover
			see(l.Takeover.At)
		case l.Claims != nil && uint64(l.Claims.At) > s.info.Last(store.ClaimsStream):
			claims = append(claims, l.Claims)
		}
		return nil
	})
	s.see(newest)
	s.signers, s.operators, s.allowances = append(s.signers, signers.taken()...), append(s.operators, operators.taken()...), append(s.allowances, allowances.taken()...)
	s.takeovers = slices.AppendSeq(s.takeovers, maps.Values(takeovers))
	s.claims = append(s.claims, claims...)
	s.renumber = s.renumber || renumber
	return err
}

// ordered is a revocation or retirement with when it was, or the one before it in its
// journal if that says later.
type ordered struct {
	*provisioner.Revocation
	at time.Time
}

// A line is an entry about a name, of operators or the allow-list.
type line[E any] struct {
	entry E
	change
}

// sayings are what one journal says of signers, operators or the allow-list. The zero
// value is nothing.
type sayings[E any] struct {
	lines []line[E]
	about map[string][]int // places of those that count and take nothing away, by what they are about
	void  map[int]bool     // places of those that were refused
}

// add takes in the next line of the journal, which is about a name.
//
// Its entry is on its way to the store, which may not have taken it, since somebody else
// was first. Then the journal has that one's entry next (see [provisioner.Signers]), which is no
// newer: whoever writes an entry knows of all that the store has, and gives it a time
// after those. So what an older one follows was refused, but for removals, which are
// never.
func (s *sayings[E]) add(name string, l line[E]) {
	if s.about == nil {
		s.about, s.void = make(map[string][]int), make(map[int]bool)
	}
	added := s.about[name]
	for len(added) > 0 && !l.at.After(s.lines[added[len(added)-1]].at) {
		s.void[added[len(added)-1]] = true
		added = added[:len(added)-1]
	}
	if !l.removed {
		added = append(added, len(s.lines))
	}
	s.about[name] = added
	s.lines = append(s.lines, l)
}

// taken returns the lines that were not refused, in their order.
func (s *sayings[E]) taken() (lines []line[E]) {
	for i, l := range s.lines {
		if !s.void[i] {
			lines = append(lines, l)
		}
	}
	return lines
}

// sortLines puts lines of several journals into one order.
func sortLines[E any](all []line[E]) {
	slices.SortStableFunc(all, func(a, b line[E]) int { return a.compare(b.change) })
}

// applyLines writes the entries that count after the newest one that is restored about
// the same name, and returns how many these are.
func applyLines[E any](all []line[E], restored func(E) change, write func(E) error) (n int, err error) {
	for _, l := range all {
		if !l.counts(restored(l.entry)) {
			continue
		}
		if err := write(l.entry); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// A change is when an entry about a name was made, whether it takes trust away,
// and whether it is known to have come after the backup. The zero value is no
// entry.
type change struct {
	at             time.Time
	removed, after bool
}

// compare orders entries of several journals. Of two that provisioners made in
// the same second about one name, the removal is the last.
func (c change) compare(other change) int {
	last := func(removed bool) int {
		if removed {
			return 1
		}
		return 0
	}
	return cmp.Or(c.at.Compare(other.at), cmp.Compare(last(c.removed), last(other.removed)))
}

// counts reports whether the entry comes after the newest one that is restored.
// What may be of before the backup lets nobody in: it changes only who is an
// operator or allowed by the backup, whose role, key or limits may have been
// others since.
func (c change) counts(restored change) bool {
	switch {
	case restored.at.IsZero():
		return c.after || c.removed
	case c.removed:
		return c.at.After(restored.at) || c.at.Equal(restored.at) && !restored.removed
	case restored.removed:
		return c.after && c.at.After(restored.at)
	}
	return c.at.After(restored.at)
}

func (s *since) see(at time.Time) {
	if at.After(s.newest) {
		s.newest = at
	}
}

// time is now, or the newest time on record if that is later: the clock of a machine
// that is new may not be set yet, and what is frozen or lost by a time that is past
// would be nothing.
func (s *since) time(now time.Time) time.Time {
	if s.newest.After(now) {
		now = s.newest
	}
	return now.UTC().Truncate(time.Second)
}

// order puts what several journals have into one order, and reports a place of
// the logs of claims that none of them has: what is missing there was spent, and
// nobody knows by whom.
func (s *since) order() error {
	s.takeovers = lastTakeovers(s.takeovers)
	slices.SortStableFunc(s.revocations, func(a, b ordered) int { return a.at.Compare(b.at) }) // a retirement lifts what comes before it
	sortLines(s.signers)
	sortLines(s.operators)
	sortLines(s.allowances)
	if s.renumber {
		// Places say nothing. Written twice, a claim would be held again that was released
		// in between, and an operator's release take back what was claimed after it.
		s.claims = distinct(s.claims, false)
		return errors.New("a backup was restored before without all that came after it")
	}
	// A store that was put back has given a place to another entry since: both were made.
	s.claims = distinct(s.claims, true)
	slices.SortStableFunc(s.claims, func(a, b *provisioner.JournaledClaims) int { return cmp.Compare(a.At, b.At) })
	through := provisioner.Revision(s.info.Last(store.ClaimsStream))
	for _, c := range s.claims {
		if c.At > through+1 {
			return fmt.Errorf("claims %d to %d are in no journal: give those of all provisioners of this store with --journal; if you have, one could not be written then", through+1, c.At-1)
		}
		through = c.At
	}
	return nil
}

// distinct leaves out entries that were there before, in the order in which they are: at
// the same place, or wherever that is.
func distinct(all []*provisioner.JournaledClaims, placed bool) (claims []*provisioner.JournaledClaims) {
	seen := make(map[[sha256.Size]byte]bool, len(all))
	for _, c := range all {
		key := *c
		if !placed {
			key.At = 0
		}
		b, err := json.Marshal(key)
		sum := sha256.Sum256(b)
		if err == nil && seen[sum] { // it was JSON when it was read
			continue
		}
		seen[sum] = true
		claims = append(claims, c)
	}
	return claims
}

// lastTakeovers leaves out those that another of the name came after: who has got it
// then is what the record may have. Of two in one second in different journals both
// stay, and a record has to know both keys.
func lastTakeovers(all []*provisioner.Takeover) []*provisioner.Takeover {
	newest := make(map[wire.Identity]time.Time)
	for _, t := range all {
		if t.At.After(newest[t.Identity]) {
			newest[t.Identity] = t.At
		}
	}
	return slices.DeleteFunc(all, func(t *provisioner.Takeover) bool { return t.At.Before(newest[t.Identity]) })
}

// accepts sees that the operator knows what may be lost, or that something may be that looks
// complete: whoever has put a copy in place knows that.
func (r *Restore) accepts(s *since) error {
	s.from = s.info.StartedAt
	from := s.from.UTC().Format(time.RFC3339)
	if s.lost == nil {
		if r.AcceptLostSince.IsZero() {
			return nil
		}
		s.lost = errSaidSo
		if r.AcceptLostSince.After(s.from) {
			s.from = r.AcceptLostSince
		}
		return nil
	}
	if r.AcceptLostSince.IsZero() {
		return fmt.Errorf("%w: %w\nbring the journal back; or, with --accept-lost-since %s, revocations, retirements, removed signers, operators and allowances, and uses of limited tokens since then are forgotten, and all of these tokens frozen",
			errLost, s.lost, from)
	}
	if r.AcceptLostSince.After(s.from) {
		return fmt.Errorf("--accept-lost-since %s: the backup is older, what may be lost begins at %s", r.AcceptLostSince.UTC().Format(time.RFC3339), from)
	}
	return nil
}

// apply writes to a restored store what the journals have and the backup has
// not.
func (s *since) apply(ctx context.Context, into *store.Import, now time.Time, out *Restored) error {
	before := into.Revocations()
	for _, e := range s.revocations {
		if into.Overtaken(e.Revocation) {
			if !slices.Contains(out.LeftOut, string(e.Node)) {
				out.LeftOut = append(out.LeftOut, string(e.Node))
			}
			continue
		}
		if err := into.AppendRevocation(ctx, e.Revocation); err != nil {
			return err
		}
	}
	out.Revocations = into.Revocations() - before
	for _, t := range s.takeovers {
		e := takenOver(into.Record(t.Identity), t, now)
		if e == nil {
			continue
		}
		if err := into.AppendRevocation(ctx, e); err != nil {
			return err
		}
		out.Takeovers++
	}
	var err error
	out.Signers, err = applyLines(s.signers, func(e *provisioner.SignerEntry) change {
		if e := into.Signer(e.ID); e != nil {
			return change{at: e.At, removed: e.Removed}
		}
		return change{}
	}, func(e *provisioner.SignerEntry) error { return into.AppendSigner(ctx, e) })
	if err != nil {
		return err
	}
	out.Operators, err = applyLines(s.operators, func(o *provisioner.OperatorEntry) change {
		if e := into.Operator(o.Name); e != nil {
			return change{at: e.At, removed: e.Removed}
		}
		return change{}
	}, func(o *provisioner.OperatorEntry) error { return into.AppendOperator(ctx, o) })
	if err != nil {
		return err
	}
	out.Allowances, err = applyLines(s.allowances, func(a *provisioner.Allowance) change {
		if e := into.Allowance(a.Pattern); e != nil {
			return change{at: e.At, removed: e.Removed}
		}
		return change{}
	}, func(a *provisioner.Allowance) error { return into.AppendAllowance(ctx, a) })
	if err != nil {
		return err
	}
	for _, c := range s.claims {
		if err := into.AppendClaims(ctx, c.Token, c.Entry); err != nil {
			return err
		}
	}
	out.Claims = len(s.claims)
	// The places of the journal go on only if they are those of the new store.
	for _, j := range s.journals {
		if through, ok := j.ClaimsThrough(); ok && through > into.Claims() {
			s.renumber = true
		}
	}
	if n := len(s.claims); n > 0 && s.claims[n-1].At != into.Claims() {
		s.renumber = true
	}
	s.through = into.Claims()
	if s.lost == nil {
		return nil
	}
	return into.Freeze(ctx, &provisioner.Freeze{ID: wire.NewID(), At: now, Since: s.from})
}

// takenOver returns the entry that keeps a name out which the backup's record
// gives to a key that has lost it since, or nil if it does not. The machine that
// has the name comes in once an operator retires it: which of the two that is
// the record cannot say any more.
func takenOver(r *provisioner.Record, t *provisioner.Takeover, now time.Time) *provisioner.Revocation {
	if r == nil || r.State == provisioner.StateRevoked || r.State == provisioner.StateRetired || slices.Contains(r.Lineage, t.Key) {
		return nil
	}
	// Certificates and the rest are supplemented by whoever completes it.
	return &provisioner.Revocation{
		Schema: provisioner.RevocationSchema, ID: wire.NewID(), Kind: provisioner.RevokedNode, At: now, By: "restore",
		Why: "given to another key after the backup, by " + string(t.Reason), Node: t.Identity, Keys: slices.Clone(r.Lineage),
	}
}

// end says in the journals that claims go on from other places, if they do.
func (s *since) end(now time.Time) error {
	if s.lost == nil && !s.renumber {
		return nil
	}
	for _, j := range s.journals {
		if err := j.Begin(journal.From{Installation: s.info.Installation, Claims: s.through, At: s.time(now), Lost: true}); err != nil {
			return fmt.Errorf("revocations.journal: %w", err)
		}
	}
	return nil
}

// close lets provisioners have the journals.
func (s *since) close() {
	for _, j := range s.journals {
		_ = j.Close() // what it has written is on disk
	}
}
