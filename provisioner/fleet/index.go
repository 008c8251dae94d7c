package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// ErrReading means that the provisioner has not read all records since its start: retry in a few seconds.
var ErrReading = errors.New("the records are still being read")

// ErrIncomplete means that records are missing, so that a list would be incomplete. The alarm store_unavailable says
// what to do.
var ErrIncomplete = errors.New("not all records can be read")

// A Log is the part of the store that an [Index] follows.
type Log interface {
	// FollowRecords calls each with the newest revision of every record, then current with nil. If records are missing,
	// it calls current with an error and reads again. Until ctx is done it then calls each for records that other
	// processes write, and own for this process's. own may be called concurrently, and revisions may come out of order.
	FollowRecords(ctx context.Context, each func(wire.Identity, []byte, trust.Revision),
		own func(*provisioner.Brief, trust.Revision), current func(error)) error

	// Settle returns when the followers have got everything that this process has written.
	Settle()

	// FollowLastSeen calls each with every known time, then current with the time since when the times are complete.
	// Until ctx is done it then calls each with new times. Calls may be concurrent.
	FollowLastSeen(ctx context.Context, each func(wire.Identity, time.Time), current func(since time.Time)) error
}

// namesChunk is the size of one allocation for names, in bytes. Large chunks keep the garbage collector's work small.
const namesChunk = 64 << 10

// An Index holds a short form of all nodes. Make one with [NewIndex]. It is safe for concurrent use.
type Index struct {
	log    Log
	logger *slog.Logger
	kept   []string // names of facts, sorted

	current chan struct{} // closed once all records are read
	heard   chan struct{} // closed once the times of FollowLastSeen are read

	mu      sync.RWMutex
	nodes   []node                       // guarded by mu
	byName  map[wire.Identity]int        // guarded by mu: index in nodes
	names   strings.Builder              // guarded by mu: newest chunk
	shared  interned[provisioner.Traits] // guarded by mu
	tokens  interned[jwt.TokenID]        // guarded by mu
	facts   interned[string]             // guarded by mu: packed
	since   time.Time                    // guarded by mu: see Log.FollowLastSeen
	brokers interned[Broker]             // guarded by mu
	listed  time.Time                    // guarded by mu: see Settled
	quiet   error                        // guarded by mu: see Quiet
	changes uint64                       // guarded by mu: see Changes

	more, first bool // guarded by mu; first: listed is the first time since brokers answer

	lost error // guarded by mu: why current is not closed, if records are missing

	faulty map[wire.Identity]struct{} // guarded by mu: nodes in the fleet with a fault

	leaves map[wire.Identity]*provisioner.Leaf // guarded by mu: of Puppet agents on record
}

// NewIndex returns an empty index of log that keeps the named facts.
func NewIndex(log Log, logger *slog.Logger, facts []string) *Index {
	return &Index{
		log:     log,
		logger:  logger,
		kept:    slices.Compact(slices.Sorted(slices.Values(facts))),
		current: make(chan struct{}),
		heard:   make(chan struct{}),
		byName:  make(map[wire.Identity]int),
		shared:  newInterned[provisioner.Traits](),
		tokens:  newInterned[jwt.TokenID](),
		facts:   newInterned[string](),
		brokers: newInterned[Broker](),
		faulty:  make(map[wire.Identity]struct{}),
		leaves:  make(map[wire.Identity]*provisioner.Leaf),
	}
}

// Run keeps the index up to date until ctx is done, and returns nil then.
func (x *Index) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	current := sync.OnceFunc(func() {
		close(x.current)
		x.logger.InfoContext(ctx, "all nodes are in the index", "elapsed", time.Since(began).Round(time.Millisecond))
	})
	g.Go(func() error {
		return x.log.FollowRecords(ctx, func(id wire.Identity, b []byte, at trust.Revision) {
			x.take(ctx, id, b, at)
		}, x.put, func(err error) {
			if err == nil {
				current()
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			x.lost = err
		})
	})
	g.Go(func() error { return x.log.FollowLastSeen(ctx, x.saw, x.sawAll) })
	return g.Wait()
}

// wait returns [ErrReading] if ctx ends before all channels are closed, and [ErrIncomplete] if records are missing.
func (x *Index) wait(ctx context.Context, read ...<-chan struct{}) error {
	for _, done := range read {
		select {
		case <-done:
		case <-ctx.Done():
			return x.notRead()
		}
	}
	return nil
}

func (x *Index) notRead() error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.lost != nil {
		return fmt.Errorf("%w: %w", ErrIncomplete, x.lost)
	}
	return ErrReading
}

// take adds a record. If it cannot be read, the index keeps the node's last state.
func (x *Index) take(ctx context.Context, id wire.Identity, b []byte, at trust.Revision) {
	r, err := provisioner.DecodeBrief(b)
	if err == nil && r.Identity != id {
		err = trust.ErrRecord
	}
	if err != nil {
		x.logger.WarnContext(ctx, "record cannot be read, the list of nodes shows its last state", "node", id,
			"revision", uint64(at), "err", err)
		return
	}
	x.put(&r, at)
}

func (x *Index) put(r *provisioner.Brief, at trust.Revision) {
	facts := x.packFacts(r.Facts)
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.node(r.Identity)
	if at < n.revision {
		return // out of order
	}
	n.revision = at
	x.changes++
	n.changed, n.enrolled = nanos(r.Changed), nanos(r.FirstEnrolled)
	n.owned, n.issued, n.expires = nanos(r.OwnedSince), nanos(r.Issued), nanos(r.Expires)
	n.serial, n.source = packSerial(r.Serial), packAddress(r.Source)
	n.key, _ = packKey(r.KeyHash)
	x.facts.set(&n.facts, facts)
	x.tokens.set(&n.token, r.Token)
	x.shared.set(&n.shared, r.Traits)
	if r.Fault != "" && r.State != provisioner.StateRevoked && r.State != provisioner.StateRetired {
		x.faulty[n.id] = struct{}{}
	} else {
		delete(x.faulty, n.id)
	}
	if delete(x.leaves, n.id); r.Leaf != nil && r.State != provisioner.StateRetired {
		x.leaves[n.id] = r.Leaf
	}
}

// Changes counts the changes of records and connections that the index has taken.
func (x *Index) Changes() uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.changes
}

func (x *Index) saw(id wire.Identity, at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.node(id)
	n.seen = max(n.seen, nanos(at))
}

// sawAll is called once.
func (x *Index) sawAll(since time.Time) {
	x.mu.Lock()
	x.since = since
	x.mu.Unlock()
	close(x.heard)
}

// node finds or adds a node. The pointer is valid until the next call. The caller holds mu.
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

// find returns a node or nil. The caller holds mu.
func (x *Index) find(id wire.Identity) *node {
	if i, ok := x.byName[id]; ok {
		return &x.nodes[i]
	}
	return nil
}

// Find returns one node, false if it has no record.
func (x *Index) Find(id wire.Identity) (Node, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if n := x.find(id); n != nil && n.recorded() {
		return x.shown(n), true
	}
	return Node{}, false
}

// At reports whether a node's record is at one of the sites. It is nil without a limit.
func (x *Index) At(sites trust.Sites) func(wire.Identity) bool {
	if sites == nil {
		return nil
	}
	return func(id wire.Identity) bool {
		n, _ := x.Find(id)
		return sites.Has(n.Site)
	}
}

// About reports whether an event names one of the sites, or none and a node there. It is nil without a limit.
func (x *Index) About(sites trust.Sites) func(*events.Stored) bool {
	if sites == nil {
		return nil
	}
	return func(e *events.Stored) bool {
		said := e.Read()
		if said.Site != "" {
			return sites.Has(said.Site)
		}
		return x.At(sites)(wire.Identity(said.Node))
	}
}

// Leaves calls each with every Puppet agent that is not retired, in any order, once the index is read. The error is
// [ErrReading] if ctx ends first.
func (x *Index) Leaves(ctx context.Context, each func(wire.Identity, provisioner.State, *provisioner.Leaf)) error {
	x.log.Settle()
	if err := x.wait(ctx, x.current); err != nil {
		return err
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	for id, leaf := range x.leaves {
		each(id, x.of(x.find(id)).State, leaf)
	}
	return nil
}
