package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"muster/provisioner"
)

// A Line is one entry of the journal: exactly one of its fields is set. A
// revocation is written as it is, anything else under its name.
type Line struct {
	*provisioner.Revocation

	// From says of which installation the journal is, and from where on it has
	// the claims.
	From *From `json:"from,omitempty"`

	// Backup says that a backup was begun: all that it may lack comes after this
	// line.
	Backup *Backup `json:"backup,omitempty"`

	// Owner says whose journal it is, from its beginning, and which of theirs.
	Owner *Joined `json:"owner,omitempty"`

	// Joined says that another provisioner of the store has begun a journal.
	Joined *Joined `json:"joined,omitempty"`

	// Alone says that all other provisioners were forgotten: backups from then on
	// ask for none of those who have joined before.
	Alone *Alone `json:"alone,omitempty"`

	// Signer is an entry about a signer, on its way to the store.
	Signer *provisioner.SignerEntry `json:"signer,omitempty"`

	// Operator is an entry about an operator, on its way to the store.
	Operator *provisioner.OperatorEntry `json:"operator,omitempty"`

	// Allowance is an entry of the allow-list, on its way to the store.
	Allowance *provisioner.Allowance `json:"allowance,omitempty"`

	// Claims is an entry of a limited token's log, as the store has it.
	Claims *provisioner.JournaledClaims `json:"claims,omitempty"`

	// Takeover says that a name is about to be given to another key.
	Takeover *provisioner.Takeover `json:"takeover,omitempty"`
}

// Time returns when that was of which the line says it, by the clock of whoever did it; of
// several claims, the last. It is zero for a line that names no time.
func (l *Line) Time() (at time.Time) {
	switch {
	case l.Revocation != nil:
		return l.At
	case l.From != nil:
		return l.From.At
	case l.Backup != nil:
		return l.Backup.At
	case l.Owner != nil:
		return l.Owner.At
	case l.Joined != nil:
		return l.Joined.At
	case l.Alone != nil:
		return l.Alone.At
	case l.Signer != nil:
		return l.Signer.At
	case l.Operator != nil:
		return l.Operator.At
	case l.Allowance != nil:
		return l.Allowance.At
	case l.Takeover != nil:
		return l.Takeover.At
	case l.Claims != nil && l.Claims.Entry != nil:
		for _, c := range l.Claims.Entry.Claims {
			at = later(at, c.At)
		}
		for _, r := range l.Claims.Entry.Releases {
			at = later(at, r.At)
		}
	}
	return at
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// From says from where on a journal has all claims.
type From struct {
	Installation string               `json:"installation"`
	Claims       provisioner.Revision `json:"claims"` // those after this one, in the order of the store
	At           time.Time            `json:"at"`

	// Lost says that a backup was restored without all that came after it: what
	// the lines before say of claims does not go on here.
	Lost bool `json:"lost,omitempty"`
}

// Backup is a backup that was begun.
type Backup struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
}

// Joined is a journal that a provisioner has begun.
type Joined struct {
	Provisioner string    `json:"provisioner"` // name
	Journal     string    `json:"journal"`     // id, unique
	At          time.Time `json:"at"`
}

// Alone is when all other provisioners were forgotten.
type Alone struct {
	At time.Time `json:"at"`
}

// parseLine decodes a line and checks it.
func parseLine(text []byte) (*Line, error) {
	l := new(Line)
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(l); err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(text[d.InputOffset():])) > 0 {
		return nil, errors.New("more than one entry")
	}
	return l, l.check()
}

// check reports what of a line cannot be.
func (l *Line) check() error {
	var errs []error
	n := 0
	is := func(set bool, check func() error) {
		if set {
			n++
			errs = append(errs, check())
		}
	}
	is(l.Revocation != nil, func() error { return l.Check() })
	is(l.From != nil, func() error { return missing(l.From.Installation, "installation") })
	is(l.Backup != nil, func() error { return missing(l.Backup.ID, "backup") })
	is(l.Owner != nil, func() error { return l.Owner.check() })
	is(l.Joined != nil, func() error { return l.Joined.check() })
	is(l.Alone != nil, func() error { return nil })
	is(l.Signer != nil, func() error { return l.Signer.Check() })
	is(l.Operator != nil, func() error { return l.Operator.Check() })
	is(l.Allowance != nil, func() error { return l.Allowance.Check() })
	is(l.Claims != nil, func() error { return l.Claims.Check() })
	is(l.Takeover != nil, func() error { return l.Takeover.Check() })
	if n != 1 {
		return fmt.Errorf("a line says %d things, want 1", n)
	}
	return errors.Join(errs...)
}

func (j *Joined) check() error {
	return errors.Join(missing(j.Journal, "journal"), missing(j.Provisioner, "provisioner"))
}

func missing(s, what string) error {
	if s == "" {
		return fmt.Errorf("%s without an id", what)
	}
	return nil
}

// A position is how far a journal has the claims of its store. Processes that
// write at the same time are acknowledged in any order, so it may know some
// beyond a gap.
type position struct {
	installation string // empty before the first From
	begun        time.Time
	through      provisioner.Revision
	ahead        map[provisioner.Revision]bool
}

// begin starts anew.
func (p *position) begin(f *From) {
	*p = position{installation: f.Installation, begun: f.At, through: f.Claims, ahead: make(map[provisioner.Revision]bool)}
}

// add takes in one more entry.
func (p *position) add(at provisioner.Revision) {
	if p.has(at) || p.ahead == nil {
		return
	}
	p.ahead[at] = true
	for p.ahead[p.through+1] {
		p.through++
		delete(p.ahead, p.through)
	}
}

// has reports whether an entry is in the journal, or before what it has.
func (p *position) has(at provisioner.Revision) bool { return at <= p.through || p.ahead[at] }
