package conffile

import (
	"encoding/json"
	"errors"

	"go.yaml.in/yaml/v3"
)

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
