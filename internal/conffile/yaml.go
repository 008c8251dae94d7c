package conffile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"muster/internal/inputfile"
	"muster/internal/nearest"
	"muster/internal/span"
)

// LoadYAML decodes a file into dst, a pointer to a struct with defaults. Unknown or duplicate keys, a second
// document, and lists with empty entries are errors, one line each. After an error, dst has what could be read.
func LoadYAML(path string, from inputfile.Source, dst any) error {
	b, err := inputfile.ReadText(path, from)
	if err != nil {
		return err
	}
	if err := decodeYAML(b, dst); err != nil {
		return Prefix(path, err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(b, &document); err != nil {
		return Prefix(path, err)
	}
	return Prefix(path, errors.Join(emptyValues(&document, false)...))
}

// Prefix puts a path or key before each of the joined errors.
func Prefix(prefix string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if ok && err.Error() == errors.Join(joined.Unwrap()...).Error() { // not one error with several causes
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, Prefix(prefix, e))
		}
		return errors.Join(all...)
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", prefix, err)
}

// CheckYAML reports duplicate keys and further documents, which lenient parsers accept.
func CheckYAML(b []byte) error {
	var anything any
	return decodeYAML(b, &anything)
}

func decodeYAML(b []byte, dst any) error {
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	err := d.Decode(dst)
	if errors.Is(err, io.EOF) {
		return nil
	}
	var errs []error
	if mistakes := (*yaml.TypeError)(nil); errors.As(err, &mistakes) {
		known := make(map[string][]string)
		keysOf(reflect.TypeOf(dst), known)
		for _, text := range mistakes.Errors[:min(len(mistakes.Errors), maxMistakes)] {
			errs = append(errs, errors.New(explainUnknown(text, known)))
		}
	} else if err != nil {
		return err
	}
	var another yaml.Node
	if err := d.Decode(&another); !errors.Is(err, io.EOF) {
		errs = append(errs, errors.New("more than one document, want one"))
	}
	return errors.Join(errs...)
}

// unknownKey matches the message about an unknown key, which names a Go type.
var unknownKey = regexp.MustCompile(`(?s)field (.*?) not found in type (.+)$`)

// explainUnknown names the nearest of the keys that are known at the place of an unknown one.
func explainUnknown(text string, known map[string][]string) string {
	m := unknownKey.FindStringSubmatch(text)
	if m == nil {
		return wrongType.ReplaceAllStringFunc(text, explainType)
	}
	said := fmt.Sprintf("unknown key %q", m[1])
	if meant := nearest.Word(m[1], known[m[2]], 2); meant != "" {
		said += fmt.Sprintf(": did you mean %q?", meant)
	}
	return strings.TrimSuffix(text, m[0]) + said
}

// wrongType matches the message about a value of another type, which names a Go type.
var wrongType = regexp.MustCompile("(?s)cannot unmarshal !!(\\w+)( `.*`)? into (.+)$")

// explainType says what a value is, and what is wanted.
func explainType(text string) string {
	const plain, list, keys, number, boolean = "a text", "a list", "keys with values, as in `name: value`", "a number",
		"true or false"
	m := wrongType.FindStringSubmatch(text)
	have := map[string]string{"str": plain, "seq": list, "map": keys, "int": number, "float": number, "bool": boolean}
	want := keys
	switch kind := strings.TrimRight(m[3], "0123456789"); {
	case strings.HasPrefix(kind, "[]"):
		want = list
	case kind == "string":
		want = plain
	case kind == "bool":
		want = boolean
	case kind == "int", kind == "uint", kind == "float":
		want = number + " in range"
	}
	return fmt.Sprintf("is %s%s, want %s", cmp.Or(have[m[1]], m[1]), m[2], want)
}

// keysOf collects the keys of all structs in t, by type.
func keysOf(t reflect.Type, known map[string][]string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		keysOf(t.Elem(), known)
	case reflect.Struct:
		for f := range t.Fields() {
			keysOf(f.Type, known)
			keys := []string{strings.Split(f.Tag.Get("yaml"), ",")[0]}
			if keys[0] == "" { // inline, or not for files
				keys = known[f.Type.String()]
			}
			known[t.String()] = append(known[t.String()], keys...)
		}
	}
}

// emptyValues reports list entries without a value: if all values are commented out, the entry would lift a
// restriction.
func emptyValues(n *yaml.Node, inList bool) (errs []error) {
	if inList && (n.ShortTag() == "!!null" || n.Kind == yaml.SequenceNode && len(n.Content) == 0) {
		return []error{fmt.Errorf("line %d: a list entry, or a key in it, has no value: "+
			"add a value, or remove it", n.Line)}
	}
	for _, c := range n.Content {
		errs = append(errs, emptyValues(c, inList || n.Kind == yaml.SequenceNode)...)
	}
	return errs
}

// A Span is a time.Duration in a YAML file, such as 12h or 30d; see [span.Parse].
type Span time.Duration

// UnmarshalYAML implements [yaml.Unmarshaler].
func (s *Span) UnmarshalYAML(n *yaml.Node) error {
	d, err := span.Parse(n.Value)
	if err != nil {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %v", n.Line, err)}}
	}
	*s = Span(d)
	return nil
}

// MarshalYAML implements [yaml.Marshaler].
func (s Span) MarshalYAML() (any, error) { return span.Format(time.Duration(s)), nil }

// At is a value with its line in the file, which is 0 if the key is absent or null.
type At[T any] struct {
	Value T
	Line  int
}

// UnmarshalYAML implements [yaml.Unmarshaler].
func (a *At[T]) UnmarshalYAML(n *yaml.Node) error {
	a.Line = n.Line
	return n.Decode(&a.Value)
}

// MarshalYAML indents by two spaces.
func MarshalYAML(v any) (string, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := e.Encode(v)
	return b.String(), errors.Join(err, e.Close())
}

// ErrEmpty means that a file has no value.
var ErrEmpty = errors.New("has nothing but comments, or null")

// ToJSON returns one YAML document as JSON. Keys become texts, and times stay as they are written. Duplicate keys are
// errors, and a document without a value, such as one of comments alone, is [ErrEmpty].
func ToJSON(b []byte) ([]byte, error) {
	if err := CheckYAML(b); err != nil { // also aliases that grow without bound
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(b, &document); err != nil {
		return nil, err
	}
	asTexts(&document)
	var v any
	if err := document.Decode(&v); err != nil {
		return nil, err
	}
	if v == nil {
		return nil, ErrEmpty
	}
	return json.Marshal(v)
}

// asTexts marks keys and times as texts, since JSON has no other form of them.
func asTexts(n *yaml.Node) {
	for i, c := range n.Content {
		key := n.Kind == yaml.MappingNode && i%2 == 0 && c.ShortTag() != "!!merge"
		if c.Kind == yaml.ScalarNode && (key || c.ShortTag() == "!!timestamp") {
			c.Tag = "!!str"
		}
		asTexts(c)
	}
}
