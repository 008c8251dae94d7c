package trust

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"muster/jwt"
	"muster/provisioner/ca"
)

// SignersConfig configures [NewSigners].
type SignersConfig struct {
	// File has the signers of provisioner.yaml. Optional.
	File []jwt.Signer

	Entries     Log[*SignerEntry] // required
	Revocations Log[*Revocation]  // required

	// Required.
	Now func() time.Time
}

// Signers are the trusted signers. It is safe for concurrent use.
type Signers struct {
	cfg  SignersConfig
	file map[jwt.SignerID]jwt.Signer // read-only

	mu       sync.Mutex
	stale    bool          // guarded by mu
	verifier *jwt.Verifier // guarded by mu; nil without trusted signers
}

// NewSigners validates cfg.
func NewSigners(cfg SignersConfig) (*Signers, error) {
	if len(cfg.File) > 0 {
		if _, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: cfg.File, Now: cfg.Now}); err != nil {
			return nil, err
		}
	}
	s := &Signers{cfg: cfg, file: make(map[jwt.SignerID]jwt.Signer), stale: true}
	for _, f := range cfg.File {
		id, err := jwt.Fingerprint(f.Key)
		if err != nil {
			return nil, err
		}
		s.file[id] = f
	}
	cfg.Entries.Watch(func(string, Entry[*SignerEntry]) { s.invalidate() })
	cfg.Revocations.Watch(func(_ string, e Entry[*Revocation]) {
		if e.Value == nil || e.Value.Kind == RemovedSigner {
			s.invalidate()
		}
	})
	return s, nil
}

func (s *Signers) invalidate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = true
}

// VerifyFrom is [jwt.Verifier.VerifyFrom]. A removed signer counts as unknown.
func (s *Signers) VerifyFrom(text string, budget jwt.Budget) (*jwt.Verified, error) {
	v, err := s.current()
	if err != nil {
		return nil, err
	}
	return v.VerifyFrom(text, budget)
}

// current makes a new verifier, with an empty cache, if the signers have changed.
func (s *Signers) current() (*jwt.Verifier, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stale {
		s.verifier = nil
		if trusted := s.trustedSigners(); len(trusted) > 0 {
			v, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: trusted, Now: s.cfg.Now})
			if err != nil {
				return nil, err
			}
			s.verifier = v
		}
		s.stale = false
	}
	if s.verifier == nil {
		return nil, fmt.Errorf("%w: every signer has been removed", jwt.ErrUnknownSigner)
	}
	return s.verifier, nil
}

func (s *Signers) trustedSigners() []jwt.Signer {
	signers := maps.Clone(s.file)
	for key, e := range s.cfg.Entries.All() {
		if e.Value == nil {
			continue
		}
		if signer, err := e.Value.signer(); err == nil {
			signers[jwt.SignerID(key)] = signer
		}
	}
	maps.DeleteFunc(signers, func(id jwt.SignerID, _ jwt.Signer) bool { return s.Ended(id) != nil })
	return slices.Collect(maps.Values(signers))
}

// Ended returns the revocation that ended a signer, or nil. An unreadable entry ends its signer, too.
func (s *Signers) Ended(id jwt.SignerID) *Revocation {
	entry := string(id)
	if e, found := s.cfg.Entries.Get(entry); e.Unread != nil {
		return UnreadEntry(RemovedSigner, entry, e.At)
	} else if found {
		entry = e.Value.Entry
	}
	return Ended(s.cfg.Revocations, RemovedSigner, entry)
}

// UnreadEntry returns a revocation that stands for an unreadable entry.
func UnreadEntry(kind RevocationKind, name string, at time.Time) *Revocation {
	return &Revocation{
		Kind: kind,
		Name: name,
		At:   at.UTC().Truncate(time.Second),
		By:   CauseUnread.By,
		Why:  CauseUnread.Why,
	}
}

// List returns all signers by name.
func (s *Signers) List() []SignerInfo {
	known := maps.Clone(s.file)
	for id := range s.cfg.Entries.All() {
		known[jwt.SignerID(id)] = s.file[jwt.SignerID(id)]
	}
	var list []SignerInfo
	for id, signer := range known {
		_, inFile := s.file[id]
		i := SignerInfo{ID: id, Source: SignerOfFile, InFile: inFile}
		if e, found := s.cfg.Entries.Get(string(id)); found {
			i.Source = SignerOfStore
			if v := e.Value; v != nil {
				signer, _ = v.signer()
				i.By, i.Why, i.At = v.By, v.Why, v.At
			}
		}
		if ended := s.Ended(id); ended != nil {
			i.Source, i.Removed, i.By, i.Why, i.At = SignerOfStore, true, ended.By, ended.Why, ended.At
		}
		i.Name, i.NotBefore, i.NotAfter = signer.Name, signer.NotBefore, signer.NotAfter
		i.Sites, i.Identities = slices.Clone(signer.Sites), slices.Clone(signer.Identities)
		i.KeyType, _ = ca.KeyType(signer.Key) // empty for a key type that nodes may not have
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b SignerInfo) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// Trusted returns the number of trusted signers.
func (s *Signers) Trusted() int { return len(s.trustedSigners()) }

// CheckName returns [ErrState] if another trusted signer has the name.
func (s *Signers) CheckName(e *SignerEntry) error {
	for _, i := range s.List() {
		if i.Name == e.Name && i.ID != e.ID && !i.Removed {
			return fmt.Errorf("%w: signer %s already has this name", ErrState, i.ID)
		}
	}
	return nil
}
