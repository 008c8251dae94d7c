package provisioner

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// A Journal keeps outside the store what a restored backup would make it
// forget. It is safe for concurrent use. What a method has written is on disk
// when it returns nil; after an error none, some or all of it is.
type Journal interface {
	// Append writes the revocations that it does not have yet.
	Append(entries ...*Revocation) error

	// Entries returns all revocations in the order in which they were written.
	Entries() ([]*Revocation, error)

	// AppendSigner writes an entry about a signer.
	AppendSigner(e *SignerEntry) error

	// AppendOperator writes an entry about an operator.
	AppendOperator(e *OperatorEntry) error

	// AppendAllowance writes an entry of the allow-list, without its uses.
	AppendAllowance(a *Allowance) error

	// Signers, Operators and Allowances return the newest entry about each, in no
	// order.
	Signers() []*SignerEntry
	Operators() []*OperatorEntry
	Allowances() []*Allowance

	// AppendTakeover writes that a name is about to change hands.
	AppendTakeover(t *Takeover) error

	// AppendClaims writes the entries that it does not have yet.
	AppendClaims(claims ...*JournaledClaims) error

	// ClaimsThrough returns up to where the journal has every entry of the logs of
	// claims; not ok before it is told of which store it is.
	ClaimsThrough() (through Revision, ok bool)

	// ClaimsNewest returns the newest entry that it has, which may be beyond a gap.
	ClaimsNewest() Revision

	// ClaimsLately returns the newest entries that it has, a few dozen, in the order of
	// the store. It reads no file.
	ClaimsLately() []*JournaledClaims

	// ClaimSums returns what stands for the entries that it had when it was opened, in the order of
	// the store: once, and nil from then on. It reads no file.
	ClaimSums() []ClaimSum

	// ClaimsAfter returns the entries after the revision, in the order of the
	// store, each once. A place that the store has given twice, since it had lost its end,
	// has two.
	ClaimsAfter(after Revision) ([]*JournaledClaims, error)
}

// JournaledClaims is an entry of a limited token's log with its place.
type JournaledClaims struct {
	Token jwt.TokenID `json:"tid"`
	At    Revision    `json:"at"`
	Entry *ClaimEntry `json:"entry"`
}

// A ClaimSum stands for an entry with its place: 16 bytes.
type ClaimSum struct {
	At  Revision
	sum uint64 // of the log and the entry; of a cryptographic hash, so that no two are taken for one
}

// Sum returns what stands for the entry.
func (c *JournaledClaims) Sum() ClaimSum {
	b, _ := json.Marshal(c) // entries are plain data
	sum := sha256.Sum256(b)
	return ClaimSum{c.At, binary.BigEndian.Uint64(sum[:])}
}

// Check reports what of it cannot be.
func (c *JournaledClaims) Check() error {
	if c.At == 0 || c.Entry == nil {
		return errors.New("claims without a place or an entry")
	}
	return errors.Join(CheckTokenID(c.Token), c.Entry.Check())
}

// A Takeover says that an identity is given to another key, so that those before
// lose it: by a grant, or by a token for exactly this name.
type Takeover struct {
	Identity wire.Identity `json:"identity"`
	Key      string        `json:"key"` // [ca.KeyHash] of who gets it
	Reason   Reason        `json:"reason"`
	At       time.Time     `json:"at"`
}

// Check reports what of it cannot be.
func (t *Takeover) Check() error {
	if t.Key == "" {
		return errors.New("takeover without a key")
	}
	if _, err := wire.ParseIdentity(string(t.Identity)); err != nil {
		return fmt.Errorf("takeover: %w", err)
	}
	return nil
}

// journaledLog is a log of claims in which nothing is taken for written, or
// read, before the journal has it: so every certificate that a claim has led to
// has its claim there. If the journal cannot be written, nobody gets a use of a
// limited token: uses that a restored store gives back cannot be taken again.
type journaledLog struct {
	ClaimLog
	journal Journal
	lacks   *lacking
}

// lacking is what is known of claims that the store has and the journal has not.
type lacking struct {
	look   chan struct{} // has room for one: fillJournal is to see what there is
	missed atomic.Bool   // some of ours may be among them, which are in no other journal either
}

func newLacking() *lacking { return &lacking{look: make(chan struct{}, 1)} }

// tell has fillJournal look.
func (l *lacking) tell() {
	select {
	case l.look <- struct{}{}:
	default: // somebody said so already
	}
}

// maxJournalGap is how far the journal may be behind a claim of our own. Each of
// ours beyond what others claimed is remembered, and a start reads from there on.
// Chosen: some 200 kB of memory.
const maxJournalGap = 4096

// journalAtOnce is how many claims that were missing are journaled with one write.
// Chosen: some 300 kB.
const journalAtOnce = 1024

// claimsAtOnce is how many entries of a token's log are handed on together. Whoever
// reads a long log from afar may have no time for all of it, and the next one goes on from
// what was handed on. Chosen: at 100 ms each, 6 s of the 30 that a request has.
const claimsAtOnce = 64

// Claims implements [ClaimLog]. What others have written is journaled too, and
// much of what is new at once.
func (l *journaledLog) Claims(ctx context.Context, tid jwt.TokenID, after Revision, each func(*ClaimEntry, Revision) error) error {
	var read []*JournaledClaims
	handOn := func() error {
		if err := l.journal.AppendClaims(read...); err != nil {
			return fmt.Errorf("claims of token %s: journal: %w", tid, err)
		}
		for _, c := range read {
			if err := each(c.Entry, c.At); err != nil {
				return err
			}
		}
		read = nil
		return nil
	}
	err := l.ClaimLog.Claims(ctx, tid, after, func(e *ClaimEntry, at Revision) error {
		if read = append(read, &JournaledClaims{Token: tid, At: at, Entry: e}); len(read) == claimsAtOnce {
			return handOn()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return handOn()
}

// AppendClaims implements [ClaimLog]. After the journal's error the entry is in
// the log, which whoever reads it finds out.
func (l *journaledLog) AppendClaims(ctx context.Context, tid jwt.TokenID, e *ClaimEntry, after Revision) (Revision, error) {
	at, err := l.ClaimLog.AppendClaims(ctx, tid, e, after)
	if err != nil {
		if !notTaken(err) {
			l.lacks.missed.Store(true) // it may be in the log, and perhaps nobody reads it
		}
		return 0, err
	}
	if after == AnyRevision {
		return at, nil // journaled when it is read, behind what comes before it
	}
	if err := l.journal.AppendClaims(&JournaledClaims{Token: tid, At: at, Entry: e}); err != nil {
		return 0, fmt.Errorf("claims of token %s: journal: %w", tid, err)
	}
	if through, ok := l.journal.ClaimsThrough(); ok && (at > through+maxJournalGap || l.lacks.missed.Load()) {
		l.lacks.tell()
	}
	return at, nil
}

// claimLog is the store's, or that with a journal, which says what that lacks.
func claimLog(s ClaimLog, j Journal, lacks *lacking) ClaimLog {
	if j == nil {
		return s
	}
	return &journaledLog{s, j, lacks}
}

// fillJournal journals what other provisioners have claimed whenever much of it is
// missing. They have journals of their own: this is so that memory, and what a
// start has to read, do not grow with the time that this process has run. And it journals
// all that is missing once some of ours is: that is in no other journal.
func (p *Provisioner) fillJournal(ctx context.Context) error {
	filled := Revision(0) // up to here the store has been read
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.lacks.look:
		}
		missed := p.lacks.missed.Swap(false)
		through, ok := p.cfg.Journal.ClaimsThrough()
		last, err := p.cfg.Store.LastClaims(ctx)
		// What the store does not have cannot be filled: a process that looked for
		// it at each claim would do nothing else.
		if err == nil && ok && (missed && last > through || last > max(through, filled)+maxJournalGap) {
			if err = p.journalAfter(ctx, through); err == nil {
				filled = last
			}
		}
		if err != nil && missed {
			p.lacks.missed.Store(true)
		}
		if err != nil && ctx.Err() == nil {
			p.cfg.Log.WarnContext(ctx, "claims of the store are not in the journal, they are read again later", "err", err)
		}
	}
}

// journalAfter journals what the store has after the revision. Journaling it
// again is harmless.
func (p *Provisioner) journalAfter(ctx context.Context, through Revision) error {
	var missing []*JournaledClaims
	write := func() error {
		err := p.cfg.Journal.AppendClaims(missing...)
		missing = missing[:0]
		return err
	}
	err := p.cfg.Store.AllClaims(ctx, through, func(tid jwt.TokenID, e *ClaimEntry, at Revision) error {
		if missing = append(missing, &JournaledClaims{Token: tid, At: at, Entry: e}); len(missing) == journalAtOnce {
			return write()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return write()
}

// evenClaims makes journal and store have the same claims: a process that died
// has appended some that it did not journal, and a store whose files were put
// back has forgotten some that the journal has, or has what others claimed since in
// their places. It must be called before any claim is made. Calling it again changes
// nothing.
func (p *Provisioner) evenClaims(ctx context.Context) error {
	if p.cfg.Journal == nil {
		return nil
	}
	through, ok := p.cfg.Journal.ClaimsThrough()
	if !ok {
		return nil
	}
	// Claims are journaled once they are in the store: one that ends before its
	// journal has forgotten the rest.
	last, err := p.cfg.Store.LastClaims(ctx)
	if err != nil {
		return err
	}
	back := last < p.cfg.Journal.ClaimsNewest()
	if back {
		err = p.appendForgotten(ctx, last)
	} else {
		back, err = p.overwritten(ctx)
	}
	if err == nil && back {
		if err = p.appendDisplaced(ctx); err == nil {
			last, err = p.cfg.Store.LastClaims(ctx)
		}
	}
	if err != nil || last <= through {
		return err
	}
	return p.journalAfter(ctx, through)
}

// appendForgotten appends to the store what the journal has beyond its last
// entry, each at its place: what the journal does not have of those in between was no
// use yet, and an entry that says nothing keeps its place. At any other the journal
// would not go on from them.
func (p *Provisioner) appendForgotten(ctx context.Context, last Revision) error {
	forgotten, err := p.cfg.Journal.ClaimsAfter(last)
	if err != nil {
		return err
	}
	p.cfg.Log.WarnContext(ctx, "store has forgotten claims that the journal has, they are appended again", "revision", uint64(last), "entries", len(forgotten))
	var before jwt.TokenID // whose log has the entry before
	if last > 0 {
		if err := p.cfg.Store.AllClaims(ctx, last-1, func(tid jwt.TokenID, _ *ClaimEntry, _ Revision) error { before = tid; return nil }); err != nil {
			return err
		}
	}
	for _, c := range forgotten {
		if c.At <= last {
			continue // another one has its place: appendDisplaced finds it another
		}
		entry := *c.Entry
		for ; last+1 < c.At; last++ {
			// A release of a key that no hash is like: it gives back nothing.
			filler := &ClaimEntry{Schema: ClaimSchema, Releases: []TokenRelease{{Key: "none", Identity: "none", Attempt: "none", At: p.now()}}}
			if before == "" { // there is no log
				filler.Token, entry.Token, before = c.Entry.Token, nil, c.Token // the first one says which token it is
			}
			if _, err := p.cfg.Store.AppendClaims(ctx, before, filler, AnyRevision); err != nil {
				return err
			}
		}
		before, last = c.Token, c.At
		tail := Revision(0)
		if err := p.cfg.Store.Claims(ctx, c.Token, 0, func(_ *ClaimEntry, at Revision) error { tail = at; return nil }); err != nil {
			return err
		}
		at, err := p.cfg.Store.AppendClaims(ctx, c.Token, &entry, tail)
		if err != nil {
			return err
		}
		if at != c.At {
			return fmt.Errorf("claims of token %s: appended again at %d, want %d: another provisioner writes", c.Token, at, c.At)
		}
	}
	return nil
}

// journalTakeover writes down that the attempt takes the name from other keys,
// before it does: a store that is restored from a backup would give the name
// back to them. Writing it twice, or in vain, keeps the name from everybody after
// a restore until an operator looks at it.
func (p *Provisioner) journalTakeover(a *attempt) error {
	if p.cfg.Journal == nil || a.reason != ReasonGrant && a.reason != ReasonOneTimeToken {
		return nil
	}
	err := p.cfg.Journal.AppendTakeover(&Takeover{Identity: a.identity, Key: a.csr.KeyHash, Reason: a.reason, At: p.now()})
	if err != nil {
		return refuse(string(a.identity), wire.CodeStoreUnavailable, fmt.Errorf("journal: %w", err))
	}
	return nil
}
