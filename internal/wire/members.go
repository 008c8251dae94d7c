package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// errNotObject does not quote the text, which may be a secret.
var errNotObject = fmt.Errorf("%w: no JSON object", ErrJSON)

// EachMember calls each with every member of an object, and stops at its first error. The object must have been
// decoded strictly before. name is valid until each returns. The error may wrap [ErrJSON].
func EachMember(object []byte, each func(name []byte, value json.RawMessage) error) error {
	s := scanner{text: object}
	if !s.accept('{') {
		return errNotObject
	}
	for more := !s.accept('}'); more; {
		quoted := s.value()
		if len(quoted) < 2 || quoted[0] != '"' || !s.accept(':') {
			return errNotObject
		}
		name := quoted[1 : len(quoted)-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			var unquoted string
			if json.Unmarshal(quoted, &unquoted) != nil {
				return errNotObject
			}
			name = []byte(unquoted)
		}
		value := s.value()
		if len(value) == 0 {
			return errNotObject
		}
		if err := each(name, value); err != nil {
			return err
		}
		if more = !s.accept('}'); more && !s.accept(',') {
			return errNotObject
		}
	}
	if !s.atEnd() {
		return errNotObject
	}
	return nil
}

type scanner struct {
	text []byte
	at   int // an index: reslicing would cost write barriers
}

// next skips white space; it returns 0 at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		if c := s.text[s.at]; c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c
		}
	}
	return 0
}

func (s *scanner) accept(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) atEnd() bool { return s.next() == 0 && s.at == len(s.text) }

// value returns the next value, empty if none comes next.
func (s *scanner) value() []byte {
	s.next()
	begin := s.at
	s.at += valueLength(s.text[begin:])
	return s.text[begin:s.at:s.at]
}

// valueLength returns 0 for an incomplete value.
func valueLength(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			n := literalLength(b[i:])
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
				return i // after a number, true, false or null
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
