package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// errMembers is without the text, which may be a secret.
var errMembers = fmt.Errorf("%w: no JSON object", ErrJSON)

// EachMember calls each with every member of a JSON object, in its order and with its value as it is written, and
// stops at its first error. It makes nothing of the values, so that two facts of 20 KB cost no decoding of the rest,
// and does not check them: the object was decoded strictly when it was received. A text that is no object is an error
// that wraps [ErrJSON]. name is good until each returns.
func EachMember(object []byte, each func(name []byte, value json.RawMessage) error) error {
	s := scanner{text: object}
	if !s.takes('{') {
		return errMembers
	}
	for more := !s.takes('}'); more; {
		quoted := s.value()
		if len(quoted) < 2 || quoted[0] != '"' || !s.takes(':') {
			return errMembers
		}
		name := quoted[1 : len(quoted)-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			var unquoted string
			if json.Unmarshal(quoted, &unquoted) != nil {
				return errMembers
			}
			name = []byte(unquoted)
		}
		value := s.value()
		if len(value) == 0 {
			return errMembers
		}
		if err := each(name, value); err != nil {
			return err
		}
		if more = !s.takes('}'); more && !s.takes(',') {
			return errMembers
		}
	}
	if !s.ended() {
		return errMembers
	}
	return nil
}

// A scanner passes over JSON.
type scanner struct {
	text []byte
	at   int // an index, since a slice of what is left would cost write barriers
}

// next returns the byte that comes next behind white space, and 0 at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		if c := s.text[s.at]; c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c
		}
	}
	return 0
}

// takes reports whether c comes next, and passes over it.
func (s *scanner) takes(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

// ended reports whether nothing is left.
func (s *scanner) ended() bool { return s.next() == 0 && s.at == len(s.text) }

// value passes over the value that comes next, and returns it; empty if none does.
func (s *scanner) value() []byte {
	s.next()
	begin := s.at
	s.at += valueLength(s.text[begin:])
	return s.text[begin:s.at:s.at]
}

// valueLength returns how long the value is that b begins with; 0 if it does not end.
func valueLength(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			n := textLength(b[i:])
			if i += n - 1; b[i] != '"' || n == 1 {
				return 0
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return i // behind a number or a word
			}
			if depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return 0
}
