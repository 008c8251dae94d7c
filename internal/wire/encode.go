package wire

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// EncodeJSON is like encoding/json without HTML escapes, but four times as fast. It does not check that a
// [json.RawMessage] is valid.
func EncodeJSON(v any) ([]byte, error) {
	room := encodeBuffers.Get().(*[]byte)
	defer encodeBuffers.Put(room)
	b, err := AppendJSON((*room)[:0], v)
	if err != nil {
		return nil, err
	}
	*room = b
	return bytes.Clone(b), nil
}

var encodeBuffers = sync.Pool{New: func() any { return new([]byte) }}

// AppendJSON appends v to b as [EncodeJSON] writes it.
func AppendJSON(b []byte, v any) ([]byte, error) {
	value := reflect.ValueOf(v)
	if !value.IsValid() {
		return append(b, "null"...), nil
	}
	b, err := encoderOf(value.Type())(b, value)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", value.Type(), err)
	}
	return b, nil
}

type appendFunc func(b []byte, v reflect.Value) ([]byte, error)

var encoders sync.Map // of appendFunc by reflect.Type

func encoderOf(t reflect.Type) appendFunc {
	if f, ok := encoders.Load(t); ok {
		return f.(appendFunc)
	}
	f := newEncoder(t)
	encoders.Store(t, f)
	return f
}

func newEncoder(t reflect.Type) appendFunc {
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return appendRaw
	case t == reflect.TypeFor[time.Time]():
		return appendTime
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Interface:
		return appendIndirect
	case t.Implements(reflect.TypeFor[json.Marshaler]()):
		return appendMarshaler
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return appendOther
	}
	switch t.Kind() {
	case reflect.String:
		return func(b []byte, v reflect.Value) ([]byte, error) { return appendString(b, v.String()), nil }
	case reflect.Bool:
		return func(b []byte, v reflect.Value) ([]byte, error) { return strconv.AppendBool(b, v.Bool()), nil }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(b []byte, v reflect.Value) ([]byte, error) { return strconv.AppendInt(b, v.Int(), 10), nil }
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return func(b []byte, v reflect.Value) ([]byte, error) { return strconv.AppendUint(b, v.Uint(), 10), nil }
	case reflect.Struct:
		return appendStruct
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return appendBytes
		}
		return appendSlice
	case reflect.Map:
		if t.Key().Kind() == reflect.String {
			return appendMap
		}
	}
	return appendOther
}

func appendIndirect(b []byte, v reflect.Value) ([]byte, error) {
	if v.IsNil() {
		return append(b, "null"...), nil
	}
	v = v.Elem()
	return encoderOf(v.Type())(b, v)
}

func appendRaw(b []byte, v reflect.Value) ([]byte, error) {
	raw := v.Bytes()
	if len(raw) == 0 {
		return append(b, "null"...), nil
	}
	return appendCompact(b, raw), nil
}

func appendCompact(b, raw []byte) []byte {
	begin := 0
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			i += literalLength(raw[i:]) - 1
		case c <= ' ':
			b = append(b, raw[begin:i]...)
			begin = i + 1
		}
	}
	return append(b, raw[begin:]...)
}

// literalLength returns the length of the string literal at the start of b.
func literalLength(b []byte) int {
	for i := 1; i < len(b); i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			break
		}
		i += n
		slashes := 0
		for b[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
	return len(b)
}

func appendTime(b []byte, v reflect.Value) ([]byte, error) {
	at, _ := reflect.TypeAssert[time.Time](v)
	b, err := at.AppendText(append(b, '"'))
	return append(b, '"'), err
}

func appendMarshaler(b []byte, v reflect.Value) ([]byte, error) {
	encoded, err := v.Interface().(json.Marshaler).MarshalJSON()
	return appendCompact(b, encoded), err
}

func appendOther(b []byte, v reflect.Value) ([]byte, error) {
	encoded, err := json.Marshal(v.Interface())
	return append(b, encoded...), err
}

func appendBytes(b []byte, v reflect.Value) ([]byte, error) {
	if v.IsNil() {
		return append(b, "null"...), nil
	}
	return append(base64.StdEncoding.AppendEncode(append(b, '"'), v.Bytes()), '"'), nil
}

func appendSlice(b []byte, v reflect.Value) ([]byte, error) {
	if v.IsNil() {
		return append(b, "null"...), nil
	}
	element, err := encoderOf(v.Type().Elem()), error(nil)
	b = append(b, '[')
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = element(b, v.Index(i)); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendMap(b []byte, v reflect.Value) ([]byte, error) {
	if v.IsNil() {
		return append(b, "null"...), nil
	}
	keys, element := v.MapKeys(), encoderOf(v.Type().Elem())
	slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
	var err error
	b = append(b, '{')
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, key.String()), ':')
		if b, err = element(b, v.MapIndex(key)); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

type member struct {
	name                string
	quoted              string // with colon
	index               []int
	encode              appendFunc
	omitEmpty, omitZero bool
}

var memberLists sync.Map // of []member by reflect.Type

func membersOf(t reflect.Type) []member {
	if found, ok := memberLists.Load(t); ok {
		return found.([]member)
	}
	var members []member
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || f.Anonymous && name == "" {
			continue
		}
		name = cmp.Or(name, f.Name)
		members = append(members, member{
			name:      name,
			quoted:    string(appendString(nil, name)) + ":",
			index:     f.Index,
			encode:    encoderOf(f.Type),
			omitEmpty: options == "omitempty",
			omitZero:  options == "omitzero",
		})
	}
	memberLists.Store(t, members)
	return members
}

func appendStruct(b []byte, v reflect.Value) ([]byte, error) {
	members := membersOf(v.Type())
	b = append(b, '{')
	begin := len(b)
	var err error
	for i := range members {
		m := &members[i]
		field := v.FieldByIndex(m.index)
		if m.omitEmpty && empty(field) || m.omitZero && field.IsZero() {
			continue
		}
		if len(b) > begin {
			b = append(b, ',')
		}
		if b, err = m.encode(append(b, m.quoted...), field); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct, reflect.Array:
		return false
	}
	return v.IsZero()
}

var plainText = func() (plain [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// appendString replaces invalid UTF-8.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	begin := 0
	for i := 0; i < len(s); {
		if plainText[s[i]] {
			i++
			continue
		}
		c, size := utf8.DecodeRuneInString(s[i:])
		if c >= utf8.RuneSelf && (c != utf8.RuneError || size > 1) {
			i += size
			continue
		}
		b = appendEscape(append(b, s[begin:i]...), c)
		i += size
		begin = i
	}
	return append(append(b, s[begin:]...), '"')
}

func appendEscape(b []byte, c rune) []byte {
	if i := strings.IndexRune("\"\\\b\f\n\r\t", c); i >= 0 {
		return append(b, '\\', "\"\\bfnrt"[i])
	}
	return fmt.Appendf(b, `\u%04x`, c)
}
