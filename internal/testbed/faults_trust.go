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
	at, err := f.Store.AppendRevocation(ctx, r)
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
