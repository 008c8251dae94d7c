package services

import (
	"iter"
	"time"

	"muster/internal/wire"
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

// A Filter selects service certificates. Zero members select all.
type Filter struct {
	Node     wire.Pattern
	Name     string
	State    State
	Stuck    bool
	Waiting  bool          // for an approval
	Expiring time.Duration // ends within, or has ended
}

// An Index holds all entries in memory, without the certificates. It is safe for concurrent use.
type Index struct{}

// Fresh returns nil while the index has every entry older than [trust.MaxAge]; lists made then are complete.
func (x *Index) Fresh() error { return errUnfinished }

// List returns the entries that the filter selects, in any order.
func (x *Index) List(Filter) iter.Seq[Listed] { return func(func(Listed) bool) {} }

// Get returns one entry, without the certificate itself, and false if there is none.
func (x *Index) Get(wire.Identity, string) (Listed, *Certificate, bool) { return Listed{}, nil, false }
