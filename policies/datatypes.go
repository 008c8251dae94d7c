package policies

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

// maxTyped bounds the members of an object that are checked: larger ones are tables, read with the names of nodes.
const maxTyped = 1000

// typeData returns a module without rules that lets Rego's type checker know the data, as [inputSchema] does for the
// input. It finds missing members that [checkReferences] does not see: behind a local, a rule or an argument. The
// schemas go into set. Data below a package of modules is left out: rules may complete it.
func typeData(root map[string]any, modules map[string]*ast.Module, set *ast.SchemaSet) *ast.Module {
	m := ast.MustParseModuleWithOpts("# METADATA\n# scope: subpackages\n# title: data\npackage data_files",
		ast.ParserOptions{ProcessAnnotation: true})
	m.Package.Path = ast.Ref{ast.DefaultRootDocument}
	packages := make(map[string]bool)
	for _, m := range modules {
		packages[string(m.Package.Path[1].Value.(ast.String))] = true
	}
	for name, value := range root {
		if packages[name] {
			continue
		}
		schema := ast.SchemaRootRef.Append(ast.StringTerm(name))
		set.Put(schema, schemaOfData(value))
		m.Annotations[0].Schemas = append(m.Annotations[0].Schemas, &ast.SchemaAnnotation{
			Path:   ast.DefaultRootRef.Append(ast.StringTerm(name)),
			Schema: schema,
		})
	}
	return m
}

// schemaOfData returns the JSON schema of values, of which each is one that may stand at the same place. Members of
// objects are those of any value. Values of several kinds are unchecked, as are null and tables.
func schemaOfData(values ...any) map[string]any {
	var elements []any
	kinds, members := make(map[string]bool), make(map[string][]any)
	for _, value := range values {
		kinds[jsonKinds[reflect.TypeOf(value)]] = true
		switch value := value.(type) {
		case map[string]any:
			for name, v := range value {
				members[name] = append(members[name], v)
			}
		case []any:
			elements = append(elements, value...)
		}
	}
	schema := make(map[string]any)
	if len(kinds) != 1 {
		return schema
	}
	for kind := range kinds {
		schema["type"] = kind
	}
	if len(elements) > 0 {
		schema["items"] = schemaOfData(elements...)
	}
	if len(members) > 0 && len(members) <= maxTyped {
		properties := make(map[string]any, len(members))
		for name, all := range members {
			properties[name] = schemaOfData(all...)
		}
		schema["properties"] = properties
	}
	return schema
}

var jsonKinds = map[reflect.Type]string{
	nil:                               "null",
	reflect.TypeFor[bool]():           "boolean",
	reflect.TypeFor[string]():         "string",
	reflect.TypeFor[json.Number]():    "number",
	reflect.TypeFor[[]any]():          "array",
	reflect.TypeFor[map[string]any](): "object",
}

// inputSchema lets Rego's type checker reject a misspelled member of `input`. Its rule would be undefined, and a denial
// would never apply.
func inputSchema() *ast.SchemaSet {
	set := ast.NewSchemaSet()
	set.Put(ast.SchemaRootRef, schemaOf(reflect.TypeFor[Input]()))
	return set
}

// schemaOf returns the JSON schema of t for OPA. Nullable values and free JSON are unchecked: OPA has no nullable
// types.
func schemaOf(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string"}
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Pointer:
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	default:
		properties := make(map[string]any, t.NumField())
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			properties[name] = schemaOf(f.Type)
		}
		return map[string]any{"type": "object", "properties": properties}
	}
}
