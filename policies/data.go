package policies

import (
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"

	"muster/internal/conffile"
	"muster/internal/wire"
)

// data merges the data files into one document.
func data(all []source) (map[string]any, error) {
	root := make(map[string]any)
	for _, s := range all {
		if !s.isData() {
			continue
		}
		if strings.Contains(s.name, "/") {
			return nil, fmt.Errorf("%s: data file in a subdirectory: move it to the directory of the policy", s.path)
		}
		// Duplicate keys are refused: only the last one would count.
		strict := conffile.CheckYAML
		if strings.HasSuffix(s.name, ".json") {
			strict = func(b []byte) error { return wire.CheckStrict(b) }
		}
		if err := strict(s.content); err != nil {
			return nil, fmt.Errorf("%s: %w", s.path, err)
		}
		var document any
		if err := util.Unmarshal(s.content, &document); err != nil {
			return nil, fmt.Errorf("%s: %w", s.path, err)
		}
		object, ok := document.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: is %s, want an object", s.path, kind(ast.MustInterfaceToValue(document)))
		}
		for name, value := range object {
			if _, twice := root[name]; twice {
				return nil, fmt.Errorf("%s: data.%s is given twice", s.path, name)
			}
			root[name] = value
		}
	}
	if _, ok := root["muster"]; ok {
		return nil, errors.New("data.muster is reserved for policies")
	}
	return root, nil
}
