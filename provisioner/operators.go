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

	// StoreBroken is that of [Config]. Optional.
	StoreBroken func() error

	// Log is optional; discards by default.
	Log *slog.Logger
}

// Operators are those of the store, as this process has read them. It is safe
// for concurrent use. Until they have been read nobody is one.
type Operators struct {
	cfg OperatorsConfig

	putting sync.Mutex // one change at a time

	unjournaled atomic.Bool // the journal may lack an entry that the store has
	untold      untold

	looking sync.Mutex // one look at a time
	last    Sequence   // guarded by looking
	even    bool       // guarded by looking: the store has what the journal has

	mu      sync.RWMutex
	age     age                       // guarded by mu
	entries map[string]*OperatorEntry // guarded by mu: the newest of each name
	places  map[string]Revision       // guarded by mu: where in the store that is
	refused map[string]bool           // guarded by mu: the store did not take what the journal has last
	shown   map[string]bool           // guarded by mu: its newest may not be on the store's disk
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
	if cfg.StoreBroken == nil {
		cfg.StoreBroken = func() error { return nil }
	}
	return &Operators{cfg: cfg, entries: make(map[string]*OperatorEntry), places: make(map[string]Revision), refused: make(map[string]bool), shown: make(map[string]bool)}, nil
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

// stored reports whether what is known of a name is on the store's disk.
func (o *Operators) stored(name string) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return !o.shown[name]
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
//
// What a broken store shows may not be on its disk: as with signers, it has no
// place until a restart shows it again, and only removals count meanwhile.
func (o *Operators) read(ctx context.Context) error {
	began := time.Now()
	for after := o.last; ; {
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		e, at, err := o.cfg.Store.NextOperator(bounded, after)
		cancel()
		if err == nil && e == nil && o.even && o.cfg.StoreBroken() == nil && after == o.last {
			o.untold.read(began)
		}
		if err != nil || e == nil {
			return err
		}
		kept := o.cfg.StoreBroken() == nil && after == o.last
		if kept || e.Removed {
			o.mu.Lock()
			o.entries[e.Name], o.shown[e.Name] = e, !kept
			o.unjournaled.Store(true)
			if kept {
				o.places[e.Name] = Revision(at)
			}
			o.mu.Unlock()
		}
		if kept {
			o.last = at
			o.untold.thereEntry(e)
		}
		after = at
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

// put writes an entry, puts it in force in this process and tells of it. It gets its time
// here, which is after those of all that are known about the name. The journal
// comes first, but of a name that the store does not have, or as removed: see that of [Signers].
func (o *Operators) put(ctx context.Context, e *OperatorEntry, now time.Time, tell func()) error {
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
	before := o.named(e.Name)
	added := !e.Removed && (before == nil || before.Removed)
	if !added {
		o.journal(ctx, e)
	}
	return changedMeanwhile(o.untold.writeEntry(e, tell, func() error {
		if _, err := o.cfg.Store.PutOperator(ctx, e, after); err != nil {
			if notTaken(err) && !added && !e.Removed { // a removal stands
				o.wasRefused(ctx, e.Name)
			}
			return err
		}
		if added {
			o.journal(ctx, e)
		}
		return o.look(ctx)
	}))
}

// journal journals an entry. Who is removed must not stay for want of a disk: the store
// has it.
func (o *Operators) journal(ctx context.Context, e *OperatorEntry) {
	if o.cfg.Journal == nil {
		return
	}
	if err := o.cfg.Journal.AppendOperator(e); err != nil {
		o.cfg.Log.ErrorContext(ctx, "operator not in the journal, a restored store would forget it", "operator", e.Name, "err", err)
	}
}

// wasRefused is that of [Signers].
func (o *Operators) wasRefused(ctx context.Context, name string) {
	if o.cfg.Journal == nil {
		return
	}
	o.mu.Lock()
	o.refused[name] = true
	o.mu.Unlock()
	o.unjournaled.Store(true)
	if o.look(ctx) == nil {
		o.writeLocked(ctx)
	}
}

// write is that of [Signers].
func (o *Operators) write(ctx context.Context) {
	if o.cfg.Journal == nil || !o.unjournaled.Swap(false) {
		return
	}
	o.putting.Lock()
	defer o.putting.Unlock()
	o.writeLocked(ctx)
}

// writeLocked is write for callers that hold putting.
func (o *Operators) writeLocked(ctx context.Context) {
	journaled := make(map[string]*OperatorEntry)
	for _, e := range o.cfg.Journal.Operators() {
		journaled[e.Name] = e
	}
	o.mu.RLock()
	entries := maps.Clone(o.entries)
	maps.DeleteFunc(journaled, func(k string, _ *OperatorEntry) bool { return o.refused[k] })
	o.mu.RUnlock()
	missed, err := journalLacking(entries, journaled, o.cfg.Journal.AppendOperator)
	o.mu.Lock()
	maps.DeleteFunc(o.refused, func(k string, _ bool) bool { return entries[k] != nil && missed[k] == nil })
	o.mu.Unlock()
	if len(missed) > 0 {
		o.unjournaled.Store(true)
		o.cfg.Log.DebugContext(ctx, "operators still not in the journal", "entries", len(missed), "err", err)
	}
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
