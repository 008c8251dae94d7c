package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"muster/internal/wire"
)

const (
	// LookEvery is how often a process looks for new revocations and signers:
	// several times within the second in which one takes effect everywhere.
	LookEvery = 200 * time.Millisecond

	// lookTimeout bounds each read of a look: what takes longer says nothing that
	// is still worth knowing. Who waits for a look waits no longer than that.
	lookTimeout = MaxAge

	// lookOneByOne is how many entries a look asks for one by one, before it has the rest read
	// all at once. Chosen: usually there is one, for which nothing else is needed; and at
	// 50 ms to the store it is less than a second.
	lookOneByOne = 16

	// pendingGrace is how long an entry that is in force here has to get its
	// place in the store before it is written once more.
	pendingGrace = 2 * time.Second
)

// ErrRevocationsUnknown means that this process does not know the newest
// revocations, or the newest signers: it must admit nobody. It goes on by
// itself once the store answers.
var ErrRevocationsUnknown = errors.New("revocations not seen")

// age says how old a look is. It is measured by the monotonic clock, so that
// setting the clock changes nothing.
type age struct {
	began time.Time // of the last look that succeeded: what it read is at least as new
	tried time.Time // end of the last look that failed, begin of one that succeeded
	err   error     // of the last look
}

func (a *age) looked(began time.Time, err error) {
	a.tried, a.err = time.Now(), err
	if err == nil {
		// One that took so long that it is out of date is followed by another at
		// once: the store answers.
		a.began, a.tried = began, began
	}
}

func (a *age) check(what string) error {
	var err error
	switch old := time.Since(a.began); {
	case a.began.IsZero():
		err = fmt.Errorf("%w: %s not read yet", ErrRevocationsUnknown, what)
	case old > MaxAge:
		err = fmt.Errorf("%w: %s last seen %v ago, limit %v", ErrRevocationsUnknown, what, old.Round(time.Millisecond), MaxAge)
	default:
		return nil
	}
	if a.err != nil {
		return fmt.Errorf("%w: %w", err, a.err)
	}
	return err
}

// look reads all that is new in the log. What it has read is in force when it
// returns, also if it returns an error.
func (r *Revocations) look(ctx context.Context) error {
	r.looking.Lock()
	defer r.looking.Unlock()
	return r.lookLocked(ctx)
}

// upTo looks if the entry at a place has not been read, which a record follows already. A
// log that was made anew from journals may not come to that place for long.
func (r *Revocations) upTo(ctx context.Context, at Sequence) error {
	r.mu.RLock()
	seen := r.through >= at
	r.mu.RUnlock()
	if seen {
		return nil
	}
	return r.look(ctx)
}

// lookLocked is look for callers that hold looking.
func (r *Revocations) lookLocked(ctx context.Context) error {
	began := time.Now()
	err := r.read(ctx)
	r.mu.Lock()
	r.through = r.last
	r.age.looked(began, err)
	r.mu.Unlock()
	return err
}

// read is look without its bookkeeping. The caller holds looking.
func (r *Revocations) read(ctx context.Context) error {
	for n := 1; ; n++ {
		if n%lookOneByOne == 0 {
			r.readMany(ctx)
		}
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		e, at, err := r.store.NextRevocation(bounded, r.last)
		cancel()
		if err != nil || e == nil {
			return err
		}
		r.see(placed{e, at})
		r.last = at
	}
}

// ensure is Fresh, after another look if that is needed: a process that was
// stopped for a while need not refuse the first who comes. Of many that come at
// once, one looks.
func (r *Revocations) ensure(ctx context.Context) error {
	if r.Fresh() == nil {
		return nil
	}
	r.looking.Lock()
	defer r.looking.Unlock()
	r.mu.RLock()
	tried := r.age.tried
	r.mu.RUnlock()
	if err := r.Fresh(); err == nil || time.Since(tried) < LookEvery {
		return err
	}
	_ = r.lookLocked(ctx) // Fresh says so
	return r.Fresh()
}

// see puts an entry of the log in force. It may be already, since who revokes
// does not wait for the log. An entry that is in the log twice counts where it comes first.
func (r *Revocations) see(e placed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Node != "" {
		r.tails[e.Node] = e.at
	}
	before, known := r.known[e.ID]
	if known && before != pendingSequence {
		return
	}
	if known {
		r.waitsNoMore(e.ID)
	} else {
		r.overtake(e.Revocation)
	}
	r.unwritten = append(r.unwritten, e.Revocation) // also what waited: the journal leaves out what it has
	r.apply(e)
	if e.Node != "" {
		// Nobody was connected to a process that has not looked yet.
		r.touched[e.Node] = disposition{kick: r.touched[e.Node].kick || !r.age.began.IsZero()}
	}
}

// overtake notes what an entry of the log of which nothing was known overtakes. The caller
// holds mu.
func (r *Revocations) overtake(by *Revocation) {
	for i := range r.pending {
		if p := &r.pending[i]; by.Node != "" && p.Node == by.Node {
			p.overtaken = true
		}
	}
}

// pends reports whether an entry about the identity waits for its place.
func (r *Revocations) pends(id wire.Identity) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.ContainsFunc(r.nodes[id], func(e placed) bool { return e.at == pendingSequence })
}

// waitsNoMore takes an entry off those that wait for their place. They get it in the order in
// which they began to wait, mostly: after a store was put back, thousands of them. The
// caller holds mu.
func (r *Revocations) waitsNoMore(id string) {
	switch i := slices.IndexFunc(r.pending, func(p pendingEntry) bool { return p.ID == id }); i {
	case -1:
	case 0:
		r.pending[0] = pendingEntry{}
		r.pending = r.pending[1:]
	default:
		r.pending = slices.Delete(r.pending, i, i+1)
	}
}

// pend puts an entry in force that the store does not have yet.
func (r *Revocations) pend(e *Revocation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.known[e.ID]; known {
		return
	}
	r.pending = append(r.pending, pendingEntry{Revocation: e, since: time.Now()})
	r.apply(placed{e, pendingSequence})
}

// write puts into the journal what it does not have yet. The disk may be slow, so no look waits
// for it.
func (r *Revocations) write() error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	entries := r.unwritten
	r.unwritten = nil
	r.mu.Unlock()
	if len(entries) == 0 || r.journal == nil {
		return nil
	}
	return r.journal.Append(entries...)
}

// add puts an entry in force in this process, writes it to the journal, appends it to the
// log, and meanwhile calls inForce, which may be nil. Disk and store may be slow, or not
// answer, and so may a broker that inForce asks: none of the two waits for the other. add
// returns after both, so that whoever is told that it is done knows both.
//
// Every step may be the last. What is in the journal is appended to the log by
// the next start, what is in force and not acknowledged by the next look that
// finds the store answering; an entry that is written twice is one, by its id.
func (r *Revocations) add(ctx context.Context, e *Revocation, inForce func()) error {
	if err := e.Check(); err != nil {
		return err
	}
	r.pend(e)
	if inForce != nil {
		var beside sync.WaitGroup
		beside.Go(inForce)
		defer beside.Wait()
	}
	var journaled error
	if r.journal != nil {
		journaled = r.journal.Append(e)
	}
	// A full disk must not keep a stolen node in: the store gets it all the same.
	if _, err := r.store.AppendRevocation(ctx, e); err != nil {
		return fmt.Errorf("%w: %w", ErrPending, errors.Join(journaled, err))
	}
	if journaled != nil {
		return fmt.Errorf("journal: %w", journaled)
	}
	// Its place it gets like everything else, in the order of the log. Should
	// that fail, the next look does it.
	if err := r.look(ctx); err != nil {
		r.log.WarnContext(ctx, "revocation is in the store and was not read back", "err", err)
	}
	return nil
}

// supplement appends an entry with what an entry about the same node lacks, see lacks. It
// returns errAgain if something is in the log about the node behind tail: others have decided
// since, perhaps, and the machine that has the name by now must not be hit by what was to be
// said of the one before.
//
// So it is in the log or it is nothing: it is not in force before, and not in the journal,
// of which the next start would append it whatever has come since. Whoever dies on the way leaves
// the entry that it is for, which others complete. After an error it may be written or may yet
// be, and making another one is harmless.
func (r *Revocations) supplement(ctx context.Context, e *Revocation, tail Sequence) error {
	if err := e.Check(); err != nil {
		return err
	}
	switch _, err := r.store.SupplementRevocation(ctx, e, tail); {
	case errors.Is(err, ErrConflict):
		if err := r.look(ctx); err != nil {
			return err
		}
		return errAgain
	case err != nil:
		return fmt.Errorf("%w: %w", ErrPending, err)
	}
	if err := r.look(ctx); err != nil {
		r.log.WarnContext(ctx, "revocation is in the store and was not read back", "err", err)
	}
	return nil
}

// ErrPending means that a revocation is in force in this process and in its
// journal, and not known to be in the store: other processes do not know it.
// It is appended when the store answers; asking again is harmless.
var ErrPending = errors.New("revoked here, not yet everywhere")

// repeat appends what is in force here and has not got its place in the store:
// the write was lost, or its acknowledgement, or the store is older than the
// journal. Entries younger than grace are left alone, whoever made them may be
// waiting for the answer.
func (r *Revocations) repeat(ctx context.Context, grace time.Duration) error {
	r.mu.RLock()
	pending := slices.Clone(r.pending)
	r.mu.RUnlock()
	for _, e := range pending {
		if time.Since(e.since) < grace {
			continue
		}
		if e.Kind == RetiredNode && e.overtaken {
			r.drop(e.Revocation)
			r.log.WarnContext(ctx, msgLeftOut, "node", e.Node, "by", e.By, "why", e.Why)
			r.leftOut(e.Revocation) // the operator was told that it would come
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		at, err := r.store.AppendRevocation(bounded, e.Revocation)
		cancel()
		if err != nil {
			return fmt.Errorf("append revocation %s again: %w", e.ID, err)
		}
		r.log.WarnContext(ctx, "revocation appended again, the store is not known to have it", "node", e.Node, "token_id", e.Token, "revision", uint64(at))
	}
	return nil
}

// restore reads the log and then appends to it what the journal has and it has
// not: a store that was restored from a backup has forgotten that.
func (r *Revocations) restore(ctx context.Context) error {
	r.readAll(ctx)
	if err := r.look(ctx); err != nil {
		return err
	}
	if r.journal == nil {
		return nil
	}
	entries, err := r.journal.Entries()
	if err != nil {
		return err
	}
	for _, e := range entries {
		overtaken, err := r.overtaken(ctx, e)
		if err != nil {
			return err
		}
		if overtaken {
			r.log.WarnContext(ctx, msgLeftOut, "node", e.Node, "by", e.By, "why", e.Why)
			continue
		}
		r.pend(e)
	}
	if err := r.repeat(ctx, 0); err != nil {
		return err
	}
	if err := r.look(ctx); err != nil {
		return err
	}
	return r.write()
}

// msgLeftOut is logged once for each retirement that nobody appends.
const msgLeftOut = "retirement left out: others have decided about the name since"

// overtaken reports whether a retirement that is in the journal alone is outdated: this
// process ended before the store had it. It is if it is older than the newest entry about
// its name: appended now it would lift a revocation that came after it, or put out who has
// got the name since. Who got it by a grant or a token for that name has no entry, so it also is
// if the machine that has the name has it since then. While a process lives, it knows what came since without asking clocks,
// see [pendingEntry]; and an entry is no older than those that were known to who made
// it, and a retirement no older than who had the name, see entryWith. A restore decides likewise.
func (r *Revocations) overtaken(ctx context.Context, e *Revocation) (bool, error) {
	r.mu.RLock()
	_, known := r.known[e.ID]
	newest := newestPlaced(r.nodes[e.Node])
	r.mu.RUnlock()
	if known || e.Kind != RetiredNode {
		return false, nil
	}
	if newest.Revocation != nil && e.At.Before(newest.At) {
		return true, nil
	}
	since, err := r.owned(ctx, e.Node)
	return err == nil && e.At.Before(since), err
}

// drop takes back a retirement that is to get no place. The certificates that it names are
// for the entries since to name, and for who enforces those.
func (r *Revocations) drop(e *Revocation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waitsNoMore(e.ID)
	r.nodes[e.Node] = slices.DeleteFunc(slices.Clone(r.nodes[e.Node]), func(p placed) bool { return p.ID == e.ID })
	for _, c := range e.Certificates {
		if by := r.serials[c.Serial]; by.Revocation != nil && by.ID == e.ID {
			delete(r.serials, c.Serial)
		}
	}
}

// readAll reads what the log has, all at once: one question for each entry takes as long as
// the way to the store, hundreds of thousands of times. What it misses the next look reads,
// which also says what went wrong.
func (r *Revocations) readAll(ctx context.Context) {
	r.looking.Lock()
	defer r.looking.Unlock()
	r.scan(ctx)
}

// readMany is readAll for a look that has come to a wave, as when a rack is revoked: with a
// question for each it would be out of date before its end where the store is far, and
// nobody be admitted meanwhile. What it has read when its time is over stays read. The
// caller holds looking.
func (r *Revocations) readMany(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	r.scan(ctx)
}

// scan reads what comes after what was read, until something goes wrong. The caller holds
// looking.
func (r *Revocations) scan(ctx context.Context) {
	_ = r.store.Revocations(ctx, r.last, func(e *Revocation, at Sequence) error {
		r.see(placed{e, at})
		r.last = at
		return nil
	})
}

// takeTouched returns the identities that have new entries and forgets that
// they have.
func (r *Revocations) takeTouched() map[wire.Identity]disposition {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.touched
	r.touched = make(map[wire.Identity]disposition)
	return t
}

// touch has the identity looked at once more.
func (r *Revocations) touch(id wire.Identity, d disposition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.touched[id] = disposition{kick: d.kick || r.touched[id].kick}
}
