package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// errMembers means that a text is no JSON object.
var errMembers = errors.New("no JSON object")

// EachMember calls each with every member of a JSON object, in its order and with its value as it is written, and
// stops at its first error. It makes nothing of the values, so that two facts of 20 KB cost no decoding of the rest.
//
// The object must have passed [DecodeStrict] or [CheckStrict]: only its structure is looked at here. A text that is
// no object is an error that wraps [ErrJSON]. name is good until each returns.
func EachMember(object []byte, each func(name []byte, value json.RawMessage) error) error {
	s := skipper{text: object}
	if s.space(); !s.take('{') {
		return fmt.Errorf("%w: %w", ErrJSON, errMembers)
	}
	if s.space(); s.take('}') {
		return nil
	}
	for {
		s.space()
		quoted := s.value()
		s.space()
		if len(quoted) < 2 || quoted[0] != '"' || !s.take(':') {
			break
		}
		s.space()
		value := s.value()
		if len(value) == 0 {
			break
		}
		if err := each(unquote(quoted), value); err != nil {
			return err
		}
		if s.space(); s.take('}') {
			return nil
		}
		if !s.take(',') {
			break
		}
	}
	return fmt.Errorf("%w: %w, at byte %d", ErrJSON, errMembers, s.at)
}

// unquote returns what a JSON string says.
func unquote(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // the caller has checked it
	return []byte(s)
}

// A skipper passes over JSON values. It never reads beyond the end of the text.
type skipper struct {
	text []byte
	at   int
}

func (s *skipper) space() {
	for s.at < len(s.text) && strings.IndexByte(" \t\r\n", s.text[s.at]) >= 0 {
		s.at++
	}
}

func (s *skipper) take(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// value passes over a value and returns it; empty if there is none, or not all of it.
func (s *skipper) value() []byte {
	start := s.at
	for depth := 0; s.at < len(s.text); {
		switch c := s.text[s.at]; {
		case c == '"':
			if !s.quoted() {
				return nil
			}
		case c == '{' || c == '[':
			depth++
			s.at++
		case depth > 0 && (c == '}' || c == ']'):
			depth--
			s.at++
		case depth > 0 && strings.IndexByte(",: \t\r\n", c) >= 0:
			s.at++
		case !s.scalar():
			return nil
		}
		if depth == 0 {
			return s.text[start:s.at:s.at]
		}
	}
	return nil
}

// scalar passes over a number or a word, and reports whether there is one.
func (s *skipper) scalar() bool {
	start := s.at
	for s.at < len(s.text) && strings.IndexByte(",:]} \t\r\n", s.text[s.at]) < 0 {
		s.at++
	}
	return s.at > start
}

// quoted passes over a string, and reports whether it has an end.
func (s *skipper) quoted() bool {
	for i := s.at + 1; i < len(s.text); i++ {
		n := bytes.IndexByte(s.text[i:], '"')
		if n < 0 {
			return false
		}
		i += n
		escapes := 0
		for s.text[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			s.at = i + 1
			return true
		}
	}
	return false
}
