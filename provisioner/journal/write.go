package journal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"muster/provisioner"
)

// Begin says of which installation the journal is, and from where on it will
// have the claims. After it, [Journal.AppendClaims] takes those after f.Claims.
func (j *Journal) Begin(f From) error { return j.append([]*Line{{From: &f}}) }

// Mark says that a backup is begun. What is read from the store after it returns
// is in the backup, and what is written after that in the journal.
func (j *Journal) Mark(b Backup) error { return j.append([]*Line{{Backup: &b}}) }

// Own says whose journal it is. The newest such line counts.
func (j *Journal) Own(o Joined) error { return j.append([]*Line{{Owner: &o}}) }

// Join says that another provisioner has begun a journal: a restore asks for that
// one, too. Saying it twice is harmless.
func (j *Journal) Join(o Joined) error { return j.append([]*Line{{Joined: &o}}) }

// Forget says that backups from now on ask for none of those who have joined so
// far.
func (j *Journal) Forget(a Alone) error { return j.append([]*Line{{Alone: &a}}) }

// Owner returns what the newest [Journal.Own] has said, the zero value if nobody
// has.
func (j *Journal) Owner() Joined {
	j.known.Lock()
	defer j.known.Unlock()
	return j.owner
}

// AppendSigner implements [provisioner.Journal].
func (j *Journal) AppendSigner(e *provisioner.SignerEntry) error {
	return j.append([]*Line{{Signer: e}})
}

// AppendOperator implements [provisioner.Journal].
func (j *Journal) AppendOperator(e *provisioner.OperatorEntry) error {
	return j.append([]*Line{{Operator: e}})
}

// AppendAllowance implements [provisioner.Journal].
func (j *Journal) AppendAllowance(a *provisioner.Allowance) error {
	return j.append([]*Line{{Allowance: a}})
}

// Signers implements [provisioner.Journal].
func (j *Journal) Signers() []*provisioner.SignerEntry {
	j.known.Lock()
	defer j.known.Unlock()
	return slices.Collect(maps.Values(j.signers))
}

// Operators implements [provisioner.Journal].
func (j *Journal) Operators() []*provisioner.OperatorEntry {
	j.known.Lock()
	defer j.known.Unlock()
	return slices.Collect(maps.Values(j.operators))
}

// Allowances implements [provisioner.Journal].
func (j *Journal) Allowances() []*provisioner.Allowance {
	j.known.Lock()
	defer j.known.Unlock()
	return slices.Collect(maps.Values(j.allowances))
}

// AppendTakeover implements [provisioner.Journal].
func (j *Journal) AppendTakeover(t *provisioner.Takeover) error {
	return j.append([]*Line{{Takeover: t}})
}

// AppendClaims implements [provisioner.Journal]. Before Begin there is nothing
// that it could go on from, and it writes nothing.
func (j *Journal) AppendClaims(claims ...*provisioner.JournaledClaims) error {
	var lines []*Line
	j.known.Lock()
	for _, c := range claims {
		if j.at.installation != "" && (!j.at.has(c.At) || j.places != nil && j.overwrites(c)) {
			lines = append(lines, &Line{Claims: c})
		}
	}
	j.known.Unlock()
	return j.append(lines)
}

// overwrites reports whether the entry has got the place of another one: the store has lost
// its end since, and given the places there anew. The caller holds known.
func (j *Journal) overwrites(c *provisioner.JournaledClaims) bool {
	if was := j.places[c.At%places]; was.At != c.At || was == c.Sum() {
		return false
	}
	// Whoever still reads what the place had before has nothing new.
	return !slices.ContainsFunc(j.lately, func(l *provisioner.JournaledClaims) bool { return l.At == c.At && same(l, c) })
}

// place notes which entry has its place by now. The caller holds known, or is alone.
func (j *Journal) place(c *provisioner.JournaledClaims) {
	if j.places == nil {
		j.places = make([]provisioner.ClaimSum, places)
	}
	j.places[c.At%places] = c.Sum()
}

// same reports whether two entries of one place are the same one.
func same(a, b *provisioner.JournaledClaims) bool {
	first, err := json.Marshal(a)
	second, err2 := json.Marshal(b)
	return errors.Join(err, err2) == nil && bytes.Equal(first, second)
}

// Installation returns of which installation the journal is, empty if it does
// not say, as one of an earlier version.
func (j *Journal) Installation() string {
	j.known.Lock()
	defer j.known.Unlock()
	return j.at.installation
}

// Begun returns when the newest [Journal.Begin] was, the zero time if never.
func (j *Journal) Begun() time.Time {
	j.known.Lock()
	defer j.known.Unlock()
	return j.at.begun
}

// ClaimsThrough implements [provisioner.Journal].
func (j *Journal) ClaimsThrough() (through provisioner.Revision, ok bool) {
	j.known.Lock()
	defer j.known.Unlock()
	return j.at.through, j.at.installation != ""
}

// ClaimsNewest implements [provisioner.Journal].
func (j *Journal) ClaimsNewest() provisioner.Revision {
	j.known.Lock()
	defer j.known.Unlock()
	newest := j.at.through
	for at := range j.at.ahead {
		newest = max(newest, at)
	}
	return newest
}

// lately is how many claims are remembered; chosen, some 20 kB, and what a store may well
// have lost at its end.
const lately = 64

// places is of how many of the newest claims it is known which entry was at their place.
// Chosen: 1 MB, and far more than a store of which a part runs on may lose at its end.
const places = 1 << 16

// ClaimsLately implements [provisioner.Journal]. It returns 64, or all if there are fewer.
func (j *Journal) ClaimsLately() []*provisioner.JournaledClaims {
	j.known.Lock()
	defer j.known.Unlock()
	return newest(j.lately)
}

// ClaimSums implements [provisioner.Journal].
func (j *Journal) ClaimSums() []provisioner.ClaimSum {
	j.known.Lock()
	defer j.known.Unlock()
	sums := j.sums
	j.sums = nil
	slices.SortStableFunc(sums, func(a, b provisioner.ClaimSum) int { return cmp.Compare(a.At, b.At) })
	return slices.Compact(sums)
}

// newest returns the newest of the claims in their order, each once.
func newest(claims []*provisioner.JournaledClaims) []*provisioner.JournaledClaims {
	claims = inOrder(slices.Clone(claims))
	return slices.Clone(claims[max(0, len(claims)-lately):])
}

// inOrder puts claims into the order of the store, each once.
func inOrder(claims []*provisioner.JournaledClaims) []*provisioner.JournaledClaims {
	slices.SortStableFunc(claims, func(a, b *provisioner.JournaledClaims) int { return cmp.Compare(a.At, b.At) })
	return slices.CompactFunc(claims, func(a, b *provisioner.JournaledClaims) bool { return a.At == b.At && same(a, b) })
}

// ClaimsAfter implements [provisioner.Journal]. It reads the file, and keeps in
// memory what it returns.
func (j *Journal) ClaimsAfter(after provisioner.Revision) ([]*provisioner.JournaledClaims, error) {
	var claims []*provisioner.JournaledClaims
	err := j.Each(func(l *Line) error {
		switch {
		case l.From != nil:
			claims = nil // what came before is of another count
		case l.Claims != nil && l.Claims.At > after:
			claims = append(claims, l.Claims)
		}
		return nil
	})
	return inOrder(claims), err
}
