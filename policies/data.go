package policies

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"

	"muster/internal/conffile"
	"muster/internal/wire"
)

// data merges the data files into one document. As in OPA's bundles, a file
// in a subdirectory is found below a member of that name. `data.muster` is
// the policies' own.
func data(all []source) (map[string]any, error) {
	root := make(map[string]any)
	for _, s := range all {
		if !s.isData() {
			continue
		}
		// Of a name that is given twice, of those to keep out say, only the last would count.
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
		if dir := path.Dir(s.name); dir != "." {
			elements := strings.Split(dir, "/")
			slices.Reverse(elements)
			for _, e := range elements {
				object = map[string]any{e: object}
			}
		}
		if err := merge(root, object, "data"); err != nil {
			return nil, fmt.Errorf("%s: %w", s.path, err)
		}
	}
	if _, ok := root["muster"]; ok {
		return nil, errors.New("data.muster is for policies, not for data")
	}
	return root, nil
}

// merge adds src to dst, object by object. at is where they are, for errors.
func merge(dst, src map[string]any, at string) error {
	for _, name := range slices.Sorted(maps.Keys(src)) {
		old, ok := dst[name]
		if !ok {
			dst[name] = src[name]
			continue
		}
		a, ok1 := old.(map[string]any)
		b, ok2 := src[name].(map[string]any)
		if !ok1 || !ok2 {
			return fmt.Errorf("%s.%s is given twice", at, name)
		}
		if err := merge(a, b, at+"."+name); err != nil {
			return err
		}
	}
	return nil
}
