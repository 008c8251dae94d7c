package fleet

import (
	"strings"
	"time"

	"muster/internal/wire"
)

// A selection is a filter in the numbers of an index.
type selection struct {
	x             *Index
	states        [8]bool
	any           bool // of the states
	site, token   uint32
	bySite        bool
	byToken       bool
	policies      map[uint32]bool // nil: any
	facts         []bool          // by the number of the text; nil: any
	prefix        string
	match         wire.Pattern
	expiresBefore int64 // 0: any
	seenBefore    int64 // 0: any
}

// selection returns the filter as it is looked for, with the facts that it asks
// for. The caller holds mu.
func (x *Index) selection(f *Filter, facts []askedFact) *selection {
	s := &selection{
		x: x, any: len(f.States) == 0, prefix: f.Prefix, match: f.Match, expiresBefore: until(f.ExpiresBefore), seenBefore: until(f.SeenBefore),
		bySite: f.Site != "", byToken: f.Token != "",
	}
	for _, state := range f.States {
		s.states[number(states, state)] = true
	}
	// A text that no node has is no number of any.
	none := uint32(len(x.texts))
	find := func(text string) uint32 {
		if n, ok := x.textNo[text]; ok {
			return n
		}
		return none
	}
	s.site, s.token = find(string(f.Site)), find(string(f.Token))
	s.facts = x.withFacts(facts)
	if f.Policy != "" {
		s.policies = make(map[uint32]bool)
		for n, text := range x.texts {
			if strings.HasPrefix(text.s, f.Policy) {
				s.policies[uint32(n)] = true
			}
		}
	}
	return s
}

// until returns a bound in whole seconds, rounded up; 0 for none.
func until(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Add(time.Second - 1).Unix()
}

// selects reports whether the entry is asked for, the cheap questions first.
func (s *selection) selects(e *entry) bool {
	switch {
	case !e.is(flagKnown),
		!s.any && !s.states[e.state],
		s.bySite && e.site != s.site,
		s.byToken && e.token != s.token,
		s.policies != nil && !s.policies[e.policy],
		s.facts != nil && !s.facts[e.facts],
		s.expiresBefore != 0 && (e.expires == 0 || e.expires >= s.expiresBefore),
		s.seenBefore != 0 && e.lastSeen() >= s.seenBefore:
		return false
	}
	if s.prefix == "" && s.match == "" {
		return true
	}
	name := s.x.name(e)
	if !strings.HasPrefix(string(name), s.prefix) {
		return false
	}
	return s.match == "" || s.match.Match(wire.Identity(name))
}
