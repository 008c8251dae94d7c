package conffile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"go.yaml.in/yaml/v3"

	"muster/internal/span"
)

// LoadYAML fills dst, a pointer to a struct that already holds the defaults,
// from the YAML file at path. Keys that dst has no field for, keys given twice, a second document and
// keys without a value in an entry of a list are errors; an empty file leaves the defaults. The error has a line
// for each mistake, each beginning with path. After an error dst is unspecified.
func LoadYAML(path string, dst any) error {
	b, err := ReadFile(path)
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

// Prefix puts a path or a key in front of each of the errors that were joined into err.
func Prefix(prefix string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if ok && err.Error() == errors.Join(joined.Unwrap()...).Error() { // else it is one error with several causes
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

// CheckYAML reports what a reader of the text b that is less strict would pass over in
// silence: a key that is given twice, of which the last one counts, and what comes after
// the first document. The error has a line for each mistake, without a path; a text that
// is no YAML is a mistake too, and an empty one is none.
func CheckYAML(b []byte) error {
	var anything any
	return decodeYAML(b, &anything)
}

// decodeYAML decodes the one document in b into dst.
func decodeYAML(b []byte, dst any) error {
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	err := d.Decode(dst)
	if errors.Is(err, io.EOF) {
		return nil
	}
	var errs []error
	if mistakes := (*yaml.TypeError)(nil); errors.As(err, &mistakes) {
		for _, text := range mistakes.Errors[:min(len(mistakes.Errors), maxMistakes)] {
			errs = append(errs, errors.New(unknownKey.ReplaceAllString(text, `unknown key "$1"`)))
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

// unknownKey is what the YAML library says of a key without a field, with the name of a Go type.
var unknownKey = regexp.MustCompile(`(?s)field (.*?) not found in type .+$`)

// emptyValues returns a mistake for each key of a list's entries, and for each entry, that has no value. Such keys
// limit what is allowed, or end it, and a # in front of the last value would have lifted the limit.
func emptyValues(n *yaml.Node, inList bool) (errs []error) {
	if inList && (n.ShortTag() == "!!null" || n.Kind == yaml.SequenceNode && len(n.Content) == 0) {
		return []error{fmt.Errorf("line %d: an entry of a list, or a key in one, has no value: give it one, or take it out", n.Line)}
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

// MarshalYAML returns v in YAML, indented as the files of init are.
func MarshalYAML(v any) (string, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := e.Encode(v)
	return b.String(), errors.Join(err, e.Close())
}
