package httpapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/provisioner/trust"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/httpapi"
)

// TestMain holds the tests of this package together to the whole contract: when all
// of them were run, every route has done what it is for at least once.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" &&
		flag.Lookup("test.list").Value.String() == "" && !testing.Short() {
		for _, pattern := range routes().Routes() {
			if _, ok := answered.Load(pattern); !ok && elsewhere[pattern] == "" {
				fmt.Fprintf(os.Stderr, "no test has %s do what it is for\n", pattern)
				code = 1
			}
		}
	}
	os.Exit(code) //nolint:forbidigo // what TestMain is for
}

// answered are the patterns of the routes that have answered with success.
var answered sync.Map

// elsewhere are the routes that need a store which has lost something to do what
// they are for, and the tests of that; here they only refuse.
var elsewhere = map[string]string{
	"POST /v1/tokens/{tid}/unfreeze": "a recovery that has frozen tokens: internal/testbed",
	"POST /v1/recovery/end":          "a recovery: internal/testbed",
	"POST /v1/tokens/{tid}/release":  "a claim whose node died: provisioner/withfleet/release_test.go",
	"POST /v1/sessions/{id}/end":     "a session of OpenID Connect: sessions_test.go",
	"POST /v1/webhooks/{name}/test":  "an endpoint that answers: cmd/muster/webhook_test.go",
}

// A contract is the document that the provisioner serves, to hold its answers to.
type contract struct {
	Paths map[string]map[string]struct {
		Responses map[string]struct {
			Content map[string]any
			Ref     string `json:"$ref"`
		}
	}
	compiler *jsonschema.Compiler
	mu       sync.Mutex // of the compiler, and of what it has made
}

var theContract = sync.OnceValues(func() (*contract, error) {
	b, err := httpapi.OpenAPI()
	if err != nil {
		return nil, err
	}
	c := &contract{compiler: jsonschema.NewCompiler()}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err == nil {
		err = json.Unmarshal(b, c)
	}
	if err != nil {
		return nil, err
	}
	closed(whole.(map[string]any)["components"])
	c.compiler.AssertFormat()
	return c, c.compiler.AddResource("openapi.json", whole)
})

// closed has objects have no members that are not described.
func closed(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["properties"].(map[string]any); ok && v["type"] == "object" && v["additionalProperties"] == nil {
			v["additionalProperties"] = false
		}
		for _, in := range v {
			closed(in)
		}
	case []any:
		for _, in := range v {
			closed(in)
		}
	}
}

// TestTheDocumentIsOpenAPI holds the document to the schema of OpenAPI 3.1, each schema in it to that of JSON Schema,
// the routes of the server and their roles to it and the reverse, and the lists of names in it to ours.
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
	if err := errors.Join(c.AddResource("openapi", v), c.AddResource("document.json", whole)); err != nil {
		t.Fatal(err)
	}
	if err := c.MustCompile("openapi").Validate(whole); err != nil {
		t.Error(err)
	}
	schemas := whole["components"].(map[string]any)["schemas"].(map[string]any)
	for name := range schemas {
		if _, err := c.Compile("document.json#/components/schemas/" + name); err != nil {
			t.Errorf("schema of %s: %v", name, err)
		}
	}
	described := make(map[string]string) // role by pattern
	ids := make(map[any]bool)
	for path, methods := range whole["paths"].(map[string]any) {
		for method, operation := range methods.(map[string]any) {
			o := operation.(map[string]any)
			ids[o["operationId"]] = true
			role := ""
			for _, way := range o["security"].([]any) {
				for _, roles := range way.(map[string]any) {
					role = roles.([]any)[0].(string)
				}
			}
			described[strings.ToUpper(method)+" "+path] = role
		}
	}
	served := make(map[string]string)
	for _, pattern := range routes().Routes() {
		served[pattern], _ = routes().Access(pattern)
	}
	if diff := cmp.Diff(served, described); diff != "" || len(ids) != len(served) {
		t.Errorf("routes and roles (-), and what is described of them (+); %d names:\n%s", len(ids), diff)
	}
	codes := names(events.AlarmCodes)
	codes = append(codes, names(slices.Collect(maps.Keys(wire.Codes)))...)
	var emitted []string
	for _, m := range events.Types {
		emitted = append(emitted, string(m.Type))
	}
	for schema, want := range map[string][]string{
		"Code":      codes,
		"EventType": emitted,
		"Verb":      names(wire.Verbs),
		"Role":      names(trust.OperatorRoles()),
		"Ground":    names(provisioner.Reasons),
	} {
		slices.Sort(want)
		var got []string
		for _, v := range schemas[schema].(map[string]any)["enum"].([]any) {
			got = append(got, v.(string))
		}
		slices.Sort(got)
		if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
			t.Errorf("schema of %s (- is missing, + is unknown):\n%s", schema, diff)
		}
	}
}

func names[T ~string](all []T) (texts []string) {
	for _, v := range all {
		texts = append(texts, string(v))
	}
	return texts
}

// observed has every answer to the client held to the contract: what breaks it is
// an error of the request.
func observed(c *httpapi.Client) *httpapi.Client { return c.Observe(observe) }

func observe(next http.RoundTripper) http.RoundTripper { return observer{next} }

type observer struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (o observer) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	c, err := theContract()
	if err == nil {
		err = c.check(r, resp)
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("against the contract: %s %s answered %d: %w", r.Method, r.URL.Path, resp.StatusCode,
			err)
	}
	return resp, nil
}

// check holds an answer to what is described. Bodies of streams are left alone.
func (c *contract) check(r *http.Request, resp *http.Response) error {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	path, ok := c.route(r)
	place := "/components/schemas/Problem"
	if ok {
		described := c.Paths[path][strings.ToLower(r.Method)].Responses
		switch _, ok := described["200"].Content[media]; {
		case resp.StatusCode != http.StatusOK: // a problem
			if described["default"].Ref == "" || media != "application/problem+json" {
				return fmt.Errorf("a problem as %q is not described", media)
			}
		case !ok:
			return fmt.Errorf("content type %q is not described", media)
		default:
			answered.Store(r.Method+" "+path, true)
			place = pointer("paths", path, strings.ToLower(r.Method), "responses", "200", "content", media, "schema")
		}
	} else if other := r.Header.Get("Sec-Fetch-Site") != ""; resp.StatusCode != http.StatusNotFound &&
		resp.StatusCode != http.StatusMethodNotAllowed && !other {
		return fmt.Errorf("a route that is not described")
	}
	if !strings.HasSuffix(media, "json") || media == "application/x-ndjson" {
		return nil
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(b))
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return err
	}
	return c.valid(place, v)
}

// valid holds a value to the schema at a place of the document.
func (c *contract) valid(place string, v any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	schema, err := c.compiler.Compile("openapi.json#" + place)
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

// route returns the described path that a request's is one of. A path that has no
// parameter comes before one that has.
func (c *contract) route(r *http.Request) (found string, ok bool) {
	parts := strings.Split(r.URL.EscapedPath(), "/")
	for path, methods := range c.Paths {
		if _, has := methods[strings.ToLower(r.Method)]; !has || ok && !strings.Contains(found, "{") {
			continue
		}
		want := strings.Split(path, "/")
		same := len(want) == len(parts)
		for i := 0; same && i < len(want); i++ {
			same = want[i] == parts[i] || strings.HasPrefix(want[i], "{")
		}
		if same && (!ok || !strings.Contains(path, "{")) {
			found, ok = path, true
		}
	}
	return found, ok
}

func pointer(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(p))
	}
	return b.String()
}

// described holds JSON to a component of the contract.
func described(t *testing.T, component string, text []byte) error {
	t.Helper()
	c, err := theContract()
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return c.valid("/components/schemas/"+component, v)
}
