package provisioner

import "encoding/json"

// PickFacts returns an object with those members of facts that are wanted by their
// names, as they are: to decode 20 KB for the sake of two facts takes most of the time that
// a template takes. Facts that are no JSON object are returned as they are, for the
// decoder to say what is wrong.
func PickFacts(facts json.RawMessage, wanted func(name []byte) bool) json.RawMessage {
	s := factScanner{text: facts}
	if s.space(); s.next() != '{' {
		return facts
	}
	picked := []byte{'{'}
	s.members(func(quoted []byte) {
		start := s.i
		if s.skip(); s.bad || !wanted(nameOf(quoted)) {
			return
		}
		if len(picked) > 1 {
			picked = append(picked, ',')
		}
		picked = append(append(append(picked, quoted...), ':'), facts[start:s.i]...)
	})
	if s.bad {
		return facts
	}
	return append(picked, '}')
}
