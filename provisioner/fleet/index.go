package fleet

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/trust"
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

	// FollowLastSeen calls each with when nodes were heard of, and then whenever one is,
	// until ctx is done. Once it has named all that are known it calls current, with
	// since when that is known. The calls may be from several goroutines.
	FollowLastSeen(ctx context.Context, each func(wire.Identity, time.Time), current func(since time.Time)) error
}

// namesChunk is how many bytes of names are in one piece of memory, since the garbage collector looks at each piece.
const namesChunk = 64 << 10

// An Index is all nodes in short. Make one with [NewIndex]. It is safe for
// concurrent use.
type Index struct {
	log    Log
	logger *slog.Logger
	kept   []string // names of the facts that are kept, in order

	current chan struct{} // closed once all records have been read
	heard   chan struct{} // closed once it is known when nodes were heard of

	mu     sync.RWMutex
	nodes  []node                // guarded by mu, in the order in which they came
	byName map[wire.Identity]int // guarded by mu: place in nodes
	names  strings.Builder       // guarded by mu: the newest chunk of names
	shared interned[shared]      // guarded by mu
	tokens interned[jwt.TokenID] // guarded by mu
	facts  interned[string]      // guarded by mu: of each node all in one text
	since  time.Time             // guarded by mu: since when it is known, once heard is closed
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
		kept:    slices.Compact(slices.Sorted(slices.Values(facts))),
		current: make(chan struct{}),
		heard:   make(chan struct{}),
		byName:  make(map[wire.Identity]int),
		shared:  newInterned[shared](),
		tokens:  newInterned[jwt.TokenID](),
		facts:   newInterned[string](),
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
	g.Go(func() error { return x.log.FollowLastSeen(ctx, x.saw, x.sawAll) })
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
	for i := range x.nodes {
		if x.nodes[i].recorded() {
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
		err = trust.ErrRecord
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
	n := x.node(r.Identity)
	if at < n.revision {
		return // read again, or handed over late
	}
	n.revision = at
	n.changed, n.enrolled = nanos(r.Updated), nanos(r.FirstEnrolled)
	n.owned, n.expires = nanos(r.Owned), nanos(r.Expires)
	n.serial = packSerial(r.Serial)
	x.facts.set(&n.facts, facts)
	x.tokens.set(&n.token, r.Token)
	x.shared.set(&n.shared, shared{
		state:   r.State,
		site:    r.Site,
		policy:  r.Policy,
		reason:  r.Reason,
		agent:   r.Agent,
		offered: r.Offered,
		cloned:  r.Cloned,
	})
}

// saw takes in when a node was heard of.
func (x *Index) saw(id wire.Identity, at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.node(id)
	n.seen = max(n.seen, nanos(at))
}

// sawAll takes in that it is known which nodes were heard of since then. FollowSeen calls it once.
func (x *Index) sawAll(since time.Time) {
	x.mu.Lock()
	x.since = since
	x.mu.Unlock()
	close(x.heard)
}

// node returns the node of a name, which is added if it is not there. It is good until the next is added. The caller
// holds mu.
func (x *Index) node(id wire.Identity) *node {
	if n := x.find(id); n != nil {
		return n
	}
	if x.names.Len()+len(id) > x.names.Cap() {
		x.names.Reset()
		x.names.Grow(namesChunk)
	}
	start := x.names.Len()
	x.names.WriteString(string(id))
	id = wire.Identity(x.names.String()[start:])
	x.byName[id] = len(x.nodes)
	x.nodes = append(x.nodes, node{id: id})
	return &x.nodes[len(x.nodes)-1]
}

// find returns the node of a name, nil if there is none. The caller holds mu.
func (x *Index) find(id wire.Identity) *node {
	if i, ok := x.byName[id]; ok {
		return &x.nodes[i]
	}
	return nil
}

// Find returns what is known of one node, false if it has no record.
func (x *Index) Find(id wire.Identity) (Node, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if n := x.find(id); n != nil && n.recorded() {
		return x.shown(n), true
	}
	return Node{}, false
}
