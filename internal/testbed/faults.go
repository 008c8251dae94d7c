package testbed

import (
	"context"
	"errors"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
)

// ErrInjected is what a fault returns in place of an acknowledgement.
var ErrInjected = errors.New("injected fault")

// A Fault is one way in which a write goes wrong. The second is the one that
// finds bugs: the caller sees an error, the store has the record.
type Fault int

// The faults.
const (
	Lost       Fault = iota + 1 // error returned, nothing written
	LostAnswer                  // error returned, record written
	Late                        // error returned, record written when the next write comes
	Doubled                     // written twice, and the answer is the second's
	Hung                        // no answer before the caller gives up, nothing written; of entries in the log of revocations
)

// Faults is a store whose writes go wrong as it is told. It passes everything
// else on to the real one. The zero value of its settings injects nothing.
type Faults struct {
	provisioner.Store

	mu     sync.Mutex
	plan   []Fault                                          // guarded by mu: for the next writes, in order
	before func(ctx context.Context, r *provisioner.Record) // guarded by mu: once, before the next write
	late   func()                                           // guarded by mu: the write that is still on its way
	puts   int                                              // guarded by mu
	unread bool                                             // guarded by mu: no record can be read
	unseen int                                              // guarded by mu: so many reads do not see the next write, whose answer is lost
	behind *behind                                          // guarded by mu: what those reads return

	turn   sync.RWMutex // held while before runs, and for reading by writes
	claims claimFaults
	trust  trustFaults
}

// onceMore is how long a store may take for what is read anew after it was given up;
// chosen, it takes some ms.
const onceMore = time.Second

// outlasting is a store that is asked once more for what is followed, where that was
// given up: on a machine that stood still the time for it is over, and nobody would be
// admitted until the next look, which tests that are about something else do not expect.
// A store that does not answer is as silent as before.
type outlasting struct{ provisioner.Store }

// outlast reads, and reads once more if the time for it was over.
func outlast[E any](ctx context.Context, after provisioner.Sequence, read func(context.Context, provisioner.Sequence) (E, provisioner.Sequence, error)) (E, provisioner.Sequence, error) {
	e, at, err := read(ctx, after)
	if !errors.Is(err, context.DeadlineExceeded) {
		return e, at, err
	}
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), onceMore)
	defer cancel()
	return read(again, after)
}

// NextRevocation implements [provisioner.Store].
func (s outlasting) NextRevocation(ctx context.Context, after provisioner.Sequence) (*provisioner.Revocation, provisioner.Sequence, error) {
	return outlast(ctx, after, s.Store.NextRevocation)
}

// NextSigner implements [provisioner.Store].
func (s outlasting) NextSigner(ctx context.Context, after provisioner.Sequence) (*provisioner.SignerEntry, provisioner.Sequence, error) {
	return outlast(ctx, after, s.Store.NextSigner)
}

// NextAnswer implements [provisioner.Store].
func (s outlasting) NextAnswer(ctx context.Context, after provisioner.Sequence) (*provisioner.Answer, provisioner.Sequence, error) {
	return outlast(ctx, after, s.Store.NextAnswer)
}

// NextAllowance implements [provisioner.Store].
func (s outlasting) NextAllowance(ctx context.Context, after provisioner.Sequence) (*provisioner.Allowance, provisioner.Sequence, error) {
	return outlast(ctx, after, s.Store.NextAllowance)
}

// NextPause implements [provisioner.Store].
func (s outlasting) NextPause(ctx context.Context, after provisioner.Sequence) (*provisioner.Pause, provisioner.Sequence, error) {
	return outlast(ctx, after, s.Store.NextPause)
}

// Inject makes the next writes go wrong, one fault each.
func (f *Faults) Inject(plan ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = append(f.plan, plan...)
}

// Before runs what once, right before the next write: somebody else's write
// comes first.
func (f *Faults) Before(what func(ctx context.Context, r *provisioner.Record)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = what
}

// behind is what a member of a cluster has that has not heard of the last write.
type behind struct {
	record   *provisioner.Record
	revision provisioner.Revision
	reads    int // that still get it
}

// Behind makes the next write's answer get lost, and then so many reads of a record
// return what was there before it, as members of a cluster do that are behind.
func (f *Faults) Behind(reads int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unseen = reads
}

// notSeen makes a write that is not answered and not seen, if one was asked for.
func (f *Faults) notSeen(ctx context.Context, r *provisioner.Record, after provisioner.Revision) (bool, error) {
	f.mu.Lock()
	reads := f.unseen
	f.unseen = 0
	f.mu.Unlock()
	if reads == 0 {
		return false, nil
	}
	old, revision, err := f.Store.Record(ctx, r.Identity)
	if err == nil {
		_, err = f.Store.Put(ctx, r, after)
	}
	if err != nil {
		return true, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behind = &behind{record: old, revision: revision, reads: reads}
	return true, ErrInjected
}

// seenBehind returns what a member that is behind has, if the next read is to get it.
func (f *Faults) seenBehind() *behind {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.behind == nil || f.behind.reads == 0 {
		return nil
	}
	f.behind.reads--
	return f.behind
}

// Puts returns how many writes were asked for.
func (f *Faults) Puts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.puts
}

// Put implements [provisioner.Store].
func (f *Faults) Put(ctx context.Context, r *provisioner.Record, after provisioner.Revision) (provisioner.Revision, error) {
	f.mu.Lock()
	f.puts++
	before, late := f.before, f.late
	f.before, f.late = nil, nil
	fault := Fault(0)
	if len(f.plan) > 0 {
		fault, f.plan = f.plan[0], f.plan[1:]
	}
	f.mu.Unlock()
	if before != nil {
		// Writes that come now wait, or what was to come first would not.
		f.turn.Lock()
		before(ctx, r)
		f.turn.Unlock()
	}
	f.turn.RLock()
	defer f.turn.RUnlock()
	if late != nil {
		late()
	}
	if unseen, err := f.notSeen(ctx, r, after); unseen {
		return 0, err
	}
	switch fault {
	case Lost:
		return 0, ErrInjected
	case LostAnswer:
		if _, err := f.Store.Put(ctx, r, after); err != nil {
			return 0, err
		}
		return 0, ErrInjected
	case Doubled:
		if _, err := f.Store.Put(ctx, r, after); err != nil {
			return 0, err
		}
		return f.Store.Put(ctx, r, after)
	case Late:
		f.mu.Lock()
		f.late = func() { _, _ = f.Store.Put(context.WithoutCancel(ctx), r, after) }
		f.mu.Unlock()
		return 0, ErrInjected
	default:
		return f.Store.Put(ctx, r, after)
	}
}

// Record implements [provisioner.Store].
func (f *Faults) Record(ctx context.Context, id wire.Identity) (*provisioner.Record, provisioner.Revision, error) {
	if err := f.readable(); err != nil {
		return nil, 0, err
	}
	if old := f.seenBehind(); old != nil {
		return old.record, old.revision, nil
	}
	return f.Store.Record(ctx, id)
}

// Unreadable makes every read of records and of their history fail, or work
// again.
func (f *Faults) Unreadable(unreadable bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unread = unreadable
}

func (f *Faults) readable() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unread {
		return ErrInjected
	}
	return nil
}

// Certificates implements [provisioner.Store].
func (f *Faults) Certificates(ctx context.Context, id wire.Identity) ([]*provisioner.Issued, error) {
	if err := f.readable(); err != nil {
		return nil, err
	}
	return f.Store.Certificates(ctx, id)
}
