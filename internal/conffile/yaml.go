package conffile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
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
			return fmt.Errorf("%s: not YAML: %s", path, plain(trimYAML(err.Error())))
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
		return []error{fmt.Errorf("%s%.40q is no time such as 2027-01-31T12:00:00Z", lineOf(b, when.Value), when.Value)}, true
	case errors.As(err, &mistakes):
		for _, text := range mistakes.Errors {
			if len(errs) == maxMistakes {
				break
			}
			errs = append(errs, errors.New(plain(text)))
		}
	case err != nil:
		// The library's message is all there is.
		return []error{fmt.Errorf("not YAML: %s", plain(trimYAML(err.Error())))}, true
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

// plain says a message of the YAML library without its words for Go's
// types.
func plain(text string) string {
	if m := unknownKey.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("%sunknown key %q", m[1], m[2])
	}
	if m := twice.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("%skey %s is given twice, first in line %s", m[1], m[2], m[3])
	}
	if m := wrongType.FindStringSubmatch(text); m != nil {
		value := ""
		if m[2] != "" {
			value = fmt.Sprintf("is %q, ", m[2])
		}
		return fmt.Sprintf("line %s: %swant %s", m[1], value, typeName(m[3]))
	}
	return text
}

// lineOf returns the first line of b with this text in it, as it begins a mistake; "" if there is none.
func lineOf(b []byte, text string) string {
	before, _, found := bytes.Cut(b, []byte(text))
	if !found {
		return ""
	}
	return fmt.Sprintf("line %d: ", bytes.Count(before, []byte("\n"))+1)
}

// trimYAML removes the library's name from the front of a message.
func trimYAML(text string) string { return strings.TrimPrefix(text, "yaml: ") }

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
