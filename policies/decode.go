package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"muster/internal/wire"
)

// members are the rules that make a decision, by package. Other rules are the policy's own helpers.
var members = map[string][]string{
	enrollPath: {"allow", "approval", "certificate", "certificates", "configuration", "defer", "deny", "reasons",
		"shutdown"},
	servicePath: {"allow", "approval", "certificate", "defer", "deny", "reasons"},
}

var decisionMembers = map[string]func(*Decision, ast.Value) error{
	"allow":         func(d *Decision, v ast.Value) error { return boolean(&d.Allow, v) },
	"approval":      func(d *Decision, v ast.Value) error { return boolean(&d.Approval, v) },
	"certificate":   func(d *Decision, v ast.Value) error { return d.Certificate.decode(v) },
	"certificates":  (*Decision).decodeCertificates,
	"configuration": func(d *Decision, v ast.Value) error { return textObject(&d.Configuration, v) },
	"defer":         func(d *Decision, v ast.Value) error { return boolean(&d.Defer, v) },
	"deny":          func(d *Decision, v ast.Value) error { return reasons(&d.Deny, v) },
	"reasons":       func(d *Decision, v ast.Value) error { return reasons(&d.Reasons, v) },
	"shutdown":      func(d *Decision, v ast.Value) error { return boolean(&d.Shutdown, v) },
}

var certificateMembers = map[string]func(*Certificate, ast.Value) error{
	"client_auth":  func(c *Certificate, v ast.Value) error { return boolean(&c.ClientAuth, v) },
	"dns_names":    func(c *Certificate, v ast.Value) error { return names(&c.DNSNames, v) },
	"extensions":   func(c *Certificate, v ast.Value) error { return textObject(&c.Extensions, v) },
	"ip_addresses": func(c *Certificate, v ast.Value) error { return texts(&c.IPAddresses, v) },
	"server_auth":  func(c *Certificate, v ast.Value) error { return boolean(&c.ServerAuth, v) },
	"shared":       func(c *Certificate, v ast.Value) error { return names(&c.Shared, v) },
	"ttl":          func(c *Certificate, v ast.Value) error { return lifetime(&c.TTL, v) },
	"uris":         func(c *Certificate, v ast.Value) error { return texts(&c.URIs, v) },
}

// read reads the result of [decisionQuery].
func (d *Decision) read(result ast.Value) error {
	object, ok := result.(ast.Object)
	if !ok {
		return fmt.Errorf("result is %T, want an object", result)
	}
	for _, name := range members[enrollPath] { // it has all names
		v := given(object, name)
		if v == nil && name == "allow" {
			return errors.New("allow is undefined: add `default allow := false`")
		}
		if v == nil {
			continue
		}
		if err := decisionMembers[name](d, v); err != nil {
			return fmt.Errorf("%s %w", name, err)
		}
	}
	return nil
}

// given returns a member's value, nil if its rule is undefined.
func given(object ast.Object, name string) ast.Value {
	list := object.Get(ast.InternedTerm(name))
	if list == nil {
		return nil
	}
	if array, ok := list.Value.(*ast.Array); ok && array.Len() > 0 { // a contradiction failed before
		return array.Elem(0).Value
	}
	return nil
}

func boolean(dst *bool, v ast.Value) error {
	b, ok := v.(ast.Boolean)
	if !ok {
		return fmt.Errorf("is of type %s, want a boolean", ast.ValueName(v))
	}
	*dst = bool(b)
	return nil
}

func texts(dst *[]string, v ast.Value) error {
	list, ok := v.(interface{ Foreach(func(*ast.Term)) }) // a set or an array; an object's Foreach differs
	if !ok {
		return fmt.Errorf("is of type %s, want a set or an array of strings", ast.ValueName(v))
	}
	var err error
	list.Foreach(func(e *ast.Term) {
		s, ok := e.Value.(ast.String)
		if !ok && err == nil {
			err = fmt.Errorf("holds a value of type %s, want strings only", ast.ValueName(e.Value))
		}
		*dst = append(*dst, string(s))
	})
	if err != nil {
		return err
	}
	slices.Sort(*dst)
	*dst = slices.Compact(*dst)
	return nil
}

// names folds them: facts and people write other forms.
func names(dst *[]string, v ast.Value) error {
	err := texts(dst, v)
	for i, name := range *dst {
		(*dst)[i] = wire.FoldName(name)
	}
	slices.Sort(*dst)
	*dst = slices.Compact(*dst)
	return err
}

func reasons(dst *[]string, v ast.Value) error {
	if err := texts(dst, v); err != nil {
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

// cut shortens s to at most n bytes of valid UTF-8.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = "..."
	return strings.ToValidUTF8(s[:n-len(mark)], "") + mark
}

func (c *Certificate) decode(v ast.Value) error {
	object, ok := v.(ast.Object)
	if !ok {
		return fmt.Errorf("is of type %s, want an object", ast.ValueName(v))
	}
	return object.Iter(func(key, value *ast.Term) error { // sorted by key
		name := keyText(key)
		read := certificateMembers[name]
		if read == nil {
			return fmt.Errorf("member %.80q is unknown, want ttl, dns_names, ip_addresses or server_auth; for a node "+
				"also extensions; for a service certificate also uris, shared or client_auth", name)
		}
		if err := read(c, value.Value); err != nil {
			return fmt.Errorf("member %.80q %w", name, err)
		}
		return nil
	})
}

func (d *Decision) decodeCertificates(v ast.Value) error {
	if _, ok := v.(ast.Object); !ok {
		return fmt.Errorf("is of type %s, want an object of specifications", ast.ValueName(v))
	}
	document, err := ast.JSON(v) // sets become arrays
	if err != nil {
		return err
	}
	b, err := json.Marshal(document)
	if err != nil {
		return err
	}
	return wire.DecodeStrict(b, &d.Certificates)
}

func textObject(dst *map[string]string, v ast.Value) error {
	object, ok := v.(ast.Object)
	if !ok {
		return fmt.Errorf("is of type %s, want an object of strings", ast.ValueName(v))
	}
	*dst = make(map[string]string, object.Len())
	return object.Iter(func(key, value *ast.Term) error { // sorted by key
		name := keyText(key)
		s, ok := value.Value.(ast.String)
		if !ok {
			return fmt.Errorf("key %.80q is of type %s, want a string", name, ast.ValueName(value.Value))
		}
		(*dst)[name] = string(s)
		return nil
	})
}

// keyText returns an object's key as in JSON: Rego's keys need not be strings.
func keyText(key *ast.Term) string {
	if s, ok := key.Value.(ast.String); ok {
		return string(s)
	}
	return key.Value.String()
}
