package fleet

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/provisioner/trust"

	"golang.org/x/sync/errgroup"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// ErrReading means that the records have not all been read yet since the
// provisioner was started: ask again in a few seconds.
var ErrReading = errors.New("the records are still being read")

// A Log is the part of the store that an [Index] follows.
type Log interface {
	// FollowRecords calls each with the newest record of every identity, and
	// current when that is all there is; then each with what others write, and own
	// with what this process does, until ctx is done. Neither keeps the bytes. own may
	// be called from several goroutines. An older revision may come after a newer one.
	FollowRecords(ctx context.Context, each func(wire.Identity, []byte, trust.Revision),
		own func(*provisioner.Brief, trust.Revision), current func()) error

	// Settle returns when all that this process has written has come to those who follow the records.
	Settle()

	// FollowSeen calls each with when nodes were heard of, and then whenever one is,
	// until ctx is done. Once it has named all that are known it calls current, with
	// since when that is known. The calls may be from several goroutines.
	FollowSeen(ctx context.Context, each func(wire.Identity, time.Time), current func(since time.Time)) error
}

// An entry is a node in the index. It has no pointers: texts that many nodes share
// are numbers, and names are in one piece.
type entry struct {
	revision trust.Revision
	updated  int64 // Unix, ns
	first    int64 // Unix, ns
	owned    int64 // Unix, s
	expires  int64 // Unix, s; 0: no certificate
	seen     int64 // Unix, s; 0: never heard of in the fleet
	name     uint32
	next     uint32 // number+1 of another entry with the same hash, 0: none
	site     uint32
	token    uint32
	policy   uint32
	agent    uint32
	facts    uint32 // all of them in one text
	serial   [16]byte
	nameLen  uint8
	state    uint8
	reason   uint8
	flags    uint8
}

// Flags of an entry.
const (
	flagKnown = 1 << iota // has a record
	flagCloned
	flagOffered
)

// is reports whether the entry has a flag.
func (e *entry) is(flag uint8) bool { return e.flags&flag != 0 }

// flagIf returns the flag if it is to be set.
func flagIf(set bool, flag uint8) uint8 {
	if set {
		return flag
	}
	return 0
}

// Sizes of pieces: so little is copied when there are more nodes, and nothing of it
// twice. A name is in one of them whole.
const (
	entriesOfPiece = 4096
	bytesOfPiece   = 1 << 16
)

// pieces hold entries, in the order in which they came, and their names.
type pieces struct {
	entries [][]entry // all but the last are full
	names   [][]byte  // pieces of bytesOfPiece, each with as many names as fit
	count   uint32
}

// add adds an entry, and returns it; it stays where it is.
func (p *pieces) add(name string, next uint32) *entry {
	if n := len(p.names); n == 0 || len(p.names[n-1])+len(name) > bytesOfPiece {
		p.names = append(p.names, make([]byte, 0, bytesOfPiece))
	}
	if p.count%entriesOfPiece == 0 {
		p.entries = append(p.entries, make([]entry, 0, entriesOfPiece))
	}
	names, entries := &p.names[len(p.names)-1], &p.entries[len(p.entries)-1]
	*entries = append(*entries, entry{name: uint32((len(p.names)-1)*bytesOfPiece + len(*names)), nameLen: uint8(len(name)), next: next})
	*names = append(*names, name...)
	p.count++
	return &(*entries)[len(*entries)-1]
}

// at returns an entry by its number.
func (p *pieces) at(n uint32) *entry { return &p.entries[n/entriesOfPiece][n%entriesOfPiece] }

// all are all entries.
func (p *pieces) all(yield func(*entry) bool) {
	for _, piece := range p.entries {
		for i := range piece {
			if !yield(&piece[i]) {
				return
			}
		}
	}
}

// A text is one that many nodes share: a policy has one digest, a site one name.
type text struct {
	s    string
	uses int // entries that have it
}

// An Index is all nodes in short. Make one with [NewIndex]. It is safe for
// concurrent use.
type Index struct {
	log    Log
	logger *slog.Logger
	facts  []string // names of those that are kept, in order
	seed   maphash.Seed

	current chan struct{} // closed once all records have been read
	heard   chan struct{} // closed once it is known when nodes were heard of

	mu      sync.RWMutex
	entries pieces            // guarded by mu
	byHash  map[uint64]uint32 // guarded by mu: hash of the name to number+1
	texts   []text            // guarded by mu: what many nodes share; 0 is ""
	textNo  map[string]uint32 // guarded by mu
	free    []uint32          // guarded by mu: numbers of texts that nobody has any more
	since   time.Time         // guarded by mu: since when it is known, once heard is closed
}

// NewIndex returns an empty index of log. logger is told of records that cannot
// be read, and when all were; nil discards. Nodes are found by those of the facts
// on their records that are named; nil for none.
func NewIndex(log Log, logger *slog.Logger, facts []string) *Index {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Index{
		log:     log,
		logger:  logger,
		facts:   slices.Compact(slices.Sorted(slices.Values(facts))),
		seed:    maphash.MakeSeed(),
		current: make(chan struct{}),
		heard:   make(chan struct{}),
		byHash:  make(map[uint64]uint32),
		texts:   make([]text, 1),
		textNo:  map[string]uint32{"": 0},
	}
}

// Run keeps the index up to date until ctx is done, and returns nil then.
func (x *Index) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	current := sync.OnceFunc(func() {
		close(x.current)
		x.logger.InfoContext(ctx, "nodes are listed", "nodes", x.known(), "elapsed", time.Since(began).Round(time.Millisecond))
	})
	g.Go(func() error {
		return x.log.FollowRecords(ctx, func(id wire.Identity, b []byte, at trust.Revision) { x.take(ctx, id, b, at) }, x.put, current)
	})
	g.Go(func() error { return x.log.FollowSeen(ctx, x.saw, x.sawAll) })
	return g.Wait()
}

// wait waits until all of what is read has been. The error is [ErrReading] if it is not when ctx is done.
func wait(ctx context.Context, read ...<-chan struct{}) error {
	for _, done := range read {
		select {
		case <-done:
		case <-ctx.Done():
			return ErrReading
		}
	}
	return nil
}

// known returns how many nodes have a record.
func (x *Index) known() (n int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for e := range x.entries.all {
		if e.is(flagKnown) {
			n++
		}
	}
	return n
}

// take takes a record in. One that cannot be read keeps its place in the list, as
// it was: the provisioner refuses its node and says why.
func (x *Index) take(ctx context.Context, id wire.Identity, b []byte, at trust.Revision) {
	r, err := provisioner.DecodeBrief(b)
	if err == nil && r.Identity != id {
		err = provisioner.ErrRecord
	}
	if err != nil {
		x.logger.WarnContext(ctx, "record left out of the list of nodes", "node", id, "revision", uint64(at), "err", err)
		return
	}
	x.put(&r, at)
}

// put takes a record in.
func (x *Index) put(r *provisioner.Brief, at trust.Revision) {
	facts := x.packFacts(r.Facts)
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entry(string(r.Identity))
	if at < e.revision {
		return // read again, or handed over late
	}
	e.revision, e.flags = at, flagKnown|flagIf(r.Cloned, flagCloned)|flagIf(r.Offered, flagOffered)
	e.updated, e.first, e.owned, e.expires = nanos(r.Updated), nanos(r.FirstEnrolled), seconds(r.Owned), seconds(r.Expires)
	x.text(&e.site, string(r.Site))
	x.text(&e.token, string(r.Token))
	x.text(&e.policy, r.Policy)
	x.text(&e.agent, r.Agent)
	x.text(&e.facts, facts)
	e.state, e.reason = number(states, r.State), number(reasons, r.Reason)
	e.serial = packSerial(r.Serial)
}

// saw takes in when a node was heard of.
func (x *Index) saw(id wire.Identity, at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entry(string(id))
	e.seen = max(e.seen, seconds(at))
}

// sawAll takes in that it is known who was heard of since then. FollowSeen calls it once.
func (x *Index) sawAll(since time.Time) {
	x.mu.Lock()
	x.since = since
	x.mu.Unlock()
	close(x.heard)
}

// entry returns the entry of a name, which is made if there is none. The caller
// holds mu.
func (x *Index) entry(name string) *entry {
	if e := x.find(wire.Identity(name)); e != nil {
		return e
	}
	hash := maphash.String(x.seed, name)
	e := x.entries.add(name, x.byHash[hash])
	x.byHash[hash] = x.entries.count
	return e
}

// name returns the name of an entry. The caller holds mu.
func (x *Index) name(e *entry) []byte {
	start := e.name % bytesOfPiece
	return x.entries.names[e.name/bytesOfPiece][start : start+uint32(e.nameLen)]
}

// text sets the number of a text of an entry. A text that no entry has any more is
// forgotten: nodes say what their agent is, and each could say something else every
// time. The caller holds mu.
func (x *Index) text(number *uint32, s string) {
	old := *number
	if x.texts[old].s == s {
		return
	}
	n, ok := x.textNo[s]
	if !ok {
		s = strings.Clone(s) // what it came in is much larger
		if k := len(x.free); k > 0 {
			n, x.free = x.free[k-1], x.free[:k-1]
			x.texts[n].s = s
		} else {
			n = uint32(len(x.texts))
			x.texts = append(x.texts, text{s: s})
		}
		x.textNo[s] = n
	}
	x.texts[n].uses++
	*number = n
	if old == 0 {
		return // "", which stays
	}
	if x.texts[old].uses--; x.texts[old].uses == 0 {
		delete(x.textNo, x.texts[old].s)
		x.texts[old].s = ""
		x.free = append(x.free, old)
	}
}

// Find returns what is known of one node, false if it has no record.
func (x *Index) Find(id wire.Identity) (Node, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if e := x.find(id); e != nil && e.is(flagKnown) {
		return x.node(e), true
	}
	return Node{}, false
}

// find returns the entry of a name, nil if there is none. The caller holds mu.
func (x *Index) find(id wire.Identity) *entry {
	for n := x.byHash[maphash.String(x.seed, string(id))]; n != 0; {
		e := x.entries.at(n - 1)
		if string(x.name(e)) == string(id) {
			return e
		}
		n = e.next
	}
	return nil
}

// node returns an entry as it is shown. The caller holds mu.
func (x *Index) node(e *entry) Node {
	return Node{
		Identity:      wire.Identity(x.name(e)),
		State:         states[e.state],
		Site:          jwt.Site(x.texts[e.site].s),
		Serial:        unpackSerial(e.serial),
		Expires:       instant(e.expires, 0),
		Offered:       e.is(flagOffered),
		Cloned:        e.is(flagCloned),
		Token:         jwt.TokenID(x.texts[e.token].s),
		Policy:        x.texts[e.policy].s,
		Reason:        reasons[e.reason],
		Agent:         x.texts[e.agent].s,
		Facts:         x.unpackFacts(x.texts[e.facts].s),
		FirstEnrolled: instant(0, e.first),
		Changed:       instant(0, e.updated),
		OwnedSince:    instant(e.owned, 0),
		Seen:          instant(e.lastSeen(), 0),
		Revision:      e.revision,
	}
}

// lastSeen is when the node was last heard of, in seconds: in the fleet, or by its
// record that was written.
func (e *entry) lastSeen() int64 {
	if e.state == stateByOperator[0] || e.state == stateByOperator[1] {
		return max(e.seen, e.first/int64(time.Second)) // later it was the operator who was heard of
	}
	return max(e.seen, e.updated/int64(time.Second))
}
