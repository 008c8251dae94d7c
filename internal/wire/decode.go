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

// MaxDepth bounds nesting; real facts nest less than 10 deep.
const MaxDepth = 64

// ErrJSON means that the input is not strict JSON. Its message is one short line.
var ErrJSON = errors.New("not strict JSON")

// DecodeStrict decodes one JSON value into dst, a pointer, by encoding/json's tags. It refuses invalid UTF-8,
// trailing data, nesting deeper than [MaxDepth], and duplicate, unknown or differently spelled members. So all
// programs read the same value. The error wraps [ErrJSON], and the content of dst is then undefined.
func DecodeStrict(b []byte, dst any) error {
	return (&decoder{scanner: scanner{text: b}}).decode(reflect.ValueOf(dst).Elem())
}

// DecodeKnown is [DecodeStrict] but skips unknown members.
func DecodeKnown(b []byte, dst any) error {
	return (&decoder{scanner: scanner{text: b}, known: true}).decode(reflect.ValueOf(dst).Elem())
}

// CheckStrict is [DecodeStrict] without a type, so it accepts members of any name.
func CheckStrict(b []byte) error {
	return (&decoder{scanner: scanner{text: b}}).decode(reflect.Value{})
}

// A decoder uses encoding/json for types without a fast path. With an invalid reflect.Value it only checks.
type decoder struct {
	scanner
	known bool // skip unknown members
	depth int
}

type jsonError struct {
	path  []string // member names, innermost first
	text  string   // %q stands for the path
	cause string   // appended to text
}

func (e *jsonError) Error() string {
	place := "the value"
	if len(e.path) > 0 {
		slices.Reverse(e.path)
		place = strings.Join(e.path, "/")
	}
	return strings.ReplaceAll(e.text, "%q", fmt.Sprintf("%.80q", place)) + e.cause
}

func (d *decoder) errorHere(text string) *jsonError {
	return &jsonError{text: text + ", at byte " + strconv.Itoa(d.at)}
}

func (d *decoder) decode(v reflect.Value) error {
	err := d.value(v)
	if err == nil && !d.atEnd() {
		err = d.errorHere("data after the value")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrJSON, err)
	}
	return nil
}

func (d *decoder) value(v reflect.Value) *jsonError {
	c := d.next()
	begin := d.at
	for v.IsValid() && v.Kind() == reflect.Pointer && c != 'n' {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	if !v.IsValid() || hasFastPath(v.Type()) {
		return d.fast(v)
	}
	if err := d.fast(reflect.Value{}); err != nil {
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
		return &jsonError{text: "%q: ", cause: fmt.Sprintf("%.200s", err)}
	}
	return nil
}

func hasFastPath(t reflect.Type) bool {
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

func (d *decoder) fast(v reflect.Value) *jsonError {
	switch c := d.next(); c {
	case '{':
		return d.nested(v, c, d.object)
	case '[':
		return d.nested(v, c, d.array)
	case '"':
		return d.stringOrBytes(v)
	}
	literal := d.scanner.value()
	if !json.Valid(literal) {
		if len(bytes.TrimSpace(d.text)) == 0 {
			return &jsonError{text: "empty"}
		}
		return d.errorHere("invalid value")
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

func wrongType(c byte) *jsonError {
	types := map[byte]string{'{': "object", '[': "array", '"': "string", 't': "boolean", 'f': "boolean", 'n': "null"}
	kind, ok := types[c]
	if !ok {
		kind = "number"
	}
	return &jsonError{text: "%q has a value of the wrong type, " + kind}
}

func (d *decoder) nested(v reflect.Value, c byte, do func(reflect.Value) *jsonError) *jsonError {
	if d.depth++; d.depth > MaxDepth+1 {
		return d.errorHere("nested deeper than " + strconv.Itoa(MaxDepth))
	}
	d.accept(c)
	err := do(v)
	d.depth--
	return err
}

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
	if d.accept('}') {
		return nil
	}
	var room [32]uint64
	names := nameSet{few: room[:0]}
	for {
		if d.next() != '"' {
			return d.errorHere("want the name of a member")
		}
		name, err := d.stringLiteral()
		if err != nil {
			return err
		}
		if !names.add(name) {
			return &jsonError{text: "duplicate object member name ", cause: fmt.Sprintf("%.80q", name)}
		}
		if !d.accept(':') {
			return d.errorHere("want a colon")
		}
		if err := d.member(v, members, name); err != nil {
			if strings.Contains(err.text, "%q") {
				err.path = append(err.path, string(name))
			}
			return err
		}
		if d.accept('}') {
			return nil
		}
		if !d.accept(',') {
			return d.errorHere("want a comma or the end of the object")
		}
	}
}

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
		return &jsonError{text: "unknown member %q"}
	}
	return d.value(reflect.Value{})
}

func (d *decoder) array(v reflect.Value) *jsonError {
	if v.IsValid() {
		if v.Kind() != reflect.Slice || v.Type().Elem().Kind() == reflect.Uint8 {
			return wrongType('[')
		}
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	}
	if d.accept(']') {
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
		if d.accept(']') {
			return nil
		}
		if !d.accept(',') {
			return d.errorHere("want a comma or the end of the array")
		}
	}
}

func (d *decoder) stringOrBytes(v reflect.Value) *jsonError {
	text, err := d.stringLiteral()
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
		return &jsonError{text: "%q is not base64"}
	}
	v.SetBytes(b[:n])
	return nil
}

func (d *decoder) stringLiteral() ([]byte, *jsonError) {
	begin := d.at + 1
	for i := begin; i < len(d.text); i++ {
		switch c := d.text[i]; {
		case c == '"':
			d.at = i + 1
			return d.text[begin:i], nil
		case c < ' ', c == '\\', c >= utf8.RuneSelf:
			return d.escapedString()
		}
	}
	return nil, d.errorHere("unexpected end")
}

func (d *decoder) escapedString() ([]byte, *jsonError) {
	literal := d.text[d.at:]
	literal = literal[:literalLength(literal)]
	var text string
	switch {
	case !utf8.Valid(literal):
		return nil, d.errorHere("invalid UTF-8")
	case json.Unmarshal(literal, &text) != nil:
		return nil, d.errorHere("invalid text")
	case strings.Count(text, "\ufffd") > bytes.Count(literal, []byte("\ufffd")):
		return nil, d.errorHere("half of a surrogate pair")
	}
	d.at += len(literal)
	return []byte(text), nil
}

// A nameSet holds hashes of member names. If two names collide (one in 2^64), the object is refused.
type nameSet struct {
	few  []uint64
	many map[uint64]bool // names beyond the limit of a linear search
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
