package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/jwt"
	"muster/provisioner/ca"
	"muster/provisioner/trust"
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

	Entries Log[*SignerEntry] // of the store; required

	// Now is the clock. Optional; defaults to [time.Now].
	Now func() time.Time
}

// Signers are all whose tokens are good: those of this provisioner's
// configuration and those of the store, whose word counts. It is safe for
// concurrent use.
type Signers struct {
	cfg  SignersConfig
	file map[jwt.SignerID]jwt.Signer // read-only

	mu       sync.Mutex
	changed  bool          // guarded by mu: verifier is that of before an entry
	verifier *jwt.Verifier // guarded by mu; nil while no signer is trusted
}

// NewSigners checks cfg and returns the signers.
func NewSigners(cfg SignersConfig) (*Signers, error) {
	if cfg.Entries == nil {
		return nil, errors.New("signers: no entries")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if len(cfg.File) > 0 {
		if _, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: cfg.File, Now: cfg.Now}); err != nil {
			return nil, err
		}
	}
	s := &Signers{cfg: cfg, file: make(map[jwt.SignerID]jwt.Signer), changed: true}
	for _, f := range cfg.File {
		id, err := jwt.Fingerprint(f.Key)
		if err != nil {
			return nil, err
		}
		s.file[id] = f
	}
	cfg.Entries.Watch(func(string, Entry[*SignerEntry]) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed = true
	})
	return s, nil
}

// VerifyFrom implements [TokenVerifier]. A token of a signer that was removed is
// one of an unknown signer.
func (s *Signers) VerifyFrom(text string, budget jwt.Budget) (*jwt.Verified, error) {
	v, err := s.current()
	if err != nil {
		return nil, err
	}
	return v.VerifyFrom(text, budget)
}

// current returns the verifier for the signers that count now. What the one before remembers
// goes with it.
func (s *Signers) current() (*jwt.Verifier, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed {
		s.changed, s.verifier = false, nil
		trusted := s.trustedSigners()
		if len(trusted) > 0 {
			v, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: trusted, Now: s.cfg.Now})
			if err != nil {
				s.changed = true
				return nil, err
			}
			s.verifier = v
		}
	}
	if s.verifier == nil {
		return nil, fmt.Errorf("%w: every signer has been removed", jwt.ErrUnknownSigner)
	}
	return s.verifier, nil
}

// trustedSigners returns the signers that count: an entry of the store counts before the
// configuration, and one that cannot be read removes its signer.
func (s *Signers) trustedSigners() []jwt.Signer {
	signers := maps.Clone(s.file)
	for key, e := range s.cfg.Entries.All() {
		id := jwt.SignerID(key)
		delete(signers, id)
		if e.Value == nil || e.Value.Removed {
			continue
		}
		if signer, err := e.Value.signer(); err == nil { // which was checked
			signers[id] = signer
		}
	}
	return slices.Collect(maps.Values(signers))
}

// removed reports whether a signer was removed, as far as this process knows.
func (s *Signers) removed(id jwt.SignerID) bool {
	e := s.entry(id)
	return e != nil && e.Removed
}

// entry returns the newest entry about a signer, nil if there is none. One that cannot be read is
// a removal.
func (s *Signers) entry(id jwt.SignerID) *SignerEntry {
	e, found := s.cfg.Entries.Get(string(id))
	if !found {
		return nil
	}
	return signerOf(string(id), e)
}

func signerOf(key string, e Entry[*SignerEntry]) *SignerEntry {
	if e.Unread == nil {
		return e.Value
	}
	return &SignerEntry{Schema: SignerSchema, ID: jwt.SignerID(key), Removed: true, By: trust.CauseUnread.By, Why: trust.CauseUnread.Why, At: e.At.UTC().Truncate(time.Second)}
}

// List returns every signer that this process knows, removed ones too, by name.
func (s *Signers) List() []SignerInfo {
	var list []SignerInfo
	describe := func(i SignerInfo, signer jwt.Signer) {
		i.Name, i.NotBefore, i.NotAfter = signer.Name, signer.NotBefore, signer.NotAfter
		i.Sites, i.Identities = slices.Clone(signer.Sites), slices.Clone(signer.Identities)
		i.KeyType, _ = ca.KeyType(signer.Key) // one that no node may have has no name there
		list = append(list, i)
	}
	for id, f := range s.file {
		if s.entry(id) == nil {
			describe(SignerInfo{ID: id, Source: SignerOfFile, InFile: true}, f)
		}
	}
	for key, entry := range s.cfg.Entries.All() {
		e := signerOf(key, entry)
		id := e.ID
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

// put writes an entry. It gets its time here, which is after that of the newest about the
// signer. A removal counts whatever was written before it. The error is [ErrState] if another
// signer has the name, of all that are known here, or if the signer was changed meanwhile.
func (s *Signers) put(ctx context.Context, e *SignerEntry, now time.Time) error {
	if other := s.named(e.Name, e.ID); other != nil && !e.Removed {
		return fmt.Errorf("%w: signer %s has that name", ErrState, other.ID)
	}
	return putTrust(ctx, s.cfg.Entries, e, e.Removed, func(before trustMoment) { e.At = before.next(now) })
}

// putTrust writes an entry about a signer or an operator. One that takes trust away is decided
// anew where another process writes first; one that gives trust must know of every removal.
func putTrust[E trustEntry](ctx context.Context, log Log[E], e E, removed bool, at func(before trustMoment)) error {
	first, _ := log.Get(e.LogKey())
	_, err := trust.Change(ctx, log, e.LogKey(), func(newest Entry[E]) (E, error) {
		if !removed && newest.Revision != first.Revision {
			return e, ErrConflict
		}
		before := trustMoment{}
		if newest.Unread == nil {
			before = newest.Value.moment()
		}
		at(before)
		return e, nil
	})
	return changedMeanwhile(err)
}

// notTaken reports whether a store has certainly not made a write, and will not: who asked
// for it is told no.
func notTaken(err error) bool { return errors.Is(err, ErrConflict) || errors.Is(err, ErrStoreFull) }

// changedMeanwhile says to an operator what a conflict means; nil stays nil.
func changedMeanwhile(err error) error {
	if errors.Is(err, ErrConflict) {
		return fmt.Errorf("%w: somebody else has changed it meanwhile: look at it, and ask again (%w)", ErrState, err)
	}
	return err
}
