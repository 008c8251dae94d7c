package provisioner

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// Revocations is what one process knows of the log of revocations. Anything
// that is asked of it is a lookup in memory, which takes no store and no disk.
// It is safe for concurrent use.
type Revocations struct {
	store   RevocationStore
	journal Journal // nil without one
	log     *slog.Logger
	leftOut func(*Revocation)                                       // called with each retirement that waited here and is not appended; must not block
	owned   func(context.Context, wire.Identity) (time.Time, error) // [Record.Owned]; zero without a record

	looking sync.Mutex // one look at a time
	writing sync.Mutex // one write to the journal at a time
	last    Sequence   // guarded by looking: the newest entry that was read

	mu        sync.RWMutex                   // guards the rest
	age       age                            // of the last look
	through   Sequence                       // last, for readers
	known     map[string]Sequence            // place of every entry, by id
	tokens    map[jwt.TokenID]*Revocation    // the first entry about each
	serials   map[string]placed              // likewise
	keys      map[string][]*Revocation       // by key hash, until lifted
	nodes     map[wire.Identity][]placed     // since the identity was last free, pending ones last
	revoked   map[string][]placedCertificate // by issuer, in the order of the log, each certificate once; only added to
	pending   []pendingEntry                 // in force here, not in the store yet
	unwritten []*Revocation                  // not in the journal yet
	touched   map[wire.Identity]disposition  // have new entries
	tails     map[wire.Identity]Sequence     // of what the log has about each, entries that are in it twice too
}

// placed is an entry at its place in the log, pendingSequence as long as the
// store does not have it.
type placed struct {
	*Revocation
	at Sequence
}

// placedCertificate is a certificate for the CRL.
type placedCertificate struct {
	RevokedCertificate
	by placed
}

// pendingEntry is an entry that waits for its place.
type pendingEntry struct {
	*Revocation
	since time.Time // monotonic

	// overtaken is whether somebody else has decided about the name since: the log has an
	// entry about it of which nothing was known when this one came.
	overtaken bool
}

// disposition says what is still to be done about an identity.
type disposition struct {
	kick bool // its connections may be from before the entry
}

func newRevocations(store RevocationStore, journal Journal, log *slog.Logger) *Revocations {
	return &Revocations{
		store: store, journal: journal, log: log, known: make(map[string]Sequence), tokens: make(map[jwt.TokenID]*Revocation),
		serials: make(map[string]placed), keys: make(map[string][]*Revocation), nodes: make(map[wire.Identity][]placed),
		touched: make(map[wire.Identity]disposition), tails: make(map[wire.Identity]Sequence), revoked: make(map[string][]placedCertificate), leftOut: func(*Revocation) {},
		owned: func(context.Context, wire.Identity) (time.Time, error) { return time.Time{}, nil },
	}
}

// Fresh returns nil while this process knows every revocation that was in the
// store [MaxAge] ago, and an error that wraps [ErrRevocationsUnknown] else.
func (r *Revocations) Fresh() error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.age.check("revocations")
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
	return r.serials[serial].Revocation
}

// about returns the entry that keeps the identity out although its record, which
// may be nil, does not say so: the record is of an older store, or who revokes
// has not come to it yet. It is nil if there is none. through is the place of
// the newest entry about the identity that is in the store, 0 without one.
func (r *Revocations) about(id wire.Identity, record *Record) (out *Revocation, through Sequence) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	through = newestPlaced(r.nodes[id]).at
	for _, e := range slices.Backward(r.nodes[id]) {
		switch {
		case e.Kind == RetiredNode && e.at == pendingSequence:
			continue // what gives something free waits for the store
		case e.Kind == RetiredNode || record != nil && e.at <= record.RevokedThrough:
			return nil, through
		}
		return e.Revocation, through
	}
	return nil, through
}

// outstanding is the first half of about.
func (r *Revocations) outstanding(id wire.Identity, record *Record) *Revocation {
	out, _ := r.about(id, record)
	return out
}

// standing returns the newest entry about the identity that is in the store, or
// one without Revocation and place.
func (r *Revocations) standing(id wire.Identity) placed {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return newestPlaced(r.nodes[id])
}

func newestPlaced(entries []placed) placed {
	for _, e := range slices.Backward(entries) {
		if e.at != pendingSequence {
			return e
		}
	}
	return placed{}
}

// lacks reports whether the entries since the identity was last free miss a
// certificate or a key of what a revocation of it has to name, and whether the entry
// that it is made for is still the newest about the identity. What is lacking may be
// said as long as nothing is in the log about the identity behind tail.
func (r *Revocations) lacks(want *Revocation, of placed) (lacks, stands bool, tail Sequence) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	tail = r.tails[want.Node]
	if newestPlaced(r.nodes[want.Node]).at != of.at {
		return false, false, tail
	}
	said := func(names func(*Revocation) bool) bool {
		return slices.ContainsFunc(r.nodes[want.Node], func(e placed) bool { return names(e.Revocation) })
	}
	for _, c := range want.Certificates {
		if _, ok := r.serials[c.Serial]; !ok {
			return true, true, tail
		}
	}
	for _, k := range want.Keys {
		if !said(func(e *Revocation) bool { return slices.Contains(e.Keys, k) }) {
			return true, true, tail
		}
	}
	return false, true, tail
}

// certificates returns the revoked certificates of an issuer in the order of
// the log.
func (r *Revocations) certificates(issuer string) []placedCertificate {
	r.mu.RLock()
	defer r.mu.RUnlock()
	// What is there is never changed, so nobody waits for a copy.
	return slices.Clip(r.revoked[issuer])
}

// newestOf returns the place of the newest entry that names a certificate of
// the issuer, 0 if there is none, and up to where the log was read.
func (r *Revocations) newestOf(issuer string) (newest, through Sequence) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if list := r.revoked[issuer]; len(list) > 0 {
		return list[len(list)-1].by.at, r.through
	}
	return 0, r.through
}

// apply puts an entry in force. The caller holds mu. It is called twice for an
// entry that was in force before the store had it: the second time gives it
// its place.
func (r *Revocations) apply(e placed) {
	r.known[e.ID] = e.at
	if e.Kind == RevokedToken {
		if r.tokens[e.Token] == nil {
			r.tokens[e.Token] = e.Revocation
		}
		return
	}
	for _, c := range e.Certificates {
		before, ok := r.serials[c.Serial]
		if ok && before.at != pendingSequence {
			continue
		}
		r.serials[c.Serial] = e
		if e.at != pendingSequence {
			r.revoked[c.Issuer] = append(r.revoked[c.Issuer], placedCertificate{c, e})
		}
	}
	entries := slices.DeleteFunc(slices.Clone(r.nodes[e.Node]), func(p placed) bool { return p.ID == e.ID })
	if e.Kind == RetiredNode && e.at != pendingSequence {
		entries = r.lift(entries)
	}
	for _, k := range e.Keys {
		if !slices.ContainsFunc(r.keys[k], func(p *Revocation) bool { return p.ID == e.ID }) {
			r.keys[k] = append(r.keys[k], e.Revocation)
		}
	}
	at := len(entries)
	if e.at != pendingSequence {
		if i := slices.IndexFunc(entries, func(p placed) bool { return p.at == pendingSequence }); i >= 0 {
			at = i
		}
	}
	r.nodes[e.Node] = slices.Insert(entries, at, e)
}

// lift takes back what entries say about keys, and returns those that are not
// in the store yet: they will come after the retirement.
func (r *Revocations) lift(entries []placed) []placed {
	var later []placed
	for _, e := range entries {
		if e.at == pendingSequence {
			later = append(later, e)
			continue
		}
		for _, k := range e.Keys {
			r.keys[k] = slices.DeleteFunc(r.keys[k], func(p *Revocation) bool { return p.ID == e.ID })
			if len(r.keys[k]) == 0 {
				delete(r.keys, k)
			}
		}
	}
	return later
}
