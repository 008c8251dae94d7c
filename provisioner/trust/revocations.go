package trust

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"muster/internal/wire"
	"muster/jwt"
)

// A Journal keeps revocations outside of the store. It is safe for concurrent use.
type Journal interface {
	// Append writes the new ones of entries and syncs. After an error any of them may be on disk.
	Append(entries ...*Revocation) error

	// Entries returns all entries in the order of writing.
	Entries() []*Revocation
}

// RevocationsConfig configures [NewRevocations].
type RevocationsConfig struct {
	Log Log[*Revocation]

	// Without a Journal a restored store lacks the revocations since the backup.
	Journal Journal

	// Applied is called with each entry. It must not block. Optional.
	Applied func(*Revocation)
}

// Revocations holds all revocations in memory. It is safe for concurrent use.
type Revocations struct {
	cfg RevocationsConfig

	journalMu sync.Mutex // keeps the journal in the log's order

	mu          sync.RWMutex  // guards the rest
	unjournaled []*Revocation // in the log's order
	ids         map[string]struct{}
	tokens      map[jwt.TokenID]*Revocation
	serials     map[string]*Revocation   // the first entry
	keys        map[string][]*Revocation // by key hash, until the node is retired
	nodes       map[wire.Identity]nodeEntries
	listed      map[string][]listedCertificate // by issuer; only appended to
	unreadable  error
}

type nodeEntries struct {
	newest       Revision
	sinceRetired []*Revocation // from the last retirement on
	handovers    []*Revocation // after the last retirement
}

func (n nodeEntries) newestEntry() *Revocation {
	if len(n.sinceRetired) == 0 {
		return nil
	}
	return n.sinceRetired[len(n.sinceRetired)-1]
}

type listedCertificate struct {
	RevokedCertificate
	by *Revocation
}

// NewRevocations reads the log.
func NewRevocations(cfg RevocationsConfig) *Revocations {
	if cfg.Applied == nil {
		cfg.Applied = func(*Revocation) {}
	}
	r := &Revocations{
		cfg:     cfg,
		ids:     make(map[string]struct{}),
		tokens:  make(map[jwt.TokenID]*Revocation),
		serials: make(map[string]*Revocation),
		keys:    make(map[string][]*Revocation),
		nodes:   make(map[wire.Identity]nodeEntries),
		listed:  make(map[string][]listedCertificate),
	}
	cfg.Log.Watch(r.apply)
	return r
}

// Err returns why a revocation cannot be read, or nil.
func (r *Revocations) Err() error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.unreadable
}

// Token returns the entry that revokes the token, or nil.
func (r *Revocations) Token(id jwt.TokenID) *Revocation {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.tokens[id]
}

// Tokens returns the entries that revoke tokens, oldest first.
func (r *Revocations) Tokens() []*Revocation {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.tokens), func(a, b *Revocation) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Token, b.Token))
	})
}

// Key returns the entry that revokes the key for every name, or nil.
func (r *Revocations) Key(hash string) *Revocation {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if by := r.keys[hash]; len(by) > 0 {
		return by[len(by)-1]
	}
	return nil
}

// Serial returns the entry that revokes the certificate, or nil.
func (r *Revocations) Serial(serial string) *Revocation {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.serials[serial]
}

// Knows reports whether the entry with this id was read.
func (r *Revocations) Knows(id string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, known := r.ids[id]
	return known
}

// About returns the newest revocation or retirement of an identity, or nil, and its revision for [Revocations.Put].
func (r *Revocations) About(id wire.Identity) (*Revocation, Revision) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := r.nodes[id]
	return n.newestEntry(), n.newest
}

// Outstanding returns the revocation that the identity's record does not show yet, or nil. followed is the id of the
// newest entry that the record shows.
func (r *Revocations) Outstanding(id wire.Identity, followed string) *Revocation {
	e, _ := r.About(id)
	if e == nil || e.Kind == RetiredNode || e.ID == followed {
		return nil
	}
	return e
}

// Lost returns the hand-over by which the key lost the identity, or nil.
func (r *Revocations) Lost(id wire.Identity, hash string) *Revocation {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, e := range slices.Backward(r.nodes[id].handovers) {
		if e.To == hash {
			return nil
		}
		if slices.Contains(e.Keys, hash) {
			return e
		}
	}
	return nil
}

// Lacks reports whether a certificate or key of want is not revoked yet.
func (r *Revocations) Lacks(want *Revocation) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, c := range want.Certificates {
		if r.serials[c.Serial] == nil {
			return true
		}
	}
	for _, k := range want.Keys {
		named := func(e *Revocation) bool { return slices.Contains(e.Keys, k) }
		if !slices.ContainsFunc(r.nodes[want.Node].sinceRetired, named) {
			return true
		}
	}
	return false
}

func (r *Revocations) certificates(issuer string) []listedCertificate {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clip(r.listed[issuer]) // elements are never changed
}

// Put writes an entry and returns when it is in force and in the journal. Errors include [ErrConflict] and
// [ErrUnacknowledged].
func (r *Revocations) Put(ctx context.Context, e *Revocation, expected Revision) error {
	if err := e.Check(); err != nil {
		return err
	}
	_, err := r.cfg.Log.Put(ctx, e.LogKey(), e, expected)
	switch {
	case errors.Is(err, ErrConflict), errors.Is(err, ErrStoreFull):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnacknowledged, err)
	}
	return r.WriteJournal()
}

// WriteJournal writes all applied entries, in the log's order.
func (r *Revocations) WriteJournal() error {
	r.journalMu.Lock()
	defer r.journalMu.Unlock()
	r.mu.Lock()
	entries := r.unjournaled
	r.unjournaled = nil
	r.mu.Unlock()
	if len(entries) == 0 || r.cfg.Journal == nil {
		return nil
	}
	if err := r.cfg.Journal.Append(entries...); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.unjournaled = append(entries, r.unjournaled...)
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Restore writes entries of the journal that the log lacks, and the reverse. Repeating it is harmless.
func (r *Revocations) Restore(ctx context.Context) error {
	if r.cfg.Journal == nil {
		return nil
	}
	for _, e := range r.cfg.Journal.Entries() {
		if err := r.putAgain(ctx, e); err != nil {
			return fmt.Errorf("revocation %s of the journal: %w", e.ID, err)
		}
	}
	return r.WriteJournal()
}

func (r *Revocations) putAgain(ctx context.Context, e *Revocation) error {
	for {
		if _, found := r.cfg.Log.Get(e.LogKey()); found {
			return nil
		}
		_, newest := r.About(e.Node)
		if e.Kind == RevokedService {
			newest = 0 // it has a key of its own
		}
		if err := r.Put(ctx, e, newest); !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

func (r *Revocations) apply(_ string, e Entry[*Revocation]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := e.Value
	if e.Unread != nil {
		r.unreadable = e.Unread
		return
	}
	if r.cfg.Journal != nil {
		r.unjournaled = append(r.unjournaled, entry)
	}
	r.ids[entry.ID] = struct{}{}
	defer r.cfg.Applied(entry)
	switch entry.Kind {
	case RevokedToken:
		r.tokens[entry.Token] = entry
		return
	case RemovedSigner, RemovedOperator:
		return // see [Ended]
	}
	for _, c := range entry.Certificates {
		if r.serials[c.Serial] == nil {
			r.serials[c.Serial] = entry
			r.listed[c.Issuer] = append(r.listed[c.Issuer], listedCertificate{c, entry})
		}
	}
	if entry.Kind == RevokedService {
		return // its node and their keys go on
	}
	node := r.nodes[entry.Node]
	node.newest = e.Revision
	switch entry.Kind {
	case HandedOver:
		node.handovers = append(node.handovers, entry)
		r.nodes[entry.Node] = node
		return
	case RetiredNode:
		r.lift(node.sinceRetired)
		node.sinceRetired, node.handovers = nil, nil
	}
	for _, k := range entry.Keys {
		r.keys[k] = append(r.keys[k], entry)
	}
	node.sinceRetired = append(node.sinceRetired, entry)
	r.nodes[entry.Node] = node
}

// The caller holds mu.
func (r *Revocations) lift(entries []*Revocation) {
	for _, e := range entries {
		for _, k := range e.Keys {
			r.keys[k] = slices.DeleteFunc(r.keys[k], func(by *Revocation) bool { return by.ID == e.ID })
			if len(r.keys[k]) == 0 {
				delete(r.keys, k)
			}
		}
	}
}
