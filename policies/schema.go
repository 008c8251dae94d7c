package policies

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

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
	default:
		properties := make(map[string]any, t.NumField())
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			properties[name] = schemaOf(f.Type)
		}
		return map[string]any{"type": "object", "properties": properties}
	}
}
