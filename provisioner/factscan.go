package provisioner

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// A factFinder looks for facts by their dotted names. A dot leads into an object; a
// fact whose name has the dot in it comes before one that is found that way. Nil
// finds nothing. It is safe for concurrent use.
type factFinder struct {
	names []string // in order, each once
	root  factLevel
}

// A factLevel is what is looked for in an object, by the names of its members.
type factLevel map[string]*factBranch

type factBranch struct {
	fact  int       // 1 + place in names of the fact that is called so; 0: none is
	below factLevel // what is looked for if it is an object
}

// newFactFinder returns what finds those of these names.
func newFactFinder(names []string) *factFinder {
	if len(names) == 0 {
		return nil
	}
	f := &factFinder{names: slices.Compact(slices.Sorted(slices.Values(names))), root: make(factLevel)}
	for i, name := range f.names {
		f.root.plant(name, i+1)
	}
	return f
}

// plant has a fact found by the rest of its name.
func (l factLevel) plant(rest string, fact int) {
	l.at(rest).fact = fact
	if first, tail, ok := strings.Cut(rest, "."); ok {
		b := l.at(first)
		if b.below == nil {
			b.below = make(factLevel)
		}
		b.below.plant(tail, fact)
	}
}

func (l factLevel) at(name string) *factBranch {
	if l[name] == nil {
		l[name] = new(factBranch)
	}
	return l[name]
}

// find calls each with the facts that are named and plain, in the order of their
// names. Facts that are no JSON object have none; package wire has refused them,
// and members that come twice.
func (f *factFinder) find(facts json.RawMessage, each func(name, value string)) {
	if f == nil || len(facts) == 0 {
		return
	}
	s := factScanner{text: facts, found: make([]foundFact, len(f.names))}
	if s.space(); s.next() != '{' {
		return
	}
	if s.object(f.root, 1); s.bad {
		return
	}
	for i, found := range s.found {
		if found.depth > 0 {
			each(f.names[i], found.text())
		}
	}
}

// A foundFact is a plain value.
type foundFact struct {
	raw   []byte // as it is in JSON
	depth int    // 1 at the top; 0: not found
}

// text returns the value as text.
func (f *foundFact) text() string {
	if f.raw[0] != '"' {
		return string(f.raw) // a number or a truth value, as it was written
	}
	return unquoted(f.raw)
}

// unquoted returns what a JSON string says, "" if it is none.
func unquoted(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s) // what is no text is no fact
	return s
}

// A factScanner passes over JSON once, without making anything of what is not
// looked for: a node's facts have up to 32 KiB, and a few texts are wanted. It checks
// no more than it has to, and never reads beyond the end. Once it is bad, what it
// found means nothing.
type factScanner struct {
	text  []byte
	i     int // of the next byte
	bad   bool
	found []foundFact // by the place of the names
}

// next returns the byte at hand, 0 at the end.
func (s *factScanner) next() byte {
	if s.i < len(s.text) {
		return s.text[s.i]
	}
	return 0
}

func (s *factScanner) space() {
	for c := s.next(); c == ' ' || c == '\n' || c == '\r' || c == '\t'; c = s.next() {
		s.i++
	}
}

// members passes over an object and calls each with every quoted name, in front of the
// value, over which each passes.
func (s *factScanner) members(each func(name []byte)) {
	s.i++ // {
	if s.space(); s.next() == '}' {
		s.i++
		return
	}
	for !s.bad {
		name := s.quoted()
		s.space()
		if s.bad || s.next() != ':' {
			s.bad = true
			return
		}
		s.i++
		s.space()
		each(name)
		s.space()
		switch s.next() {
		case ',':
			s.i++
			s.space()
		case '}':
			s.i++
			return
		default:
			s.bad = true
		}
	}
}

// object looks through an object, which is at the given depth.
func (s *factScanner) object(level factLevel, depth int) {
	s.members(func(name []byte) { s.member(level.branch(name), depth) })
}

// branch returns what is looked for under a name, quoted; nil for nothing.
func (l factLevel) branch(name []byte) *factBranch {
	return l[string(nameOf(name))] // does not allocate
}

// nameOf returns what a quoted name says.
func nameOf(quoted []byte) []byte {
	switch {
	case len(quoted) < 2:
		return nil
	case bytes.IndexByte(quoted, '\\') >= 0:
		return []byte(unquoted(quoted))
	}
	return quoted[1 : len(quoted)-1]
}

// member passes over a member's value and takes what is looked for.
func (s *factScanner) member(b *factBranch, depth int) {
	if b != nil && b.below != nil && s.next() == '{' {
		s.object(b.below, depth+1)
		return
	}
	start := s.i
	s.skip()
	if b == nil || b.fact == 0 || s.bad {
		return
	}
	at := &s.found[b.fact-1]
	switch c := s.text[start]; {
	case at.depth > 0 && at.depth < depth: // one with the dots in its name
	case c == '"', c == 't', c == 'f', c == '-', c >= '0' && c <= '9':
		*at = foundFact{s.text[start:s.i], depth}
	}
}

// skip passes over a value.
func (s *factScanner) skip() {
	switch s.next() {
	case '"':
		s.quoted()
	case '{', '[':
		s.nested()
	default:
		start := s.i
		for s.i < len(s.text) && strings.IndexByte(",]} \n\r\t", s.text[s.i]) < 0 {
			s.i++
		}
		s.bad = s.bad || s.i == start
	}
}

// nested passes over an object or a list, which is not looked into.
func (s *factScanner) nested() {
	for open := 0; s.i < len(s.text) && !s.bad; {
		switch s.text[s.i] {
		case '"':
			s.quoted()
			continue
		case '{', '[':
			open++
		case '}', ']':
			open--
		}
		if s.i++; open == 0 {
			return
		}
	}
	s.bad = true
}

// quoted passes over a string and returns it, with its quotes.
func (s *factScanner) quoted() []byte {
	if s.next() != '"' {
		s.bad = true
		return nil
	}
	start := s.i
	for i := s.i + 1; i < len(s.text); {
		n := bytes.IndexByte(s.text[i:], '"')
		if n < 0 {
			break
		}
		end := i + n
		escapes := 0
		for s.text[end-1-escapes] == '\\' {
			escapes++
		}
		if i = end + 1; escapes%2 == 0 {
			s.i = i
			return s.text[start:i]
		}
	}
	s.bad = true
	return nil
}
