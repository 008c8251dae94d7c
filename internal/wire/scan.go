package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"unicode/utf8"
)

// The messages of an enrollment are decoded in one pass and without reflection
// where they are spelled as [Encode] spells them. A scanner only ever says yes:
// whatever it does not know is left to [Open] and [DecodeStrict], which decide
// alone what is refused, and why. So it may be as narrow as it likes, and is
// wrong only if it takes a message for another one than they do; FuzzScan
// compares.

// What envelopes of this [Version] begin with.
var (
	plainStart  = fmt.Sprintf(`{"v":%d,"sealed":false,"body":`, Version)
	sealedStart = fmt.Sprintf(`{"v":%d,"sealed":true,`, Version)
)

// A scanner reads JSON in UTF-8. Once something is not as it expects, bad is
// set, and nothing that it has returned means anything.
type scanner struct {
	b   []byte
	i   int
	bad bool

	// Of the objects that are open in facts: where their names stand, those of
	// the innermost one last.
	names []span
	table []uint32 // of uniqueNames
}

// A span is a part of the scanner's bytes.
type span struct{ start, end int }

// scanPlain calls member for each member of the message in a plain envelope,
// with its name. It reports whether the whole was read; member has then read
// every value.
func scanPlain(b []byte, member func(s *scanner, name []byte)) bool {
	if len(b) > MaxMessageBytes || len(b) < len(plainStart) || string(b[:len(plainStart)]) != plainStart || !utf8.Valid(b) {
		return false
	}
	s := &scanner{b: b, i: len(plainStart)}
	s.want('{')
	s.rest(func(name []byte) { member(s, name) })
	s.want('}')
	return !s.bad && s.i == len(b)
}

// rest reads an object without blanks from its first member on, of which there is
// one.
func (s *scanner) rest(member func(name []byte)) {
	for !s.bad {
		name := s.text()
		s.want(':')
		if s.bad {
			return
		}
		member(name)
		if s.peek('}') {
			break
		}
		s.want(',')
	}
	s.want('}')
}

func (s *scanner) peek(c byte) bool { return s.i < len(s.b) && s.b[s.i] == c }

// want reads c.
func (s *scanner) want(c byte) {
	if s.bad || !s.peek(c) {
		s.bad = true
		return
	}
	s.i++
}

// text reads a string without escapes and returns what is between the quotes.
func (s *scanner) text() []byte {
	s.want('"')
	if s.bad {
		return nil
	}
	rest := s.b[s.i:]
	for n, c := range rest {
		if c == '"' {
			s.i += n + 1
			return rest[:n]
		}
		if c == '\\' || c < 0x20 {
			break
		}
	}
	s.bad = true
	return nil
}

// base64 reads bytes, as encoding/json spells them. There may be 64 KiB of them, so
// they are looked at once, in decoding: that refuses whatever text refuses, but
// for line ends, which it leaves out.
func (s *scanner) base64() []byte {
	s.want('"')
	end := bytes.IndexByte(s.b[s.i:], '"')
	if s.bad || end < 0 {
		s.bad = true
		return nil
	}
	text := s.b[s.i : s.i+end]
	s.i += end + 1
	b := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(b, text)
	if err != nil || base64.StdEncoding.EncodedLen(n) != len(text) {
		s.bad = true
	}
	return b[:n]
}

// raw reads an object of any content, blanks and all. It shares memory with the
// scanner's bytes.
func (s *scanner) raw() json.RawMessage {
	start := s.i
	if !s.peek('{') {
		s.bad = true
		return nil
	}
	s.value(2) // in a message in an envelope
	return s.b[start:s.i:s.i]
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return
		}
	}
}

// value reads any value.
func (s *scanner) value(depth int) {
	if depth > MaxDepth || s.i >= len(s.b) {
		s.bad = true
	}
	if s.bad {
		return
	}
	switch c := s.b[s.i]; {
	case c == '{':
		s.members(depth)
	case c == '[':
		s.elements(depth)
	case c == '"':
		s.anyText()
	case c == '-' || c >= '0' && c <= '9':
		s.number()
	default:
		for _, word := range []string{"true", "false", "null"} {
			if bytes.HasPrefix(s.b[s.i:], []byte(word)) {
				s.i += len(word)
				return
			}
		}
		s.bad = true
	}
}

func (s *scanner) members(depth int) {
	mine := len(s.names)
	s.want('{')
	s.space()
	for first := true; !s.bad && (!first || !s.peek('}')); first = false {
		start := s.i + 1
		s.text()
		s.names = append(s.names, span{start, s.i - 1})
		s.space()
		s.want(':')
		s.space()
		s.value(depth + 1)
		s.space()
		if s.peek('}') {
			break
		}
		s.want(',')
		s.space()
	}
	s.want('}')
	if !s.bad && !s.uniqueNames(s.names[mine:]) {
		s.bad = true
	}
	s.names = s.names[:mine]
}

func (s *scanner) elements(depth int) {
	s.want('[')
	s.space()
	for first := true; !s.bad && (!first || !s.peek(']')); first = false {
		s.value(depth + 1)
		s.space()
		if s.peek(']') {
			break
		}
		s.want(',')
		s.space()
	}
	s.want(']')
}

// anyText reads a string that may have escapes.
func (s *scanner) anyText() {
	s.want('"')
	for !s.bad && s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return
		case c < 0x20:
			s.bad = true
		case c == '\\':
			s.escape()
		default:
			s.i++
		}
	}
	s.bad = true
}

func (s *scanner) escape() {
	s.i++ // backslash
	if s.i >= len(s.b) || !bytes.ContainsRune([]byte(`"\/bfnrtu`), rune(s.b[s.i])) {
		s.bad = true
		return
	}
	digits := 0
	if s.b[s.i] == 'u' {
		digits = 4
	}
	s.i++
	for range digits {
		if s.i >= len(s.b) || !bytes.ContainsRune([]byte("0123456789abcdefABCDEF"), rune(s.b[s.i])) {
			s.bad = true
			return
		}
		s.i++
	}
}

// number reads a number (RFC 8259 section 6).
func (s *scanner) number() {
	if s.peek('-') {
		s.i++
	}
	if s.peek('0') {
		s.i++
	} else {
		s.digits()
	}
	if s.peek('.') {
		s.i++
		s.digits()
	}
	if s.peek('e') || s.peek('E') {
		s.i++
		if s.peek('+') || s.peek('-') {
			s.i++
		}
		s.digits()
	}
}

// digits reads one digit or more.
func (s *scanner) digits() {
	start := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	if s.i == start {
		s.bad = true
	}
}

// seed keeps strangers from choosing names with one hash.
var seed = maphash.MakeSeed()

// uniqueNames reports whether no two of the names are the same. They have no
// escapes, so that they are the same if their bytes are.
func (s *scanner) uniqueNames(names []span) bool {
	at := func(n span) []byte { return s.b[n.start:n.end] }
	if len(names) <= 8 { // measured: with more of them, hashing is quicker
		for i, a := range names {
			for _, b := range names[:i] {
				if bytes.Equal(at(a), at(b)) {
					return false
				}
			}
		}
		return true
	}
	// A table of twice the names, of 1 + their index; 0 is free.
	size := 16
	for size < 2*len(names) {
		size *= 2
	}
	s.table = slices.Grow(s.table[:0], size)[:size]
	clear(s.table)
	for i, n := range names {
		slot := int(maphash.Bytes(seed, at(n)) & uint64(size-1))
		for ; s.table[slot] != 0; slot = (slot + 1) & (size - 1) {
			if bytes.Equal(at(names[s.table[slot]-1]), at(n)) {
				return false
			}
		}
		s.table[slot] = uint32(i + 1)
	}
	return true
}
