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
	s := scanner{object}
	if !s.takes('{') {
		return errMembers
	}
	if s.takes('}') {
		return s.end()
	}
	for {
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
		if s.takes('}') {
			return s.end()
		}
		if !s.takes(',') {
			return errMembers
		}
	}
}

// A scanner passes over JSON.
type scanner struct{ rest []byte }

func (s *scanner) skipSpace() {
	n := 0
	for n < len(s.rest) && (s.rest[n] == ' ' || s.rest[n] == '\n' || s.rest[n] == '\r' || s.rest[n] == '\t') {
		n++
	}
	s.rest = s.rest[n:]
}

// takes reports whether c comes next, and passes over it.
func (s *scanner) takes(c byte) bool {
	s.skipSpace()
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// end returns an error unless nothing is left.
func (s *scanner) end() error {
	if s.skipSpace(); len(s.rest) > 0 {
		return errMembers
	}
	return nil
}

// value passes over the value that comes next, and returns it; empty if none does.
func (s *scanner) value() []byte {
	s.skipSpace()
	n := valueLength(s.rest)
	value := s.rest[:n:n]
	s.rest = s.rest[n:]
	return value
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
