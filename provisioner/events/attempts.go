package events

import (
	"cmp"
	"container/heap"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"muster/internal/limit"
	"muster/internal/wire"
	"muster/jwt"
)

// attemptsKept is how many sources, and how many tokens, are counted at a time:
// at some 500 bytes each. By the bound of [Attempts], whoever makes more than one
// in a thousand of all failed attempts is among them.
const attemptsKept = 1000

// ours are the refusals that say nothing about who asked: a person or policy is to
// decide yet, or something here is not as it should be.
var ours = map[wire.Code]bool{
	wire.CodeDeferred: true, wire.CodeApprovalPending: true, wire.CodeShutdown: true, wire.CodePolicyFailed: true,
	wire.CodeHelperFailed: true, wire.CodeHelperTimeout: true, wire.CodeConfigurationFailed: true, wire.CodeCertificateFailed: true,
	wire.CodeBusy: true, wire.CodeUnavailable: true, wire.CodeClockBehind: true, wire.CodeAuthorityExpired: true,
	wire.CodeRevocationsUnknown: true, wire.CodeStoreUnavailable: true, wire.CodeStorageLow: true,
	wire.CodeOfferUnusable: true, // it is the node that has refused
}

// FailedAttempts are those of one source, or with one token.
type FailedAttempts struct {
	Source string      `json:"source,omitempty"`   // address, or the /64 of an IPv6 address
	Token  jwt.TokenID `json:"token_id,omitempty"` // of a token whose signature was good

	Count int64               `json:"count"`
	Over  int64               `json:"over,omitempty"` // how many of Count may be others'
	Codes map[wire.Code]int64 `json:"codes"`          // without those of Over
	First time.Time           `json:"first"`          // of those in Codes
	Last  time.Time           `json:"last"`
}

// Attempts counts failed attempts by source and by token, in bounded memory: each
// table keeps its heavy hitters by the Space-Saving algorithm (Metwally, Agrawal,
// El Abbadi, 2005). Who is new takes the place of who has the fewest, and inherits
// its count as [FailedAttempts].Over. So no count is too low, none is too high by
// more than a thousandth of all there were, and no flood from made-up addresses
// pushes those out who keep at it. It counts from the start of the process. Safe
// for concurrent use; nil counts nothing.
type Attempts struct {
	mu      sync.Mutex
	sources hitters[netip.Prefix] // guarded by mu
	tokens  hitters[jwt.TokenID]  // guarded by mu
}

// NewAttempts returns an Attempts that has counted none.
func NewAttempts() *Attempts {
	return &Attempts{sources: newHitters[netip.Prefix](attemptsKept), tokens: newHitters[jwt.TokenID](attemptsKept)}
}

// Count counts a refusal by its event, unless it says nothing about who asked. It
// returns how many its source has made, with this one; 0 if it was not counted. It
// does not block.
func (a *Attempts) Count(e *Event) int64 {
	if a == nil || e.Type != Attempt && e.Type != Refused || ours[e.Code] {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.Token != "" {
		a.tokens.add(e.Token, e.Code, e.Time).Token = e.Token
	}
	key := limit.Source(e.Source)
	f := a.sources.add(key, e.Code, e.Time)
	f.Source = limit.SourceName(key, e.Source)
	return f.Count
}

// Sources returns the n sources with the most failed attempts, the most first. All
// of it is the caller's.
func (a *Attempts) Sources(n int) []FailedAttempts {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sources.top(n)
}

// Most is how many failed attempts the source with the most has made.
func (a *Attempts) Most() int64 {
	if top := a.Sources(1); len(top) > 0 {
		return top[0].Count
	}
	return 0
}

// Tokens is [Attempts.Sources] by token.
func (a *Attempts) Tokens(n int) []FailedAttempts {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tokens.top(n)
}

// hitters is a table of a bounded number of keys, and a heap with the fewest
// first.
type hitters[K comparable] struct {
	most int
	of   map[K]*hitter[K]
	heap hitterHeap[K]
}

type hitter[K comparable] struct {
	FailedAttempts
	key K
	at  int // in the heap
}

func newHitters[K comparable](most int) hitters[K] {
	return hitters[K]{most: most, of: make(map[K]*hitter[K])}
}

// add counts one for k.
func (h *hitters[K]) add(k K, code wire.Code, now time.Time) *FailedAttempts {
	t := h.of[k]
	switch {
	case t != nil:
	case len(h.heap) < h.most:
		t = &hitter[K]{key: k, FailedAttempts: FailedAttempts{Codes: map[wire.Code]int64{}, First: now}}
		h.of[k] = t
		heap.Push(&h.heap, t)
	default:
		t = h.heap[0]
		delete(h.of, t.key)
		t.key, t.FailedAttempts = k, FailedAttempts{Count: t.Count, Over: t.Count, Codes: map[wire.Code]int64{}, First: now}
		h.of[k] = t
	}
	t.Count++
	t.Codes[code]++
	t.Last = now
	heap.Fix(&h.heap, t.at)
	return &t.FailedAttempts
}

// top returns copies of the n with the most; of those with as many, who came last
// is first.
func (h *hitters[K]) top(n int) []FailedAttempts {
	sorted := slices.SortedFunc(slices.Values(h.heap), func(x, y *hitter[K]) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), y.Last.Compare(x.Last), cmp.Compare(x.Source, y.Source), cmp.Compare(x.Token, y.Token))
	})
	all := make([]FailedAttempts, 0, min(n, len(sorted)))
	for _, t := range sorted[:min(n, len(sorted))] {
		f := t.FailedAttempts
		f.Codes = maps.Clone(t.Codes)
		all = append(all, f)
	}
	return all
}

// hitterHeap implements [heap.Interface]: the fewest first, of those the oldest.
type hitterHeap[K comparable] []*hitter[K]

func (h hitterHeap[K]) Len() int { return len(h) }
func (h hitterHeap[K]) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].Count, h[j].Count), h[i].Last.Compare(h[j].Last)) < 0
}
func (h hitterHeap[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}
func (h *hitterHeap[K]) Push(x any) {
	t := x.(*hitter[K]) //nolint:forcetypeassert // only add pushes
	t.at = len(*h)
	*h = append(*h, t)
}
func (h *hitterHeap[K]) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
