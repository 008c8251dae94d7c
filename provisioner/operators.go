package provisioner

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An OperatorStore keeps who may operate the installation over HTTPS.
type OperatorStore interface {
	// NextOperator returns the first entry after the given place. Of several about
	// one name, the last one counts. What it returns has passed
	// [OperatorEntry.Check].
	NextOperator(ctx context.Context, after Sequence) (*OperatorEntry, Sequence, error)

	// PutOperator writes an entry if the newest about its name is still at after, which
	// may be [AnyRevision], and returns its place once it is on disk. It returns
	// [ErrConflict] if it is not; after any other error it may be written or may yet be.
	PutOperator(ctx context.Context, e *OperatorEntry, after Revision) (Revision, error)
}

// OperatorsConfig configures [NewOperators].
type OperatorsConfig struct {
	Store OperatorStore // required

	// Journal keeps changes outside the store. Optional.
	Journal Journal

	// Log is optional; discards by default.
	Log *slog.Logger
}

// Operators are those of the store, as this process has read them. It is safe
// for concurrent use. Until they have been read nobody is one.
type Operators struct {
	cfg OperatorsConfig

	putting sync.Mutex // one change at a time

	unjournaled atomic.Bool // the journal may lack an entry that the store has

	looking sync.Mutex // one look at a time
	last    Sequence   // guarded by looking
	even    bool       // guarded by looking: the store has what the journal has

	mu      sync.RWMutex
	age     age                       // guarded by mu
	entries map[string]*OperatorEntry // guarded by mu: the newest of each name
	places  map[string]Revision       // guarded by mu: where in the store that is
}

// NewOperators returns the operators, of whom none is known yet. It reads
// nothing from the store.
func NewOperators(cfg OperatorsConfig) (*Operators, error) {
	if cfg.Store == nil {
		return nil, errors.New("operators: no store")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Operators{cfg: cfg, entries: make(map[string]*OperatorEntry), places: make(map[string]Revision)}, nil
}

// Fresh returns nil while this process knows every change of operators that was
// in the store [MaxAge] ago, and an error that wraps [ErrRevocationsUnknown]
// else: one of them may have been removed.
func (o *Operators) Fresh() error {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.age.check("operators")
}

// named returns the newest entry about a name, nil if there is none.
func (o *Operators) named(name string) *OperatorEntry {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.entries[name]
}

// list returns all that is known, by name.
func (o *Operators) list() []OperatorInfo {
	o.mu.RLock()
	defer o.mu.RUnlock()
	list := make([]OperatorInfo, 0, len(o.entries))
	for _, e := range o.entries {
		list = append(list, e.info())
	}
	slices.SortFunc(list, func(a, b OperatorInfo) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// issuers returns who has issued the certificates that are good at now, and how many.
func (o *Operators) issuers(now time.Time) (map[string]int, error) {
	if err := o.Fresh(); err != nil {
		return nil, err
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	by := make(map[string]int)
	for _, e := range o.entries {
		if !e.Removed && e.Serial != "" && now.Before(e.Ends) {
			by[e.Issuer]++
		}
	}
	return by, nil
}

// look reads what is new in the store. An entry that is not understood is an
// error at every look: it could be the removal of anybody.
func (o *Operators) look(ctx context.Context) error {
	o.looking.Lock()
	defer o.looking.Unlock()
	return o.lookLocked(ctx)
}

// lookLocked is look for callers that hold looking.
func (o *Operators) lookLocked(ctx context.Context) error {
	began := time.Now()
	err := o.read(ctx)
	if err == nil && !o.even {
		err = o.appendForgotten(ctx)
		o.even = err == nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.age.looked(began, err)
	return err
}

// ensure is Fresh, after another look if that is needed, as that of Revocations.
func (o *Operators) ensure(ctx context.Context) error {
	if o.Fresh() == nil {
		return nil
	}
	o.looking.Lock()
	defer o.looking.Unlock()
	o.mu.RLock()
	tried := o.age.tried
	o.mu.RUnlock()
	if err := o.Fresh(); err == nil || time.Since(tried) < LookEvery {
		return err
	}
	_ = o.lookLocked(ctx) // Fresh says so
	return o.Fresh()
}

// read is look without its consequences. The caller holds looking.
func (o *Operators) read(ctx context.Context) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		e, at, err := o.cfg.Store.NextOperator(bounded, o.last)
		cancel()
		if err != nil || e == nil {
			return err
		}
		o.mu.Lock()
		o.entries[e.Name], o.places[e.Name] = e, Revision(at)
		o.mu.Unlock()
		o.unjournaled.Store(true)
		o.last = at
	}
}

// appendForgotten appends to the store what the journal has and the store has
// forgotten, and reads it. Until it has, nobody is let in. The caller holds
// looking.
//
// It may die at any step: what was appended is not forgotten any more.
func (o *Operators) appendForgotten(ctx context.Context) error {
	if o.cfg.Journal == nil {
		return nil
	}
	appended := false
	for _, e := range o.cfg.Journal.Operators() {
		if !o.named(e.Name).moment().forgets(e.moment()) {
			continue
		}
		o.cfg.Log.WarnContext(ctx, "store has forgotten what the journal says of an operator, it is appended again",
			"operator", e.Name, "role", e.Role, "removed", e.Removed, "by", e.By, "why", e.Why)
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		_, err := o.cfg.Store.PutOperator(bounded, e, o.after(e))
		cancel()
		if err != nil {
			return err
		}
		appended = true
	}
	if !appended {
		return nil
	}
	return o.read(ctx)
}

// put writes an entry to the store, puts it in force in this process and journals it. It gets
// its time here, which is after those of all that are known about the name.
func (o *Operators) put(ctx context.Context, e *OperatorEntry, now time.Time) error {
	o.putting.Lock()
	defer o.putting.Unlock()
	if err := o.look(ctx); err != nil && !e.Removed {
		return err
	}
	after := o.after(e)
	e.At = o.named(e.Name).moment().next(now)
	if err := e.Check(); err != nil {
		return err
	}
	if _, err := o.cfg.Store.PutOperator(ctx, e, after); err != nil {
		return changedMeanwhile(err)
	}
	if err := o.look(ctx); err != nil {
		return err
	}
	return o.writeLocked()
}

// write is that of [Signers].
func (o *Operators) write() error {
	o.putting.Lock()
	defer o.putting.Unlock()
	return o.writeLocked()
}

// writeLocked is write for callers that hold putting.
func (o *Operators) writeLocked() error {
	if o.cfg.Journal == nil || !o.unjournaled.Swap(false) {
		return nil
	}
	journaled := make(map[string]*OperatorEntry)
	for _, e := range o.cfg.Journal.Operators() {
		journaled[e.Name] = e
	}
	o.mu.RLock()
	entries := maps.Clone(o.entries)
	o.mu.RUnlock()
	return journalLacking(entries, journaled, o.cfg.Journal.AppendOperator)
}

// after is the place behind which an entry may be written. A removal counts whatever
// others have written; who gives trust must know of every removal, or a process that was
// stopped on the way would undo it.
func (o *Operators) after(e *OperatorEntry) Revision {
	if e.Removed {
		return AnyRevision
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.places[e.Name]
}
