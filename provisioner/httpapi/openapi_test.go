package httpapi_test

import (
	"bytes"
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"muster/provisioner/httpapi"
)

// TestTheDocumentIsOpenAPI asks for the document as a stranger does and holds it to
// the schema of OpenAPI 3.1, and each schema in it to that of JSON Schema.
func TestTheDocumentIsOpenAPI(t *testing.T) {
	t.Parallel()
	f := served(t)
	var whole map[string]any
	if err := remote(t, f, roots(t, f), "").Do(f.Context(), http.MethodGet, "/openapi.json", nil, &whole); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("testdata/openapi-3.1.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi", v); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("openapi")
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(whole); err != nil {
		t.Error(err)
	}
	schemas := whole["components"].(map[string]any)["schemas"].(map[string]any)
	if err := c.AddResource("document.json", whole); err != nil {
		t.Fatal(err)
	}
	for name := range schemas {
		if _, err := c.Compile("document.json#/components/schemas/" + name); err != nil {
			t.Errorf("schema of %s: %v", name, err)
		}
	}
	// A token without a limit has no uses left, and one that was revoked before was never seen.
	for _, name := range []string{"Token", "TokenReport"} {
		token := schemas[name].(map[string]any)
		for member, want := range map[string]string{"left": "integer", "first_seen": "string"} {
			if got := token["properties"].(map[string]any)[member].(map[string]any)["type"]; got != want || slices.Contains(token["required"].([]any), any(member)) {
				t.Errorf("schema of %s: %s is of the type %v, required %v; want %s, and that it may be missing", name, member, got, token["required"], want)
			}
		}
		if !slices.Contains(token["required"].([]any), any("used")) {
			t.Errorf("schema of %s: used may be missing", name)
		}
	}
	var paths int
	ids := make(map[any]bool)
	for _, methods := range whole["paths"].(map[string]any) {
		for _, operation := range methods.(map[string]any) {
			paths++
			ids[operation.(map[string]any)["operationId"]] = true
		}
	}
	if routes := len(httpapi.Routes()); paths != routes || len(ids) != routes {
		t.Errorf("%d operations with %d names, want one for each of the %d routes", paths, len(ids), routes)
	}
}
