package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster/jwt"
	"muster/provisioner/ca"
)

// A TokenVerifier authenticates tokens, as [jwt.Verifier] does.
type TokenVerifier interface {
	// VerifyFrom returns what a token says. Its errors are those of
	// [jwt.Verifier.VerifyFrom], and [ErrRevocationsUnknown].
	VerifyFrom(text string, budget jwt.Budget) (*jwt.Verified, error)
}

// SignersConfig configures [NewSigners].
type SignersConfig struct {
	// File are the signers of provisioner.yaml, no two with the same key. None
	// is allowed: then only those of the store count.
	File []jwt.Signer

	Store SignerStore // required

	// Journal keeps changes outside the store. Optional.
	Journal Journal

	// Log is optional; discards by default.
	Log *slog.Logger

	// Now is the clock. Optional; defaults to [time.Now].
	Now func() time.Time
}

// Signers are all whose tokens are good: those of this provisioner's
// configuration and those of the store, whose word counts. It is safe for
// concurrent use. Until the store's have been read it accepts no token, for one
// of the file's may have been removed.
type Signers struct {
	cfg  SignersConfig
	file map[jwt.SignerID]jwt.Signer // read-only

	putting sync.Mutex // one change at a time

	looking sync.Mutex // one look at a time
	last    Sequence   // guarded by looking
	even    bool       // guarded by looking: the store has what the journal has
	behind  bool       // guarded by looking: what was read is not in the verifier yet

	verifier atomic.Pointer[jwt.Verifier] // nil while nobody is trusted

	unjournaled atomic.Bool // the journal may lack an entry that the store has

	mu      sync.RWMutex
	age     age                           // guarded by mu
	entries map[jwt.SignerID]*SignerEntry // guarded by mu: the newest of each
	places  map[jwt.SignerID]Revision     // guarded by mu: where in the store that is
}

// NewSigners checks cfg and returns the signers, of which none is accepted yet.
// It reads nothing from the store.
func NewSigners(cfg SignersConfig) (*Signers, error) {
	if cfg.Store == nil {
		return nil, errors.New("signers: no store")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if len(cfg.File) > 0 {
		if _, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: cfg.File, Now: cfg.Now}); err != nil {
			return nil, err
		}
	}
	s := &Signers{cfg: cfg, file: make(map[jwt.SignerID]jwt.Signer), entries: make(map[jwt.SignerID]*SignerEntry), places: make(map[jwt.SignerID]Revision)}
	for _, f := range cfg.File {
		id, err := jwt.Fingerprint(f.Key)
		if err != nil {
			return nil, err
		}
		s.file[id] = f
	}
	return s, nil
}

// VerifyFrom implements [TokenVerifier]. A token of a signer that was removed is
// one of an unknown signer.
func (s *Signers) VerifyFrom(text string, budget jwt.Budget) (*jwt.Verified, error) {
	if v := s.verifier.Load(); v != nil {
		return v.VerifyFrom(text, budget)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.age.began.IsZero() {
		return nil, s.age.check("signers")
	}
	return nil, fmt.Errorf("%w: every signer has been removed", jwt.ErrUnknownSigner)
}

// removed reports whether a signer was removed, as far as this process knows.
func (s *Signers) removed(id jwt.SignerID) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.entries[id]
	return e != nil && e.Removed
}

// Fresh returns nil while this process knows every change of signers that was
// in the store [MaxAge] ago, and an error that wraps [ErrRevocationsUnknown]
// else.
func (s *Signers) Fresh() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.age.check("signers")
}

// look reads what is new in the store and trusts accordingly. An entry that is
// not understood is an error at every look: what it says could be the removal
// of anybody.
func (s *Signers) look(ctx context.Context) error {
	s.looking.Lock()
	defer s.looking.Unlock()
	return s.lookLocked(ctx)
}

// lookLocked is look for callers that hold looking.
func (s *Signers) lookLocked(ctx context.Context) error {
	began := time.Now()
	changed, err := s.read(ctx)
	if err == nil && !s.even {
		var more bool
		more, err = s.appendForgotten(ctx)
		changed, s.even = changed || more, err == nil
	}
	s.behind = s.behind || changed // also of a look that fails now: the next one reads only what follows
	if err == nil && (s.behind || s.verifier.Load() == nil) {
		err = s.trust()
		s.behind = err != nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.age.looked(began, err)
	return err
}

// ensure is Fresh, after another look if that is needed, as that of Revocations.
func (s *Signers) ensure(ctx context.Context) error {
	if s.Fresh() == nil {
		return nil
	}
	s.looking.Lock()
	defer s.looking.Unlock()
	s.mu.RLock()
	tried := s.age.tried
	s.mu.RUnlock()
	if err := s.Fresh(); err == nil || time.Since(tried) < LookEvery {
		return err
	}
	_ = s.lookLocked(ctx) // Fresh says so
	return s.Fresh()
}

// read is look without its consequences. The caller holds looking.
func (s *Signers) read(ctx context.Context) (changed bool, err error) {
	for {
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		e, at, err := s.cfg.Store.NextSigner(bounded, s.last)
		cancel()
		if err != nil || e == nil {
			return changed, err
		}
		s.mu.Lock()
		s.entries[e.ID], s.places[e.ID] = e, Revision(at)
		s.mu.Unlock()
		s.unjournaled.Store(true)
		s.last, changed = at, true
	}
}

// trust puts another verifier in place, for the signers that count now. What the
// one before remembers goes with it.
func (s *Signers) trust() error {
	s.mu.RLock()
	signers := make(map[jwt.SignerID]jwt.Signer)
	maps.Copy(signers, s.file)
	var errs []error
	for id, e := range s.entries {
		delete(signers, id)
		if e.Removed {
			continue
		}
		signer, err := e.signer()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		signers[id] = signer
	}
	s.mu.RUnlock()
	if len(errs) > 0 {
		s.verifier.Store(nil)
		return errors.Join(errs...)
	}
	if len(signers) == 0 {
		s.verifier.Store(nil)
		return nil
	}
	v, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: slices.Collect(maps.Values(signers)), Now: s.cfg.Now})
	if err != nil {
		s.verifier.Store(nil)
		return err
	}
	s.verifier.Store(v)
	return nil
}

// List returns every signer that this process knows, removed ones too, by name.
func (s *Signers) List() []SignerInfo {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []SignerInfo
	describe := func(i SignerInfo, signer jwt.Signer) {
		i.Name, i.NotBefore, i.NotAfter = signer.Name, signer.NotBefore, signer.NotAfter
		i.Sites, i.Identities = slices.Clone(signer.Sites), slices.Clone(signer.Identities)
		i.KeyType, _ = ca.KeyType(signer.Key) // one that no node may have has no name there
		list = append(list, i)
	}
	for id, f := range s.file {
		if s.entries[id] == nil {
			describe(SignerInfo{ID: id, Source: SignerOfFile, InFile: true}, f)
		}
	}
	for id, e := range s.entries {
		f, inFile := s.file[id]
		i := SignerInfo{ID: id, Source: SignerOfStore, InFile: inFile, Removed: e.Removed, By: e.By, Why: e.Why, At: e.At}
		signer, err := e.signer()
		if e.Removed || err != nil {
			signer = f // the zero one if it is in no file of ours
			if signer.Name == "" {
				signer.Name = e.Name
			}
		}
		describe(i, signer)
	}
	slices.SortFunc(list, func(a, b SignerInfo) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return list
}

// named returns a signer that counts and has the name, and another key than id.
func (s *Signers) named(name string, id jwt.SignerID) *SignerInfo {
	for _, i := range s.List() {
		if i.Name == name && i.ID != id && !i.Removed {
			return &i
		}
	}
	return nil
}

// trusted returns how many signers count.
func (s *Signers) trusted() int {
	n := 0
	for _, i := range s.List() {
		if !i.Removed {
			n++
		}
	}
	return n
}

// entry returns the newest entry about a signer, nil if there is none.
func (s *Signers) entry(id jwt.SignerID) *SignerEntry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.entries[id]
}

// appendForgotten is that of [Operators]: until it has succeeded no token is good.
func (s *Signers) appendForgotten(ctx context.Context) (changed bool, err error) {
	if s.cfg.Journal == nil {
		return false, nil
	}
	for _, e := range s.cfg.Journal.Signers() {
		if !s.entry(e.ID).moment().forgets(e.moment()) {
			continue
		}
		s.cfg.Log.WarnContext(ctx, "store has forgotten what the journal says of a signer, it is appended again",
			"signer", e.ID, "name", e.Name, "removed", e.Removed, "by", e.By, "why", e.Why)
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		_, err := s.cfg.Store.PutSigner(bounded, e, s.after(e))
		cancel()
		if err != nil {
			return changed, err
		}
		changed = true
	}
	if !changed {
		return false, nil
	}
	return s.read(ctx)
}

// put writes an entry to the store, puts it in force in this process and journals it. It
// gets its time here, as that of [Operators]. An entry that is not in the journal yet when the process
// ends is journaled by the next start. The
// error is [ErrState] if another signer has the name, of all that are in the store by now.
func (s *Signers) put(ctx context.Context, e *SignerEntry, now time.Time) error {
	s.putting.Lock()
	defer s.putting.Unlock()
	if err := s.look(ctx); err != nil && !e.Removed {
		return err
	}
	if other := s.named(e.Name, e.ID); other != nil && !e.Removed {
		return fmt.Errorf("%w: signer %s has that name", ErrState, other.ID)
	}
	after := s.after(e)
	e.At = s.entry(e.ID).moment().next(now)
	if err := e.Check(); err != nil {
		return err
	}
	if _, err := s.cfg.Store.PutSigner(ctx, e, after); err != nil {
		return changedMeanwhile(err)
	}
	if err := s.look(ctx); err != nil {
		return err
	}
	return s.writeLocked()
}

// notTaken reports whether a store has certainly not made a write, and will not: who asked
// for it is told no.
func notTaken(err error) bool { return errors.Is(err, ErrConflict) || errors.Is(err, ErrStoreFull) }

// write journals what other provisioners have put.
func (s *Signers) write() error {
	s.putting.Lock() // or what is put now would be in the journal before what it follows
	defer s.putting.Unlock()
	return s.writeLocked()
}

// writeLocked is write for callers that hold putting.
func (s *Signers) writeLocked() error {
	if s.cfg.Journal == nil || !s.unjournaled.Swap(false) {
		return nil
	}
	journaled := make(map[jwt.SignerID]*SignerEntry)
	for _, e := range s.cfg.Journal.Signers() {
		journaled[e.ID] = e
	}
	s.mu.RLock()
	entries := maps.Clone(s.entries)
	s.mu.RUnlock()
	return journalLacking(entries, journaled, s.cfg.Journal.AppendSigner)
}

// after is that of [Operators].
func (s *Signers) after(e *SignerEntry) Revision {
	if e.Removed {
		return AnyRevision
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.places[e.ID]
}

// changedMeanwhile says to an operator what a conflict means; nil stays nil.
func changedMeanwhile(err error) error {
	if errors.Is(err, ErrConflict) {
		return fmt.Errorf("%w: somebody else has changed it meanwhile: look at it, and ask again (%w)", ErrState, err)
	}
	return err
}
