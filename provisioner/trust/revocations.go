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

// A Journal keeps revocations outside the store, so that a store that is restored from a backup
// gets them again. It is safe for concurrent use.
type Journal interface {
	// Append writes the entries that it does not have yet. They are on disk when it returns nil;
	// after an error none, some or all of them are.
	Append(entries ...*Revocation) error

	// Entries returns all entries in the order in which they were written.
	Entries() []*Revocation
}

// RevocationsConfig configures [NewRevocations].
type RevocationsConfig struct {
	Log Log[*Revocation] // required

	// Journal may be nil: then a store that is restored from a backup forgets what was revoked
	// since.
	Journal Journal

	// Applied is called with each entry, first with those that are there. It must not block.
	// Nil for none.
	Applied func(*Revocation)
}

// Revocations is what one process knows of the log of revocations. Anything that is asked of it
// is a lookup in memory. It is safe for concurrent use.
type Revocations struct {
	cfg RevocationsConfig

	journalMu sync.Mutex // one write to the journal at a time, so that they are in the log's order

	mu          sync.RWMutex                   // guards the rest
	unjournaled []*Revocation                  // applied and not in the journal, in the log's order
	ids         map[string]struct{}            // of all entries
	tokens      map[jwt.TokenID]*Revocation    // by token
	serials     map[string]*Revocation         // by certificate, the first entry that names it
	keys        map[string][]*Revocation       // by key hash, until lifted
	nodes       map[wire.Identity]nodeEntries  // by identity
	listed      map[string][]listedCertificate // by issuer, each certificate once; only appended to
	unreadable  error                          // why an entry cannot be read
}

// nodeEntries are the entries about one identity.
type nodeEntries struct {
	newest       Revision
	sinceRetired []*Revocation // the last retirement and the revocations after it, or all without one
	handovers    []*Revocation // the hand-overs after the last retirement
}

// standing returns the newest entry, nil without one.
func (n nodeEntries) newestEntry() *Revocation {
	if len(n.sinceRetired) == 0 {
		return nil
	}
	return n.sinceRetired[len(n.sinceRetired)-1]
}

// listedCertificate is a certificate for the CRL.
type listedCertificate struct {
	RevokedCertificate
	by *Revocation
}

// NewRevocations returns what the log has.
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

// Err returns why an entry cannot be read, nil if all can. It could be about any node or token.
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

// Tokens returns the entries that revoke tokens, the oldest first.
func (r *Revocations) Tokens() []*Revocation {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.tokens), func(a, b *Revocation) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Token, b.Token))
	})
}

// Key returns the entry that revokes the key with this hash, or nil. A key of
// a revoked node is revoked for every name, until the node is retired.
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

// Knows reports whether the entry with the id is in the log, as far as this process has read it.
func (r *Revocations) Knows(id string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, known := r.ids[id]
	return known
}

// About returns the newest revocation or retirement of an identity, nil without one, and the
// revision of the newest entry about it, which a decision names that [Revocations.Put] writes.
func (r *Revocations) About(id wire.Identity) (*Revocation, Revision) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := r.nodes[id]
	return n.newestEntry(), n.newest
}

// Outstanding returns the entry that keeps the identity out although its record, which has
// followed the entry with the id followed, does not say so; nil if there is none. An id that is
// not known comes before all entries, as none does.
func (r *Revocations) Outstanding(id wire.Identity, followed string) *Revocation {
	e, _ := r.About(id)
	if e == nil || e.Kind == RetiredNode || e.ID == followed {
		return nil
	}
	return e
}

// Lost returns the hand-over by which the key lost the identity, nil if it did not, or has it again.
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

// Lacks reports whether the entries since the identity was last free miss a certificate or a key
// that a revocation or retirement of it has to name.
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

// certificates returns the revoked certificates of an issuer. The list only grows.
func (r *Revocations) certificates(issuer string) []listedCertificate {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clip(r.listed[issuer]) // what is in it is never changed
}

// Put writes an entry that was decided on the expected revision, and returns when it is in force
// in this process and in its journal. [ErrConflict] means that another entry came first: decide
// anew. [ErrUnacknowledged] means that it may have been written: asking again is harmless.
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

// WriteJournal writes to the journal what was applied and is not in it, in the log's order.
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

// Restore writes to the log what the journal has and the log has not, in the journal's order: a
// store that was restored from a backup has forgotten that. What the journal lacks is written to
// it. Repeating it is harmless.
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

// putAgain writes an entry of the journal unless the log has it. Other provisioners do the same.
func (r *Revocations) putAgain(ctx context.Context, e *Revocation) error {
	for {
		if _, found := r.cfg.Log.Get(e.LogKey()); found {
			return nil
		}
		_, newest := r.About(e.Node)
		if err := r.Put(ctx, e, newest); !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// applied takes in an entry of the log.
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
		return // they are asked for by their keys, see [Ended]
	}
	for _, c := range entry.Certificates {
		if r.serials[c.Serial] == nil {
			r.serials[c.Serial] = entry
			r.listed[c.Issuer] = append(r.listed[c.Issuer], listedCertificate{c, entry})
		}
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

// lift takes back what entries say about keys. The caller holds mu.
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
