package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"muster/provisioner"
)

const (
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
)

// An exchange is what goes over the wire on a route: the types that its handler
// decodes and encodes, so that the document cannot say otherwise.
type exchange struct {
	asks    reflect.Type // of the body; [none] without one
	answers reflect.Type // in JSON; nil if the answer has another form
	media   []string     // the forms of other answers
}

// The parts of a document in OpenAPI 3.1 that we have.
type (
	document struct {
		OpenAPI    string                          `json:"openapi"`
		Info       info                            `json:"info"`
		Paths      map[string]map[string]operation `json:"paths"`
		Components components                      `json:"components"`
	}
	info struct {
		Title       string `json:"title"`
		Version     string `json:"version"`
		Description string `json:"description"`
	}
	components struct {
		Schemas  map[string]*jsonschema.Schema `json:"schemas"`
		Security map[string]map[string]string  `json:"securitySchemes"`
	}
	operation struct {
		ID        string                `json:"operationId"`
		Summary   string                `json:"summary"`
		Tags      []string              `json:"tags"`
		Security  []map[string][]string `json:"security"`
		Inputs    []parameter           `json:"parameters,omitempty"`
		Body      *body                 `json:"requestBody,omitempty"`
		Responses map[string]response   `json:"responses"`
	}
	parameter struct {
		Name        string             `json:"name"`
		In          string             `json:"in"`
		Description string             `json:"description,omitempty"`
		Required    bool               `json:"required,omitempty"`
		Schema      *jsonschema.Schema `json:"schema"`
	}
	body struct {
		Required bool                 `json:"required"`
		Content  map[string]mediaType `json:"content"`
	}
	response struct {
		Description string               `json:"description"`
		Content     map[string]mediaType `json:"content"`
	}
	mediaType struct {
		Schema *jsonschema.Schema `json:"schema"`
	}
)

const documentHelp = `Operators' API of a muster provisioner. Any provisioner of an installation answers, and all see a change within a second.

Come in with an operator's certificate (mutual TLS) or with a token that the operator has signed. A change says why: ` + "`why`" + ` in its body
goes into the event and the history. Members that are not described are refused in requests; ignore them in answers of a later version.`

// openAPIRoute serves the description of all routes. It is the same as long as
// the process lives.
func (s *Server) openAPIRoute() {
	s.raw("GET /openapi.json", exchange{asks: reflect.TypeFor[none](), media: []string{typeJSON}}, func(w http.ResponseWriter, r *http.Request) {
		b, err := s.OpenAPI()
		if err != nil {
			s.fail(w, r, err)
			return
		}
		w.Header().Set("Content-Type", typeJSON)
		_, _ = w.Write(b) // the client has gone
	})
}

// OpenAPI returns the document that GET /openapi.json answers with, in JSON. It
// is made by the first call and must not be changed. It is safe for concurrent
// use, and the server need not run.
func (s *Server) OpenAPI() ([]byte, error) { return s.openAPI() }

// describe returns the document.
func (s *Server) describe() ([]byte, error) {
	types := []reflect.Type{reflect.TypeFor[Problem](), reflect.TypeFor[provisioner.StoredEvent](), reflect.TypeFor[provisioner.Event]()}
	for _, pattern := range Routes() {
		types = append(types, s.served[pattern].asks)
		if t := s.served[pattern].answers; t != nil {
			types = append(types, t)
		}
	}
	known, err := newSchemas(types)
	if err != nil {
		return nil, err
	}
	d := document{OpenAPI: "3.1.1", Info: info{Title: "muster", Version: "1", Description: documentHelp}, Paths: make(map[string]map[string]operation)}
	if d.Components.Schemas, err = known.components(); err != nil {
		return nil, err
	}
	d.Components.Security = map[string]map[string]string{
		"certificate": {"type": "mutualTLS", "description": "An operator's certificate, of `muster operator add --certificate`."},
		"token":       {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "A token of `muster operator token`."},
	}
	for _, pattern := range Routes() {
		method, path, _ := strings.Cut(pattern, " ")
		if d.Paths[path] == nil {
			d.Paths[path] = make(map[string]operation)
		}
		if d.Paths[path][strings.ToLower(method)], err = s.operation(pattern, known); err != nil {
			return nil, fmt.Errorf("describe %s: %w", pattern, err)
		}
	}
	return json.Marshal(d)
}

// operation describes one route.
func (s *Server) operation(pattern string, known *schemas) (op operation, err error) {
	method, path, _ := strings.Cut(pattern, " ")
	says, need, over := descriptions[pattern], routes[pattern], s.served[pattern]
	op = operation{ID: operationID(method, path), Summary: says.does, Tags: []string{tag(path)}, Security: []map[string][]string{}, Responses: make(map[string]response)}
	if need.role != anybody {
		op.Security = []map[string][]string{{"certificate": {string(need.role)}}, {"token": {string(need.role)}}}
	}
	for _, part := range strings.Split(path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			op.Inputs = append(op.Inputs, parameter{Name: strings.TrimSuffix(name, "}"), In: "path", Required: true, Schema: text})
		}
	}
	op.Inputs = append(op.Inputs, says.inputs...)
	if over.asks != reflect.TypeFor[none]() {
		schema, err := known.of(over.asks)
		if err != nil {
			return op, err
		}
		op.Body = &body{Required: need.changes, Content: map[string]mediaType{typeJSON: {schema}}}
	}
	good := response{Description: "done", Content: make(map[string]mediaType)}
	for _, m := range over.media {
		good.Content[m] = mediaType{&jsonschema.Schema{}}
	}
	if over.answers != nil {
		schema, err := known.of(over.answers)
		if err != nil {
			return op, err
		}
		good.Content[typeJSON] = mediaType{schema}
	}
	op.Responses["200"] = good
	for _, status := range failures(pattern) {
		op.Responses[strconv.Itoa(status)] = response{
			Description: http.StatusText(status),
			Content:     map[string]mediaType{typeProblem: {&jsonschema.Schema{Ref: schemaPlace + "Problem"}}},
		}
	}
	return op, nil
}

// failures are the statuses besides 200 that a route may answer with: those that
// come with what the route is, and its own.
func failures(pattern string) []int {
	all := append([]int{http.StatusBadRequest, http.StatusInternalServerError, http.StatusServiceUnavailable}, descriptions[pattern].fails...)
	if routes[pattern].role != anybody {
		all = append(all, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests)
	}
	if routes[pattern].changes {
		all = append(all, http.StatusConflict, http.StatusInsufficientStorage)
	}
	if strings.Contains(pattern, "{") {
		all = append(all, http.StatusNotFound)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// operationID makes getNodesIdentityHistory of GET /v1/nodes/{identity}/history.
func operationID(method, path string) string {
	id := strings.ToLower(method)
	for _, word := range strings.FieldsFunc(strings.TrimPrefix(path, "/v1"), func(r rune) bool { return strings.ContainsRune("/{}._", r) }) {
		id += strings.ToUpper(word[:1]) + word[1:]
	}
	return id
}

// tag is what routes are gathered under.
func tag(path string) string {
	if rest, ok := strings.CutPrefix(path, "/v1/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		name, _, _ = strings.Cut(name, ".")
		return name
	}
	return "process"
}
