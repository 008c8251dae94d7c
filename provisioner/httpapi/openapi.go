package httpapi

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"sync"

	"go.yaml.in/yaml/v3"
)

// document is written by hand. Tests compare it with the routes and their answers.
//
//go:embed openapi.yaml
var document []byte

// OpenAPI returns the description of the API in JSON. Do not modify it.
var OpenAPI = sync.OnceValues(func() ([]byte, error) {
	var d any
	if err := yaml.Unmarshal(document, &d); err != nil {
		return nil, err
	}
	return json.Marshal(d)
})

func openAPIRoute(s *Server) {
	s.handle("GET /openapi.json", access{}, func(w http.ResponseWriter, r *http.Request) {
		b, err := OpenAPI()
		if err != nil {
			s.fail(w, r, err)
			return
		}
		w.Header().Set("Content-Type", typeJSON)
		_, _ = w.Write(b) // the client has gone
	})
}
