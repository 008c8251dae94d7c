package services

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// A State is the state of a service certificate for operators.
type State string

// The states, the first that is true.
const (
	StateWaiting State = "waiting" // for an operator's approval
	StateRefused State = "refused" // the last request was refused, whatever the node has
	StateRevoked State = "revoked"
	StateExpired State = "expired"
	StateCurrent State = "current"
	StateNone    State = "none" // the node reports a specification and has not asked yet
)

// States are all states.
var States = []State{StateWaiting, StateRefused, StateRevoked, StateExpired, StateCurrent, StateNone}

// Listed is a service certificate in lists.
type Listed struct {
	Node    wire.Identity `json:"node"`
	Name    string        `json:"name"`
	State   State         `json:"state"`
	Stuck   bool          `json:"stuck,omitempty"` // according to the node
	Source  string        `json:"source"`
	Profile string        `json:"profile,omitempty"`
	Network string        `json:"network,omitempty"`
	Names   []string      `json:"names,omitempty"`    // of the certificate; without one, the requested ones
	Serial  string        `json:"serial,omitempty"`   // lower-case hex
	Expires time.Time     `json:"expires,omitzero"`   // of the certificate
	Code    wire.Code     `json:"code,omitempty"`     // of the last request, if it was not granted
	Note    string        `json:"note,omitempty"`     // why it was not granted, or what the node reports
	Request string        `json:"request,omitempty"`  // [Waiting.ID]
	OwnWord string        `json:"own_word,omitempty"` // state according to the node
	Changed time.Time     `json:"changed"`
}

// An Index holds all entries in memory, without the certificates. It is safe for concurrent use.
type Index struct {
	fresh   func() error
	revoked func(serial string) *trust.Revocation
	now     func() time.Time

	mu      sync.RWMutex
	nodes   map[wire.Identity]map[string]indexed  // guarded by mu
	holders map[string]map[wire.Identity]struct{} // guarded by mu: nodes that have had the name
}

// indexed is an entry that must not be changed.
type indexed struct {
	*Certificate
	revision trust.Revision
}

// put keeps an entry unless it has a newer one.
func (x *Index) put(c *Certificate, at trust.Revision) {
	if c.Current != nil {
		entry, current := *c, *c.Current
		current.DER = nil
		c, entry.Current = &entry, &current
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	of := x.nodes[c.Node]
	if of == nil {
		of = make(map[string]indexed)
		x.nodes[c.Node] = of
	}
	if at <= of[c.Name].revision {
		return
	}
	of[c.Name] = indexed{c, at}
	for _, name := range c.Names {
		if x.holders[name] == nil {
			x.holders[name] = make(map[wire.Identity]struct{})
		}
		x.holders[name][c.Node] = struct{}{}
	}
}

// of returns the entries of a node, or of all nodes.
func (x *Index) of(node wire.Identity) (all []*Certificate) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	some := x.nodes
	if node != "" {
		some = map[wire.Identity]map[string]indexed{node: x.nodes[node]}
	}
	for _, entries := range some {
		for _, e := range entries {
			all = append(all, e.Certificate)
		}
	}
	return all
}

// owners returns the nodes.
func (x *Index) owners() []wire.Identity {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Collect(maps.Keys(x.nodes))
}

// holder returns another node that has a live certificate with the name, or "".
func (x *Index) holder(name string, but wire.Identity) wire.Identity {
	x.mu.RLock()
	nodes := slices.Collect(maps.Keys(x.holders[name]))
	x.mu.RUnlock()
	for _, node := range nodes {
		if node != but && slices.ContainsFunc(x.of(node), func(c *Certificate) bool {
			return slices.Contains(c.Names, name) && x.live(c)
		}) {
			return node
		}
	}
	return ""
}

// live reports whether the entry has a certificate that has not expired and is not revoked.
func (x *Index) live(c *Certificate) bool {
	return c.Current != nil && x.now().Before(c.Current.NotAfter) && x.revoked(c.Current.Serial) == nil
}

// forgetAfter is how long a request that was not granted is shown and counted after the node last asked.
const forgetAfter = 24 * time.Hour

// asks reports whether the last request was not granted, and is not forgotten.
func (x *Index) asks(c *Certificate) bool {
	return c.Waiting != nil && x.now().Sub(c.Waiting.Asked) < forgetAfter
}

func (x *Index) listed(c *Certificate) Listed {
	l := Listed{Node: c.Node, Name: c.Name, State: StateNone, Source: c.Source, Profile: c.Profile,
		Network: c.Network, Names: c.Names, Changed: c.UpdatedAt}
	if i := c.Current; i != nil {
		l.Serial, l.Expires, l.State = i.Serial, i.NotAfter, StateExpired
		if by := x.revoked(i.Serial); by != nil {
			l.State, l.Note = StateRevoked, by.Why
		} else if x.live(c) {
			l.State = StateCurrent
		}
	}
	if s := c.State; s != nil {
		l.OwnWord, l.Stuck, l.Note = s.State, s.Stuck, cmp.Or(s.Error, l.Note)
	}
	if w := c.Waiting; x.asks(c) {
		l.State, l.Code, l.Request, l.Note = StateRefused, w.Code, w.ID, cmp.Or(w.Cause, string(w.Code))
		if w.Code == wire.CodeApprovalPending {
			l.State = StateWaiting
			if w.Answer != nil && w.Answer.Verdict == orders.VerdictApprove {
				l.Note = "approved by " + w.Answer.By + ", the node has not asked since"
			}
		}
		if c.Current == nil {
			l.Names = w.Names
		}
	}
	return l
}

// Fresh returns nil while the index has every entry older than [trust.MaxAge]; lists made then are complete.
func (x *Index) Fresh() error { return x.fresh() }

// Get returns one entry, without the certificate itself, and false if there is none.
func (x *Index) Get(node wire.Identity, name string) (Listed, *Certificate, bool) {
	x.mu.RLock()
	e := x.nodes[node][name]
	x.mu.RUnlock()
	if e.Certificate == nil {
		return Listed{}, nil, false
	}
	return x.listed(e.Certificate), e.Certificate, true
}
