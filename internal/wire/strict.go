package wire

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// MaxDepth bounds the nesting of JSON that strangers send: facts of real
// machines nest less than 10 deep; chosen so that no recursion over them can
// grow a stack.
const MaxDepth = 64

// ErrJSON means that bytes are not the one strict JSON value that was wanted. The text around
// it is one short line, whatever the bytes are: strangers send them, and it goes into logs.
var ErrJSON = errors.New("not strict JSON")

// maxSaid is how many bytes of what package json says are passed on; chosen. It quotes
// numbers whole, of any length.
const maxSaid = 200

// notJSON is what package json says of bytes: where, and of a value of another type than ours
// in other words than those of Go.
func notJSON(err error) error {
	said := err.Error()
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var instant *time.ParseError
	switch {
	case errors.As(err, &syntax):
		said = fmt.Sprintf("%s, at byte %d", said, syntax.Offset)
	case errors.As(err, &kind) && kind.Field != "":
		said = fmt.Sprintf("member %.80q is of the type %.20s, want %s", kind.Field, kind.Value, typeOf(kind.Type))
	case errors.As(err, &kind):
		said = fmt.Sprintf("it is of the type %.20s, want %s", kind.Value, typeOf(kind.Type))
	case errors.As(err, &instant):
		said = fmt.Sprintf("%.40q is no time such as 2026-03-01T12:00:00Z", instant.Value)
	}
	if len(said) > maxSaid {
		said = strings.ToValidUTF8(said[:maxSaid], "") + "…"
	}
	return fmt.Errorf("%w: %s", ErrJSON, said)
}

// typeOf is what JSON calls what becomes a t.
func typeOf(t reflect.Type) string {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "string"
	}
	switch t.Kind() { //nolint:exhaustive // the others are numbers
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Pointer:
		return typeOf(t.Elem())
	default:
		return "number"
	}
}

// DecodeStrict decodes the one JSON value in b into dst, a pointer. Beyond what
// encoding/json asks for, it refuses invalid UTF-8, data after the value,
// nesting deeper than [MaxDepth], a member that appears twice in one object
// and, where dst has a struct, a member that the struct does not name in
// exactly this spelling. Two readers of a value that passes cannot disagree
// on what it says. The error wraps [ErrJSON], and dst is then unspecified.
func DecodeStrict(b []byte, dst any) error {
	if err := CheckStrict(b, reflect.TypeOf(dst)); err != nil {
		return err
	}
	if err := json.Unmarshal(b, dst); err != nil {
		return notJSON(err)
	}
	return nil
}

// CheckStrict makes the checks of [DecodeStrict] without decoding. The type t
// says which members objects may have; nil allows any.
func CheckStrict(b []byte, t reflect.Type) error {
	if !utf8.Valid(b) {
		return fmt.Errorf("%w: invalid UTF-8", ErrJSON)
	}
	// The walk below relies on b being valid JSON, so that comes first. Its
	// message is the decoder's, which names the offset.
	if !json.Valid(b) {
		var any json.RawMessage
		return notJSON(json.Unmarshal(b, &any))
	}
	w := walker{b: b}
	if err := w.value(t, 0); err != nil {
		return fmt.Errorf("%w: %w", ErrJSON, err)
	}
	return nil
}

// walker walks over valid JSON and looks at nothing but member names and depth.
type walker struct {
	b []byte
	i int
}

func (w *walker) space() {
	for w.i < len(w.b) && strings.IndexByte(" \t\r\n", w.b[w.i]) >= 0 {
		w.i++
	}
}

// value passes over one value that will be decoded into a t, or into anything
// if t is nil.
func (w *walker) value(t reflect.Type, depth int) error {
	if depth > MaxDepth {
		return fmt.Errorf("nested deeper than %d", MaxDepth)
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	w.space()
	switch w.b[w.i] {
	case '{':
		return w.object(t, depth)
	case '[':
		return w.array(t, depth)
	case '"':
		w.text()
	default:
		for w.i < len(w.b) && strings.IndexByte(",]} \t\r\n", w.b[w.i]) < 0 {
			w.i++
		}
	}
	return nil
}

func (w *walker) object(t reflect.Type, depth int) error {
	allowed, elem := members(t)
	seen := make(map[string]struct{}, 16)
	w.i++ // {
	for {
		w.space()
		if w.b[w.i] == '}' {
			w.i++
			return nil
		}
		if w.b[w.i] == ',' {
			w.i++
			w.space()
		}
		name := w.text()
		if _, twice := seen[name]; twice {
			return fmt.Errorf("member %.80q appears twice", name)
		}
		seen[name] = struct{}{}
		next := elem
		if allowed != nil {
			known := false
			if next, known = allowed[name]; !known {
				return fmt.Errorf("unknown member %.80q", name)
			}
		}
		w.space()
		w.i++ // :
		if err := w.value(next, depth+1); err != nil {
			return err
		}
	}
}

func (w *walker) array(t reflect.Type, depth int) error {
	var elem reflect.Type
	if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		elem = t.Elem()
	}
	w.i++ // [
	for {
		w.space()
		switch w.b[w.i] {
		case ']':
			w.i++
			return nil
		case ',':
			w.i++
		}
		if err := w.value(elem, depth+1); err != nil {
			return err
		}
		// An empty array is closed above; after a value comes , or ].
	}
}

// text passes over a string and returns what it says.
func (w *walker) text() string {
	start := w.i
	w.i++ // opening quote
	escaped := false
	for w.b[w.i] != '"' {
		if w.b[w.i] == '\\' {
			escaped = true
			w.i++
		}
		w.i++
	}
	w.i++
	if !escaped {
		return string(w.b[start+1 : w.i-1])
	}
	var s string
	if err := json.Unmarshal(w.b[start:w.i], &s); err != nil {
		return string(bytes.Clone(w.b[start:w.i])) // not reached: b is valid
	}
	return s
}

var (
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	memberCache sync.Map // reflect.Type to map[string]reflect.Type
)

// members returns the member names of an object that becomes a t, with the
// types of their values; or nil and the type of every value, which may be nil.
func members(t reflect.Type) (map[string]reflect.Type, reflect.Type) {
	switch {
	case t == nil || reflect.PointerTo(t).Implements(unmarshaler):
		return nil, nil
	case t.Kind() == reflect.Map:
		return nil, t.Elem()
	case t.Kind() != reflect.Struct:
		return nil, nil
	}
	if m, ok := memberCache.Load(t); ok {
		return m.(map[string]reflect.Type), nil
	}
	m := make(map[string]reflect.Type)
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || f.Anonymous || !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		m[name] = f.Type
	}
	memberCache.Store(t, m)
	return m, nil
}
