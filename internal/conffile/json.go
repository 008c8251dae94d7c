package conffile

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// maxNodes bounds what aliases in YAML may become.
const maxNodes = 1 << 18

// jsonNumber is the grammar of RFC 8259: such a number is kept as it is written.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// ToJSON returns one YAML document as JSON. Numbers and times stay as they are written, and keys become texts.
// Duplicate keys are errors.
func ToJSON(b []byte) ([]byte, error) {
	if err := CheckYAML(b); err != nil { // also aliases that grow without bound
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(b, &document); err != nil {
		return nil, err
	}
	left := maxNodes
	v, err := jsonValue(&document, &left)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

func jsonValue(n *yaml.Node, left *int) (any, error) {
	if *left--; *left < 0 {
		return nil, fmt.Errorf("more than %d values", maxNodes)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return jsonValue(n.Content[0], left)
	case yaml.AliasNode:
		return jsonValue(n.Alias, left)
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, c := range n.Content {
			var err error
			if list[i], err = jsonValue(c, left); err != nil {
				return nil, err
			}
		}
		return list, nil
	case yaml.MappingNode:
		return jsonObject(n, left)
	case yaml.ScalarNode:
		return jsonScalar(n)
	}
	return nil, errors.New("no value in it")
}

func jsonObject(n *yaml.Node, left *int) (any, error) {
	object := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.ShortTag() == "!!merge":
			return nil, fmt.Errorf("line %d: the merge key << is not supported", key.Line)
		case key.Kind == yaml.AliasNode:
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: a key that is a list or a map", key.Line)
		}
		if _, twice := object[key.Value]; twice {
			return nil, fmt.Errorf("line %d: key %.80q is there twice", key.Line, key.Value)
		}
		v, err := jsonValue(n.Content[i+1], left)
		if err != nil {
			return nil, err
		}
		object[key.Value] = v
	}
	return object, nil
}

func jsonScalar(n *yaml.Node) (any, error) {
	var v any
	switch n.ShortTag() {
	case "!!int", "!!float":
		if jsonNumber.MatchString(n.Value) {
			return json.Number(n.Value), nil
		}
		if err := n.Decode(&v); err != nil {
			return nil, err
		}
		if _, err := json.Marshal(v); err != nil { // an infinite number
			return nil, fmt.Errorf("line %d: %.40s is no number of JSON", n.Line, n.Value)
		}
		return v, nil
	case "!!bool", "!!null":
		err := n.Decode(&v)
		return v, err
	default:
		return n.Value, nil
	}
}
