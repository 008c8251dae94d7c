package conffile

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// limitTag marks fields that limit what is allowed, and do not where they are absent:
//
//	Identities []string `yaml:"identities" conffile:"limit"`
//
// A limit that is written without a value, or with an empty one in its list, is a mistake, as is
// a time that counts as none. YAML would pass over it, and a # in front of the
// last name that is good would have made all of them good.
const limitTag = "limit"

// emptyLimits returns a mistake for each limit in n, which is decoded into a t, that limits
// nothing. n may be nil.
func emptyLimits(n *yaml.Node, t reflect.Type, path string) (errs []error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n == nil:
	case n.Kind == yaml.DocumentNode:
		for _, c := range n.Content {
			errs = append(errs, emptyLimits(c, t, path)...)
		}
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for i, c := range n.Content {
			errs = append(errs, emptyLimits(c, t.Elem(), fmt.Sprintf("%s[%d]", path, i))...)
		}
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if key.ShortTag() == "!!merge" {
				errs = append(errs, emptyLimits(value, t, path)...)
				continue
			}
			field, ok := fieldOf(t, key.Value)
			if !ok {
				continue
			}
			below := strings.TrimPrefix(path+"."+key.Value, ".")
			if field.Tag.Get("conffile") == limitTag {
				errs = append(errs, emptyLimit(value, key.Line, below)...)
			}
			errs = append(errs, emptyLimits(value, field.Type, below)...)
		}
	}
	return errs
}

// emptyLimit returns a mistake if n, the value of a limit, has nothing in it, or for each of
// its values that has not.
func emptyLimit(n *yaml.Node, line int, path string) (errs []error) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.ShortTag() == "!!null" || n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		return []error{fmt.Errorf("line %d: %s: is empty, which would be no limit: give it a value, or take the line out", line, path)}
	}
	if n.Kind != yaml.SequenceNode {
		var at time.Time
		if err := n.Decode(&at); err == nil && at.IsZero() { // any other text is no time
			return []error{fmt.Errorf("line %d: %s: is %s, which would be no limit: give it another time, or take the line out", line, path, n.Value)}
		}
		return nil
	}
	for i, c := range n.Content {
		errs = append(errs, emptyLimit(c, c.Line, fmt.Sprintf("%s[%d]", path, i))...)
	}
	return errs
}

// fieldOf returns the field of a struct that a key is decoded into.
func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if name == key && name != "" {
			return field, true
		}
		if options == "inline" && field.Type.Kind() == reflect.Struct {
			if found, ok := fieldOf(field.Type, key); ok {
				return found, true
			}
		}
	}
	return reflect.StructField{}, false
}
