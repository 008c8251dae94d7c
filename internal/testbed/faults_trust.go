package testbed

import (
	"context"
	"sync"

	"muster/provisioner"
)

// trustFaults is what goes wrong with the log of revocations, the signers and
// the CRLs of a [Faults]. The zero value is a store without faults.
type trustFaults struct {
	mu        sync.Mutex
	appends   []Fault               // guarded by mu: for the next entries, in order
	appended  func()                // guarded by mu: once, after the next entry is written and before anybody is told
	blind     bool                  // guarded by mu: nothing of the log or the signers can be read
	entries   []Fault               // guarded by mu: for the next entries of operators' orders, in order
	beforeCRL func(context.Context) // guarded by mu: once, before the next CRL is written
	crls      []Fault               // guarded by mu: for the next CRLs
}

// Appends makes the next writes to the log of revocations go wrong, one fault
// each. Late is like Lost.
func (f *Faults) Appends(plan ...Fault) {
	f.trust.mu.Lock()
	defer f.trust.mu.Unlock()
	f.trust.appends = append(f.trust.appends, plan...)
}

// Entries makes the next writes of what operators order go wrong, one fault each:
// signers, operators, pauses, verdicts, the allow-list, grants and thaws. Lost and
// LostAnswer are known there.
func (f *Faults) Entries(plan ...Fault) {
	f.trust.mu.Lock()
	defer f.trust.mu.Unlock()
	f.trust.entries = append(f.trust.entries, plan...)
}

// AfterAppend runs what once, when the next entry is in the log and nobody has
// been told so.
func (f *Faults) AfterAppend(what func()) {
	f.trust.mu.Lock()
	defer f.trust.mu.Unlock()
	f.trust.appended = what
}

// Blind makes every read of revocations and signers fail, or work again.
func (f *Faults) Blind(blind bool) {
	f.trust.mu.Lock()
	defer f.trust.mu.Unlock()
	f.trust.blind = blind
}

// BeforeCRL runs what once, right before the next CRL is written: somebody else's
// comes first.
func (f *Faults) BeforeCRL(what func(context.Context)) {
	f.trust.mu.Lock()
	defer f.trust.mu.Unlock()
	f.trust.beforeCRL = what
}

// CRLs makes the next writes of CRLs go wrong, one fault each.
func (f *Faults) CRLs(plan ...Fault) {
	f.trust.mu.Lock()
	defer f.trust.mu.Unlock()
	f.trust.crls = append(f.trust.crls, plan...)
}

// NextRevocation implements [provisioner.Store].
func (f *Faults) NextRevocation(ctx context.Context, after provisioner.Sequence) (*provisioner.Revocation, provisioner.Sequence, error) {
	f.trust.mu.Lock()
	blind := f.trust.blind
	f.trust.mu.Unlock()
	if blind {
		return nil, 0, ErrInjected
	}
	return f.Store.NextRevocation(ctx, after)
}

// NextSigner implements [provisioner.Store].
func (f *Faults) NextSigner(ctx context.Context, after provisioner.Sequence) (*provisioner.SignerEntry, provisioner.Sequence, error) {
	f.trust.mu.Lock()
	blind := f.trust.blind
	f.trust.mu.Unlock()
	if blind {
		return nil, 0, ErrInjected
	}
	return f.Store.NextSigner(ctx, after)
}

// AppendRevocation implements [provisioner.Store].
func (f *Faults) AppendRevocation(ctx context.Context, r *provisioner.Revocation) (provisioner.Sequence, error) {
	return f.appendRevocation(ctx, func() (provisioner.Sequence, error) { return f.Store.AppendRevocation(ctx, r) })
}

// SupplementRevocation implements [provisioner.Store].
func (f *Faults) SupplementRevocation(ctx context.Context, r *provisioner.Revocation, after provisioner.Sequence) (provisioner.Sequence, error) {
	return f.appendRevocation(ctx, func() (provisioner.Sequence, error) { return f.Store.SupplementRevocation(ctx, r, after) })
}

// appendRevocation does what goes wrong with a write to the log of revocations.
func (f *Faults) appendRevocation(ctx context.Context, write func() (provisioner.Sequence, error)) (provisioner.Sequence, error) {
	f.trust.mu.Lock()
	fault := Fault(0)
	if len(f.trust.appends) > 0 {
		fault, f.trust.appends = f.trust.appends[0], f.trust.appends[1:]
	}
	appended := f.trust.appended
	if fault != Lost && fault != Late && fault != Hung {
		f.trust.appended = nil
	}
	f.trust.mu.Unlock()
	switch fault {
	case Hung:
		<-ctx.Done()
		return 0, ctx.Err()
	case Lost, Late:
		return 0, ErrInjected
	}
	at, err := write()
	if appended != nil {
		appended()
	}
	if fault == LostAnswer {
		return 0, ErrInjected
	}
	return at, err
}

// PutCRL implements [provisioner.Store].
func (f *Faults) PutCRL(ctx context.Context, c *provisioner.CRL, after provisioner.Revision) (provisioner.Revision, error) {
	f.trust.mu.Lock()
	before := f.trust.beforeCRL
	f.trust.beforeCRL = nil
	fault := Fault(0)
	if len(f.trust.crls) > 0 {
		fault, f.trust.crls = f.trust.crls[0], f.trust.crls[1:]
	}
	f.trust.mu.Unlock()
	if before != nil {
		before(ctx)
	}
	if fault == Lost || fault == Late {
		return 0, ErrInjected
	}
	revision, err := f.Store.PutCRL(ctx, c, after)
	if fault == LostAnswer {
		return 0, ErrInjected
	}
	return revision, err
}

// putEntry has an entry written as the plan of [Faults.Entries] says.
func (f *Faults) putEntry(put func() error) error {
	f.trust.mu.Lock()
	fault := Fault(0)
	if len(f.trust.entries) > 0 {
		fault, f.trust.entries = f.trust.entries[0], f.trust.entries[1:]
	}
	f.trust.mu.Unlock()
	if fault == Lost {
		return ErrInjected
	}
	if err := put(); err != nil || fault != LostAnswer {
		return err
	}
	return ErrInjected
}

// putPlaced is putEntry of what has a place.
func (f *Faults) putPlaced(put func() (provisioner.Revision, error)) (at provisioner.Revision, err error) {
	err = f.putEntry(func() error { at, err = put(); return err })
	return at, err
}

// PutSigner implements [provisioner.Store].
func (f *Faults) PutSigner(ctx context.Context, e *provisioner.SignerEntry, after provisioner.Revision) (provisioner.Revision, error) {
	return f.putPlaced(func() (provisioner.Revision, error) { return f.Store.PutSigner(ctx, e, after) })
}

// PutOperator implements [provisioner.Store].
func (f *Faults) PutOperator(ctx context.Context, e *provisioner.OperatorEntry, after provisioner.Revision) (provisioner.Revision, error) {
	return f.putPlaced(func() (provisioner.Revision, error) { return f.Store.PutOperator(ctx, e, after) })
}

// PutPause implements [provisioner.Store].
func (f *Faults) PutPause(ctx context.Context, s *provisioner.Pause, after provisioner.Revision) error {
	return f.putEntry(func() error { return f.Store.PutPause(ctx, s, after) })
}

// PutAnswer implements [provisioner.Store].
func (f *Faults) PutAnswer(ctx context.Context, a *provisioner.Answer, after provisioner.Revision) error {
	return f.putEntry(func() error { return f.Store.PutAnswer(ctx, a, after) })
}

// PutAllowance implements [provisioner.Store].
func (f *Faults) PutAllowance(ctx context.Context, a *provisioner.Allowance, after provisioner.Revision) error {
	return f.putEntry(func() error { return f.Store.PutAllowance(ctx, a, after) })
}

// PutGrant implements [provisioner.Store].
func (f *Faults) PutGrant(ctx context.Context, g *provisioner.Grant, after provisioner.Revision) error {
	return f.putEntry(func() error { return f.Store.PutGrant(ctx, g, after) })
}

// PutThaw implements [provisioner.Store].
func (f *Faults) PutThaw(ctx context.Context, t *provisioner.Thaw) error {
	return f.putEntry(func() error { return f.Store.PutThaw(ctx, t) })
}
