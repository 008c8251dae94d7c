package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxDepth bounds the nesting of JSON from outside: facts of real machines nest less than 10 deep, and no
// recursion over 64 levels grows a stack.
const MaxDepth = 64

// ErrJSON means that bytes are not the one strict JSON value that was wanted. The text around it is one short line,
// whatever the bytes are.
var ErrJSON = errors.New("not strict JSON")

// DecodeStrict decodes the one JSON value in b into dst, a pointer, by the types' tags as encoding/json does. It
// refuses invalid UTF-8, data after the value, nesting deeper than [MaxDepth], a member that appears twice in one
// object and, where dst has a struct, a member that the struct does not name in exactly this spelling: two readers of
// a value that passes cannot disagree on what it says. The error wraps [ErrJSON], and dst is then unspecified.
func DecodeStrict(b []byte, dst any) error {
	return (&decoder{scanner: scanner{text: b}}).decode(reflect.ValueOf(dst).Elem())
}

// DecodeKnown is [DecodeStrict], but passes over members that a struct does not name.
func DecodeKnown(b []byte, dst any) error {
	return (&decoder{scanner: scanner{text: b}, known: true}).decode(reflect.ValueOf(dst).Elem())
}

// CheckStrict makes the checks of [DecodeStrict] on a value of any shape.
func CheckStrict(b []byte) error {
	return (&decoder{scanner: scanner{text: b}}).decode(reflect.Value{})
}

// A decoder checks a JSON text and decodes it on the way. A value that it has no short way for is checked, and then
// decoded by encoding/json. A reflect.Value that is not valid has a value checked only.
type decoder struct {
	scanner
	known bool // members that a struct does not name are passed over
	depth int
}

// A jsonError says what is wrong with a text, and where: at the end of path, or else in said.
type jsonError struct {
	path  []string // names of members, the innermost first
	said  string   // with %q for the path if there is one
	cause string   // behind that
}

func (e *jsonError) Error() string {
	place := "the value"
	if len(e.path) > 0 {
		slices.Reverse(e.path)
		place = strings.Join(e.path, "/")
	}
	return strings.ReplaceAll(e.said, "%q", fmt.Sprintf("%.80q", place)) + e.cause
}

// wrong returns an error at the place where the decoder is.
func (d *decoder) wrong(said string) *jsonError {
	return &jsonError{said: said + ", at byte " + strconv.Itoa(d.at)}
}

func (d *decoder) decode(v reflect.Value) error {
	err := d.value(v)
	if err == nil && !d.ended() {
		err = d.wrong("data after the value")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrJSON, err)
	}
	return nil
}

// value decodes the value that comes next.
func (d *decoder) value(v reflect.Value) *jsonError {
	c := d.next()
	begin := d.at
	for v.IsValid() && v.Kind() == reflect.Pointer && c != 'n' {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	if !v.IsValid() || decodes(v.Type()) {
		return d.any(v)
	}
	if err := d.any(reflect.Value{}); err != nil {
		return err
	}
	raw := d.text[begin:d.at]
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		v.SetBytes(bytes.Clone(raw))
		return nil
	}
	err := json.Unmarshal(raw, v.Addr().Interface())
	if other := (*json.UnmarshalTypeError)(nil); errors.As(err, &other) {
		return wrongType(c)
	}
	if err != nil {
		return &jsonError{said: "%q: ", cause: fmt.Sprintf("%.200s", err)}
	}
	return nil
}

// decodes reports whether there is a short way for values of a type.
func decodes(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return false
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Struct, reflect.Slice, reflect.Pointer:
		return true
	case reflect.Map:
		return t.Key().Kind() == reflect.String
	}
	return false
}

// any decodes a value of a type that [decodes] reports.
func (d *decoder) any(v reflect.Value) *jsonError {
	switch c := d.next(); c {
	case '{':
		return d.nested(v, c, d.object)
	case '[':
		return d.nested(v, c, d.array)
	case '"':
		return d.quoted(v)
	}
	literal := d.scanner.value()
	if !json.Valid(literal) {
		return d.wrong("invalid value")
	}
	if !v.IsValid() {
		return nil
	}
	switch kind := v.Kind(); {
	case literal[0] == 'n':
		v.SetZero()
	case kind == reflect.Bool && (literal[0] == 't' || literal[0] == 'f'):
		v.SetBool(literal[0] == 't')
	case kind == reflect.Int || kind == reflect.Int64:
		n, err := strconv.ParseInt(string(literal), 10, 64)
		if err != nil || v.OverflowInt(n) {
			return wrongType(literal[0])
		}
		v.SetInt(n)
	default:
		return wrongType(literal[0])
	}
	return nil
}

// wrongType returns the error of a value that begins with c and has another type than is wanted.
func wrongType(c byte) *jsonError {
	types := map[byte]string{'{': "object", '[': "array", '"': "string", 't': "boolean", 'f': "boolean", 'n': "null"}
	kind, ok := types[c]
	if !ok {
		kind = "number"
	}
	return &jsonError{said: "%q has a value of the wrong type, " + kind}
}

// nested decodes an object or an array by do.
func (d *decoder) nested(v reflect.Value, c byte, do func(reflect.Value) *jsonError) *jsonError {
	if d.depth++; d.depth > MaxDepth+1 {
		return d.wrong("nested deeper than " + strconv.Itoa(MaxDepth))
	}
	d.takes(c)
	err := do(v)
	d.depth--
	return err
}

// object decodes the rest of an object.
func (d *decoder) object(v reflect.Value) *jsonError {
	var members []member
	if v.IsValid() {
		switch v.Kind() {
		case reflect.Struct:
			members = membersOf(v.Type())
		case reflect.Map:
			v.Set(reflect.MakeMap(v.Type()))
		default:
			return wrongType('{')
		}
	}
	if d.takes('}') {
		return nil
	}
	var room [32]uint64
	names := nameSet{few: room[:0]}
	for {
		if d.next() != '"' {
			return d.wrong("want the name of a member")
		}
		name, err := d.quotedText()
		if err != nil {
			return err
		}
		if !names.add(name) {
			return &jsonError{said: "duplicate object member name ", cause: fmt.Sprintf("%.80q", name)}
		}
		if !d.takes(':') {
			return d.wrong("want a colon")
		}
		if err := d.member(v, members, name); err != nil {
			if strings.Contains(err.said, "%q") {
				err.path = append(err.path, string(name))
			}
			return err
		}
		if d.takes('}') {
			return nil
		}
		if !d.takes(',') {
			return d.wrong("want a comma or the end of the object")
		}
	}
}

// member decodes the value of a member into a struct or a map.
func (d *decoder) member(v reflect.Value, members []member, name []byte) *jsonError {
	if !v.IsValid() {
		return d.value(v)
	}
	if v.Kind() == reflect.Map {
		element := reflect.New(v.Type().Elem()).Elem()
		err := d.value(element)
		v.SetMapIndex(reflect.ValueOf(string(name)).Convert(v.Type().Key()), element)
		return err
	}
	for i := range members {
		if members[i].name == string(name) {
			return d.value(v.FieldByIndex(members[i].index))
		}
	}
	if !d.known {
		return &jsonError{said: "unknown member %q"}
	}
	return d.value(reflect.Value{})
}

// array decodes the rest of an array.
func (d *decoder) array(v reflect.Value) *jsonError {
	if v.IsValid() {
		if v.Kind() != reflect.Slice || v.Type().Elem().Kind() == reflect.Uint8 {
			return wrongType('[')
		}
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	}
	if d.takes(']') {
		return nil
	}
	for {
		var element reflect.Value
		if v.IsValid() {
			element = reflect.New(v.Type().Elem()).Elem()
		}
		if err := d.value(element); err != nil {
			return err
		}
		if v.IsValid() {
			v.Set(reflect.Append(v, element))
		}
		if d.takes(']') {
			return nil
		}
		if !d.takes(',') {
			return d.wrong("want a comma or the end of the array")
		}
	}
}

// quoted decodes a text into a string or into bytes.
func (d *decoder) quoted(v reflect.Value) *jsonError {
	text, err := d.quotedText()
	if err != nil || !v.IsValid() {
		return err
	}
	switch {
	case v.Kind() == reflect.String:
		v.SetString(string(text))
		return nil
	case v.Kind() != reflect.Slice || v.Type().Elem().Kind() != reflect.Uint8:
		return wrongType('"')
	}
	b := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, derr := base64.StdEncoding.Strict().Decode(b, text)
	if derr != nil || bytes.ContainsAny(text, "\r\n") {
		return &jsonError{said: "%q is not base64"}
	}
	v.SetBytes(b[:n])
	return nil
}

// quotedText passes over the quoted text that comes next, and returns what it says.
func (d *decoder) quotedText() ([]byte, *jsonError) {
	begin := d.at + 1
	for i := begin; i < len(d.text); i++ {
		switch c := d.text[i]; {
		case c == '"':
			d.at = i + 1
			return d.text[begin:i], nil
		case c < ' ', c == '\\', c >= utf8.RuneSelf:
			return d.unusualText()
		}
	}
	return nil, d.wrong("unexpected end")
}

// unusualText is quotedText for escapes and characters beyond ASCII.
func (d *decoder) unusualText() ([]byte, *jsonError) {
	quoted := d.text[d.at:]
	quoted = quoted[:textLength(quoted)]
	var said string
	switch {
	case !utf8.Valid(quoted):
		return nil, d.wrong("invalid UTF-8")
	case json.Unmarshal(quoted, &said) != nil:
		return nil, d.wrong("invalid text")
	case strings.Count(said, "\ufffd") > bytes.Count(quoted, []byte("\ufffd")):
		return nil, d.wrong("half of a surrogate pair")
	}
	d.at += len(quoted)
	return []byte(said), nil
}

// A nameSet has the names of an object's members, as hashes: a member is refused for one of another in 2^64 cases.
type nameSet struct {
	few  []uint64
	many map[uint64]bool // the rest, where a search would take long
}

var nameSeed = maphash.MakeSeed()

// add reports whether the name is new.
func (s *nameSet) add(name []byte) bool {
	const most = 64
	hash := maphash.Bytes(nameSeed, name)
	if slices.Contains(s.few, hash) || s.many[hash] {
		return false
	}
	if len(s.few) < most {
		s.few = append(s.few, hash)
		return true
	}
	if s.many == nil {
		s.many = make(map[uint64]bool)
	}
	s.many[hash] = true
	return true
}
