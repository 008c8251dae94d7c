package provisioner

import (
	"encoding/json"
)

// PickFacts returns an object with those members of facts that are wanted by their
// names, as they are: to decode 20 KB for the sake of two facts takes most of the time that
// a template takes. Facts that are no JSON object are returned as they are, for the
// decoder to say what is wrong.
func PickFacts(facts json.RawMessage, wanted func(name []byte) bool) json.RawMessage {
	s := factScanner{text: facts}
	if s.space(); s.next() != '{' {
		return facts
	}
	s.i++
	if s.space(); s.next() == '}' {
		return facts
	}
	picked := []byte{'{'}
	for {
		quoted := s.quoted()
		s.space()
		if s.bad || s.next() != ':' {
			return facts
		}
		s.i++
		s.space()
		start := s.i
		if s.skip(); s.bad {
			return facts
		}
		if wanted(nameOf(quoted)) {
			if len(picked) > 1 {
				picked = append(picked, ',')
			}
			picked = append(append(append(picked, quoted...), ':'), facts[start:s.i]...)
		}
		s.space()
		switch s.next() {
		case ',':
			s.i++
			s.space()
		case '}':
			return append(picked, '}')
		default:
			return facts
		}
	}
}

// nameOf returns what a quoted name says.
func nameOf(quoted []byte) []byte {
	for _, c := range quoted {
		if c == '\\' {
			return []byte(unquoted(quoted))
		}
	}
	return quoted[1 : len(quoted)-1]
}
