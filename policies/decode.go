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

func (d *Decision) decode(member string, v ast.Value) error {
	switch member {
	case "allow":
		return boolean(&d.Allow, v)
	case "approval":
		return boolean(&d.Approval, v)
	case "certificate":
		return d.Certificate.decode(v)
	case "certificates":
		return d.decodeCertificates(v)
	case "configuration":
		return d.decodeConfiguration(v)
	case "defer":
		return boolean(&d.Defer, v)
	case "deny":
		return reasons(&d.Deny, v)
	case "reasons":
		return reasons(&d.Reasons, v)
	default:
		return boolean(&d.Shutdown, v)
	}
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
		if err := d.decode(name, v); err != nil {
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
		return fmt.Errorf("is %s, want a boolean", kind(v))
	}
	*dst = bool(b)
	return nil
}

func texts(dst *[]string, v ast.Value) error {
	list, ok := v.(interface{ Foreach(func(*ast.Term)) }) // a set or an array; an object's Foreach differs
	if !ok {
		return fmt.Errorf("is %s, want a set or an array of strings", kind(v))
	}
	var err error
	list.Foreach(func(e *ast.Term) {
		s, ok := e.Value.(ast.String)
		if !ok && err == nil {
			err = fmt.Errorf("holds %s, want strings only", kind(e.Value))
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
		return fmt.Errorf("is %s, want an object", kind(v))
	}
	return object.Iter(func(key, value *ast.Term) error { // sorted by key
		var err error
		name := keyText(key)
		switch name {
		case "ttl":
			c.TTL, err = parseTTL(value.Value)
		case "dns_names":
			err = names(&c.DNSNames, value.Value)
		case "extensions":
			c.Extensions, err = textObject(value.Value)
		case "ip_addresses":
			err = texts(&c.IPAddresses, value.Value)
		case "server_auth":
			err = boolean(&c.ServerAuth, value.Value)
		case "uris":
			err = texts(&c.URIs, value.Value)
		case "shared":
			err = names(&c.Shared, value.Value)
		case "client_auth":
			err = boolean(&c.ClientAuth, value.Value)
		default:
			err = errors.New("is unknown, want ttl, dns_names, ip_addresses or server_auth; for a node also " +
				"extensions; for a service certificate also uris, shared or client_auth")
		}
		if err != nil {
			return fmt.Errorf("member %.80q %w", name, err)
		}
		return nil
	})
}

func (d *Decision) decodeConfiguration(v ast.Value) (err error) {
	d.Configuration, err = textObject(v)
	return err
}

func (d *Decision) decodeCertificates(v ast.Value) error {
	if _, ok := v.(ast.Object); !ok {
		return fmt.Errorf("is %s, want an object of specifications", kind(v))
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

func textObject(v ast.Value) (map[string]string, error) {
	object, ok := v.(ast.Object)
	if !ok {
		return nil, fmt.Errorf("is %s, want an object of strings", kind(v))
	}
	texts := make(map[string]string, object.Len())
	return texts, object.Iter(func(key, value *ast.Term) error { // sorted by key
		name := keyText(key)
		s, ok := value.Value.(ast.String)
		if !ok {
			return fmt.Errorf("key %.80q is %s, want a string", name, kind(value.Value))
		}
		texts[name] = string(s)
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

// kind names the type of a value for messages: the value itself may be a secret.
func kind(v ast.Value) string {
	switch v.(type) {
	case ast.Null:
		return "null"
	case ast.Boolean:
		return "a boolean"
	case ast.Number:
		return "a number"
	case ast.String:
		return "a string"
	case *ast.Array, ast.Set:
		return "an array or a set"
	case ast.Object:
		return "an object"
	default:
		return ast.ValueName(v)
	}
}
