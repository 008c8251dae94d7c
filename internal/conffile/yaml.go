package conffile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// LoadYAML fills dst, a pointer to a struct that already holds the defaults,
// from the YAML file at path, and then validates it. Keys that dst has no field
// for, keys given twice, a second document and limits that hold nothing (see
// [limitTag]) are errors; an empty file leaves the defaults. The error has a line
// for each mistake, each beginning with path: those of the file's form and those
// that Validate found, which may join several with [errors.Join]. After an error
// dst is unspecified.
func LoadYAML(path string, dst interface{ Validate() error }) error {
	b, err := ReadFile(path)
	if err != nil {
		return err
	}
	errs, fatal := decodeYAML(b, dst)
	if !fatal {
		var document yaml.Node
		if err := yaml.Unmarshal(b, &document); err != nil {
			return fmt.Errorf("%s: not YAML: %s", path, plain(trimYAML(err.Error()), b))
		}
		errs = append(errs, emptyLimits(&document, reflect.TypeOf(dst), "")...)
		// What was read may be wrong in other ways too; the fields that could
		// not be read keep their defaults.
		errs = append(errs, leaves(dst.Validate())...)
	}
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", path, err)
	}
	return errors.Join(errs...)
}

// CheckYAML reports what a reader of the text b that is less strict would pass over in
// silence: a key that is given twice, of which the last one counts, and what comes after
// the first document. The error has a line for each mistake, without a path; a text that
// is no YAML is a mistake too, and an empty one is none.
func CheckYAML(b []byte) error {
	var anything any
	errs, _ := decodeYAML(b, &anything)
	return errors.Join(errs...)
}

// decodeYAML decodes the one document in b into dst. It returns the mistakes
// and whether they kept it from being read at all.
func decodeYAML(b []byte, dst any) (errs []error, fatal bool) {
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	err := d.Decode(dst)
	if errors.Is(err, io.EOF) {
		return nil, false
	}
	var mistakes *yaml.TypeError
	var when *time.ParseError
	switch {
	case errors.As(err, &when):
		return []error{fmt.Errorf("%s%.40q is no time such as 2027-01-31T12:00:00Z", placeOf(b, when.Value), when.Value)}, true
	case errors.As(err, &mistakes):
		for _, text := range mistakes.Errors {
			if len(errs) == maxMistakes {
				break
			}
			errs = append(errs, errors.New(plain(text, b)))
		}
	case err != nil:
		// The library's message is all there is; nobody branches on it.
		return []error{fmt.Errorf("not YAML: %s", plain(trimYAML(err.Error()), b))}, true
	}
	var another yaml.Node
	if err := d.Decode(&another); !errors.Is(err, io.EOF) {
		errs = append(errs, errors.New("more than one document, want one"))
	}
	return errs, false
}

// leaves returns the errors that [errors.Join] joined into err.
func leaves(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, leaves(e)...)
	}
	return all
}

var (
	unknownKey = regexp.MustCompile(`(?s)^(line \d+: )field (.*?) not found in type .+$`)
	wrongType  = regexp.MustCompile("(?s)^line (\\d+): cannot unmarshal \\S+ (?:`(.*)` )?into (.*)$")
	twice      = regexp.MustCompile(`^(line \d+: )mapping key (".*") already defined at line (\d+)$`)
)

// plain says a message of the YAML library about b without its words for Go's
// types.
func plain(text string, b []byte) string {
	if m := unknownKey.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("%sunknown key %q", m[1], m[2])
	}
	if m := twice.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("%skey %s is given twice, first in line %s", m[1], m[2], m[3])
	}
	if m := wrongType.FindStringSubmatch(text); m != nil {
		key := keyAt(b, m[1], m[2])
		switch {
		case m[2] != "" && key != "":
			return fmt.Sprintf("line %s: %s is %q, want %s", m[1], key, m[2], typeName(m[3]))
		case m[2] != "":
			return fmt.Sprintf("line %s: is %q, want %s", m[1], m[2], typeName(m[3]))
		case key != "":
			return fmt.Sprintf("line %s: %s: want %s", m[1], key, typeName(m[3]))
		}
		return fmt.Sprintf("line %s: want %s", m[1], typeName(m[3]))
	}
	return text
}

// eachValue calls visit for every value below n with the keys and places that lead to it.
func eachValue(n *yaml.Node, path string, visit func(path string, n *yaml.Node)) {
	for i, c := range n.Content {
		below := path
		switch {
		case n.Kind == yaml.SequenceNode:
			below = fmt.Sprintf("%s[%d]", path, i)
		case n.Kind == yaml.MappingNode && i%2 == 0:
			continue // a key
		case n.Kind == yaml.MappingNode:
			below = strings.TrimPrefix(path+"."+n.Content[i-1].Value, ".")
		}
		visit(below, c)
		eachValue(c, below, visit)
	}
}

// keyAt returns the key of the value that is in this line, with those that it is
// below, or "" if there is none or it may be one of several. The library shortens
// long values.
func keyAt(b []byte, line, value string) string {
	var document yaml.Node
	if err := yaml.Unmarshal(b, &document); err != nil {
		return ""
	}
	var keys []string
	eachValue(&document, "", func(path string, v *yaml.Node) {
		if path == "" || strings.HasSuffix(path, "]") || strconv.Itoa(v.Line) != line ||
			(v.Kind == yaml.ScalarNode) != (value != "") || !strings.HasPrefix(v.Value, strings.TrimSuffix(value, "...")) {
			return
		}
		// A mapping begins where its first value does: it is not what is meant.
		if last := len(keys) - 1; last >= 0 && strings.HasPrefix(path, keys[last]+".") {
			keys = keys[:last]
		}
		keys = append(keys, path)
	})
	if len(keys) != 1 {
		return ""
	}
	return keys[0]
}

// placeOf returns the line of the first value like this one, and its key with those that it is
// below, as they begin a mistake; "" if there is none.
func placeOf(b []byte, value string) (place string) {
	var document yaml.Node
	if err := yaml.Unmarshal(b, &document); err != nil {
		return ""
	}
	eachValue(&document, "", func(path string, v *yaml.Node) {
		if place == "" && v.Kind == yaml.ScalarNode && v.Value == value {
			place = fmt.Sprintf("line %d: %s: ", v.Line, path)
		}
	})
	return place
}

// trimYAML removes the library's name from the front of a message.
func trimYAML(text string) string { return string(bytes.TrimPrefix([]byte(text), []byte("yaml: "))) }

// typeName says what a file must hold to fill a Go type.
func typeName(t string) string {
	switch {
	case t == "time.Duration":
		return "a duration such as 90s or 24h"
	case t == "bool":
		return "true or false"
	case t == "string":
		return "a text"
	case regexp.MustCompile(`^u?int(8|16|32|64)?$`).MatchString(t):
		return "a whole number"
	case regexp.MustCompile(`^float(32|64)$`).MatchString(t):
		return "a number"
	case len(t) > 2 && t[:2] == "[]":
		return "a list"
	default:
		return "a mapping of keys to values"
	}
}

// MarshalYAML returns v in YAML, indented as the files of init are.
func MarshalYAML(v any) (string, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := e.Encode(v)
	return b.String(), errors.Join(err, e.Close())
}
