package policies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// maxDepth bounds the nesting of JSON that becomes a value: encoding/json's own
// limit, so that both take the same texts. What comes from nodes is far below
// ([muster/internal/wire.MaxDepth]).
const maxDepth = 10000

// A scanner reads JSON into Rego's values, in one pass and without a Go value
// in between. It takes what encoding/json takes and makes of it what OPA makes of
// that, and it checks all of a text, also what nobody looks at: a text that is
// refused is refused under every policy.
//
// What came over the network was checked there, by [muster/internal/wire]. It is
// checked again since that costs no pass of its own, and since replays, tests and
// the records of tokens bring texts of theirs.
type scanner struct {
	text []byte
	i    int // of the next byte
}

// termOfJSON returns what s selects of text, which must be one JSON value.
func termOfJSON(text []byte, s *selection) (*ast.Term, error) {
	sc := scanner{text: text}
	sc.space()
	t, err := sc.value(s, 0)
	if err != nil {
		return nil, err
	}
	if sc.space(); sc.i < len(text) {
		return nil, sc.fault("more after the value")
	}
	return t, nil
}

// fault returns an error for what is at hand. It never shows the text, which may
// be a secret.
func (sc *scanner) fault(what string) error {
	return fmt.Errorf("not JSON at byte %d: %s", sc.i, what)
}

// next returns the byte at hand, or 0 at the end: no JSON has it there.
func (sc *scanner) next() byte {
	if sc.i < len(sc.text) {
		return sc.text[sc.i]
	}
	return 0
}

func (sc *scanner) space() {
	for c := sc.next(); c == ' ' || c == '\n' || c == '\r' || c == '\t'; c = sc.next() {
		sc.i++
	}
}

// value passes over a value at the given depth and returns what is selected of
// it: nil if s is.
func (sc *scanner) value(s *selection, depth int) (*ast.Term, error) {
	switch c := sc.next(); c {
	case '{', '[':
		if depth == maxDepth {
			return nil, sc.fault("nested too deeply")
		}
		if c == '[' {
			return sc.array(s, depth)
		}
		return sc.object(s, depth)
	case '"':
		quoted, plain, err := sc.quoted()
		if err != nil || s == nil {
			return nil, err
		}
		return ast.StringTerm(unquote(quoted, plain)), nil
	case 't':
		return sc.literal("true", s, ast.InternedTerm(true))
	case 'f':
		return sc.literal("false", s, ast.InternedTerm(false))
	case 'n':
		return sc.literal("null", s, ast.InternedNullTerm)
	default:
		return sc.number(s)
	}
}

func (sc *scanner) literal(word string, s *selection, t *ast.Term) (*ast.Term, error) {
	if !bytes.HasPrefix(sc.text[sc.i:], []byte(word)) {
		return nil, sc.fault("want a value")
	}
	sc.i += len(word)
	if s == nil {
		return nil, nil
	}
	return t, nil
}

// object passes over an object. Of a member that comes twice the last counts,
// as in encoding/json.
func (sc *scanner) object(s *selection, depth int) (*ast.Term, error) {
	var o members
	sc.i++ // {
	sc.space()
	for more := sc.next() != '}'; more; {
		if sc.next() != '"' {
			return nil, sc.fault("want a member's name")
		}
		quoted, plain, err := sc.quoted()
		if err != nil {
			return nil, err
		}
		if sc.space(); sc.next() != ':' {
			return nil, sc.fault("want a colon")
		}
		sc.i++
		sc.space()
		name, below := s.named(quoted, plain)
		v, err := sc.value(below, depth+1)
		if err != nil {
			return nil, err
		}
		if below != nil {
			o.set(name, v)
		}
		if more, err = sc.more('}'); err != nil {
			return nil, err
		}
	}
	sc.i++ // }
	if s == nil {
		return nil, nil
	}
	return ast.ObjectTerm(o.list...), nil
}

// members are those of an object in the making. They are here and not in an
// [ast.Object] since that takes two of one name when it is made of several, and
// computes its hash anew whenever one is replaced.
type members struct {
	list [][2]*ast.Term
	at   map[ast.String]int // where each name is, once they are many
}

// fewMembers is up to where looking through names is faster than a map.
const fewMembers = 8

// set adds a member, or replaces the one of that name.
func (m *members) set(name, v *ast.Term) {
	text := name.Value.(ast.String)
	if i, ok := m.find(text); ok {
		m.list[i][1] = v
		return
	}
	if m.at != nil {
		m.at[text] = len(m.list)
	}
	m.list = append(m.list, [2]*ast.Term{name, v})
}

func (m *members) find(name ast.String) (int, bool) {
	if m.at == nil && len(m.list) < fewMembers {
		for i, member := range m.list {
			if member[0].Value.(ast.String) == name {
				return i, true
			}
		}
		return 0, false
	}
	if m.at == nil {
		m.at = make(map[ast.String]int, 2*fewMembers)
		for i, member := range m.list {
			m.at[member[0].Value.(ast.String)] = i
		}
	}
	i, ok := m.at[name]
	return i, ok
}

// named returns the name in a member's quoted name, and what is selected of the
// member. The name is left out where nothing is, since making it costs.
func (s *selection) named(quoted []byte, plain bool) (name *ast.Term, below *selection) {
	switch {
	case s == nil:
		return nil, nil
	case s.whole:
		return ast.StringTerm(unquote(quoted, plain)), s
	case plain:
		below = s.members[string(quoted[1:len(quoted)-1])] // does not allocate
	default:
		below = s.members[unquote(quoted, plain)]
	}
	if below == nil {
		return nil, nil
	}
	return below.name, below
}

// array passes over an array. It is selected whole or not at all: a path that
// goes on with a name leads to nothing in it.
func (sc *scanner) array(s *selection, depth int) (*ast.Term, error) {
	if s != nil {
		s = everything
	}
	var elements []*ast.Term
	sc.i++ // [
	sc.space()
	for more := sc.next() != ']'; more; {
		v, err := sc.value(s, depth+1)
		if err != nil {
			return nil, err
		}
		if s != nil {
			elements = append(elements, v)
		}
		if more, err = sc.more(']'); err != nil {
			return nil, err
		}
	}
	sc.i++ // ]
	if s == nil {
		return nil, nil
	}
	return ast.NewTerm(ast.NewArray(elements...)), nil
}

// everything selects all of a value.
var everything = &selection{whole: true}

// more passes over the comma after a value, if there is one, and the space
// around it. It stays before the end of the object or array.
func (sc *scanner) more(end byte) (bool, error) {
	sc.space()
	switch sc.next() {
	case ',':
		sc.i++
		sc.space()
		return true, nil
	case end:
		return false, nil
	default:
		return false, sc.fault("want a comma or an end")
	}
}

// number passes over a number.
func (sc *scanner) number(s *selection) (*ast.Term, error) {
	start, exponent := sc.i, false
	if sc.next() == '-' {
		sc.i++
	}
	switch c := sc.next(); {
	case c == '0':
		sc.i++
	case !sc.digits():
		return nil, sc.fault("want a value")
	}
	if sc.next() == '.' {
		if sc.i++; !sc.digits() {
			return nil, sc.fault("want a digit")
		}
	}
	if c := sc.next(); c == 'e' || c == 'E' {
		exponent = true
		sc.i++
		if c := sc.next(); c == '+' || c == '-' {
			sc.i++
		}
		if !sc.digits() {
			return nil, sc.fault("want a digit")
		}
	}
	if s == nil && !exponent {
		return nil, nil
	}
	text := string(sc.text[start:sc.i])
	if t := ast.InternedIntNumberTermFromString(text); t != nil { // has no exponent
		return t, nil
	}
	// Only an exponent can be out of the range that OPA takes.
	n, err := ast.NumberChecked(text)
	if err != nil {
		sc.i = start
		return nil, sc.fault("number out of range")
	}
	if s == nil {
		return nil, nil
	}
	return ast.NewTerm(n), nil
}

// digits passes over digits and reports whether there were any.
func (sc *scanner) digits() bool {
	start := sc.i
	for c := sc.next(); c >= '0' && c <= '9'; c = sc.next() {
		sc.i++
	}
	return sc.i > start
}

// ordinary tells the bytes that stand for themselves in a string: ASCII but for
// control characters, quote and backslash.
var ordinary = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// quoted passes over a string and returns it with its quotes, and whether all
// between them stands for itself.
func (sc *scanner) quoted() (quoted []byte, plain bool, err error) {
	text, i := sc.text, sc.i+1
	plain = true
	for {
		for i < len(text) && ordinary[text[i]] {
			i++
		}
		if i == len(text) {
			break
		}
		if text[i] == '"' {
			quoted = text[sc.i : i+1]
			sc.i = i + 1
			return quoted, plain, nil
		}
		plain = false
		n := 1
		if text[i] < utf8.RuneSelf {
			n = escape(text[i:])
		}
		if n == 0 { // a control character, too
			break
		}
		i += n
	}
	sc.i = i
	return nil, false, sc.fault("want the end of a string")
}

// escape returns the length of the escape that b begins with, 0 if it is none.
func escape(b []byte) int {
	if len(b) < 2 || b[0] != '\\' {
		return 0
	}
	if strings.IndexByte(`"\/bfnrt`, b[1]) >= 0 {
		return 2
	}
	if b[1] != 'u' || len(b) < 6 {
		return 0
	}
	for _, c := range b[2:6] {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return 0
		}
	}
	return 6
}

// unquote returns what a string says that [scanner.quoted] took.
func unquote(quoted []byte, plain bool) string {
	if plain {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		panic("a string that was checked: " + err.Error()) // recovered in Decide
	}
	return s
}
