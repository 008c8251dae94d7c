package httpapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	_ "muster/internal/eventcheck" // checks what fleets emit
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// TestMain holds the tests of this package together to the whole contract: when all
// of them were run, every route has done what it is for at least once.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" &&
		flag.Lookup("test.list").Value.String() == "" && !testing.Short() {
		for _, pattern := range httpapi.Routes() {
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
	"POST /v1/tokens/{tid}/thaw":    "a restore that has frozen tokens: internal/daemon",
	"POST /v1/tokens/{tid}/release": "a claim whose node died: provisioner/withfleet/release_test.go",
	"POST /v1/webhooks/{name}/test": "an endpoint that answers: cmd/muster/webhook_test.go",
}

// A contract is the document that the provisioner serves, to hold its answers to.
type contract struct {
	paths map[string]map[string]struct {
		Responses map[string]struct{ Content map[string]any }
	}
	compiler *jsonschema.Compiler
	mu       sync.Mutex // of the compiler, and of what it has made
}

var theContract = sync.OnceValues(func() (*contract, error) {
	s, err := httpapi.New(httpapi.Config{Socket: "unused", Provisioner: &provisioner.Provisioner{}}) // serves nobody
	if err != nil {
		return nil, err
	}
	b, err := s.OpenAPI()
	if err != nil {
		return nil, err
	}
	var d struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct{ Content map[string]any }
		}
	}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err != nil {
		return nil, err
	}
	c := &contract{paths: d.Paths, compiler: jsonschema.NewCompiler()}
	c.compiler.AssertFormat()
	return c, c.compiler.AddResource("openapi.json", whole)
})

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
		return nil, fmt.Errorf("against the contract: %s %s answered %d: %w", r.Method, r.URL.Path, resp.StatusCode, err)
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
		status := strconv.Itoa(resp.StatusCode)
		described, ok := c.paths[path][strings.ToLower(r.Method)].Responses[status]
		if !ok {
			return fmt.Errorf("no such status is described")
		}
		if _, ok := described.Content[media]; !ok {
			return fmt.Errorf("content type %q is not described", media)
		}
		if resp.StatusCode == http.StatusOK {
			answered.Store(r.Method+" "+path, true)
		}
		place = pointer("paths", path, strings.ToLower(r.Method), "responses", status, "content", media, "schema")
	} else if other := r.Header.Get("Sec-Fetch-Site") != ""; resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusMethodNotAllowed && !other {
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
	for path, methods := range c.paths {
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
