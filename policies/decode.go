package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// decided are the rules of data.muster.enroll that make up a decision, with
// the types that a rule may statically have (see [checkTypes]). Any other
// rule of the package is a helper of the policy's own.
var decided = map[string][]string{
	"allow":         {"boolean"},
	"deny":          {"set", "array"},
	"defer":         {"boolean"},
	"approval":      {"boolean"},
	"shutdown":      {"boolean"},
	"reasons":       {"set", "array"},
	"certificate":   {"object"},
	"configuration": {"object"},
}

// newDecision makes a decision from what the policy gave: per member an array
// that is empty if the rule is undefined and else holds its value.
func newDecision(result ast.Value) (*Decision, error) {
	object, ok := result.(ast.Object)
	if !ok {
		return nil, fmt.Errorf("result is %T, want an object", result)
	}
	given := make(map[string]any, object.Len())
	err := object.Iter(func(name, list *ast.Term) error {
		array, _ := list.Value.(*ast.Array)
		if array == nil || array.Len() == 0 {
			return nil
		}
		if array.Len() > 1 {
			return fmt.Errorf("%s has %d values, want 1", name, array.Len())
		}
		v, err := ast.JSON(array.Elem(0).Value)
		given[string(name.Value.(ast.String))] = v
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, ok := given["allow"]; !ok {
		return nil, errors.New("allow is undefined: add `default allow := false`")
	}
	var d Decision
	for _, m := range []struct {
		name   string
		decode func(any) error
	}{
		{"allow", boolean(&d.Allow)},
		{"deny", reasons(&d.Deny)},
		{"defer", boolean(&d.Defer)},
		{"approval", boolean(&d.Approval)},
		{"shutdown", boolean(&d.Shutdown)},
		{"reasons", reasons(&d.Reasons)},
		{"certificate", d.Certificate.decode},
		{"configuration", d.decodeConfiguration},
	} {
		v, ok := given[m.name]
		if !ok {
			continue
		}
		if err := m.decode(v); err != nil {
			return nil, fmt.Errorf("%s %w", m.name, err)
		}
	}
	return &d, nil
}

func boolean(dst *bool) func(any) error {
	return func(v any) error {
		b, ok := v.(bool)
		if !ok {
			return fmt.Errorf("is %s, want a boolean", kind(v))
		}
		*dst = b
		return nil
	}
}

func texts(dst *[]string) func(any) error {
	return func(v any) error {
		list, ok := v.([]any)
		if !ok {
			return fmt.Errorf("is %s, want a set or an array of strings", kind(v))
		}
		for _, e := range list {
			s, ok := e.(string)
			if !ok {
				return fmt.Errorf("holds %s, want strings only", kind(e))
			}
			*dst = append(*dst, s)
		}
		slices.Sort(*dst)
		*dst = slices.Compact(*dst)
		return nil
	}
}

func reasons(dst *[]string) func(any) error {
	return func(v any) error {
		if err := texts(dst)(v); err != nil {
			return err
		}
		if more := len(*dst) - MaxReasons; more > 0 {
			*dst = append((*dst)[:MaxReasons-1], fmt.Sprintf("and %d more", more+1))
		}
		for i, s := range *dst {
			(*dst)[i] = cut(s, MaxReasonBytes)
		}
		return nil
	}
}

// cut returns s in at most n bytes, without half a character at its end.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = "..."
	s = s[:n-len(mark)]
	for len(s) > 0 {
		if r, size := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || size > 1 {
			break
		}
		s = s[:len(s)-1]
	}
	return s + mark
}

func (c *Certificate) decode(v any) error {
	object, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("is %s, want an object", kind(v))
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		var err error
		switch v := object[name]; name {
		case "ttl":
			c.TTL, err = parseTTL(v)
		case "dns_names":
			err = texts(&c.DNSNames)(v)
		case "server_auth":
			err = boolean(&c.ServerAuth)(v)
		default:
			err = errors.New("is unknown, want ttl, dns_names or server_auth")
		}
		if err != nil {
			return fmt.Errorf("member %q %w", name, err)
		}
	}
	return nil
}

func (d *Decision) decodeConfiguration(v any) error {
	object, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("is %s, want an object of strings", kind(v))
	}
	d.Configuration = make(map[string]string, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		s, ok := object[key].(string)
		if !ok {
			return fmt.Errorf("key %q is %s, want a string: server.conf is text", key, kind(object[key]))
		}
		d.Configuration[key] = s
	}
	return nil
}

// kind names the type of a decoded JSON value. It never shows the value, which
// may be a secret of the configuration.
func kind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case json.Number, float64, int:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "an array or a set"
	case map[string]any:
		return "an object"
	default:
		return strings.TrimPrefix(fmt.Sprintf("%T", v), "*")
	}
}
