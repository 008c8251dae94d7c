package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// inputsRoutes serve the inputs of decisions as JSON lines. They hold everything that nodes have reported, so the role
// viewer must not read them.
func inputsRoutes(s *Server) {
	need := access{role: operator}
	answer := stream{need: need, form: typeNDJSON, pieces: "Muster-Batches"}
	s.handle("GET /v1/inputs", need, func(w http.ResponseWriter, r *http.Request) {
		age, err := ageOf(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.stream(w, r, answer, func(ctx context.Context, started func(batches uint64), out *reader) error {
			return s.cfg.Inputs(ctx, age, started, out)
		})
	})
}

func ageOf(r *http.Request) (time.Duration, error) {
	v, err := parameters(r, "age")
	if err != nil {
		return 0, badRequest(err)
	}
	age, err := time.ParseDuration(v.Get("age"))
	if err == nil && age <= 0 {
		err = fmt.Errorf("is %v, want more than 0", age)
	}
	if err != nil {
		return 0, badRequest(fmt.Errorf("age: %w", err))
	}
	return age, nil
}

// Inputs returns the inputs of decisions in the last age and the number of their batches, see [Config.Inputs]. Close
// it. Errors are those of [Client.Do].
func (c *Client) Inputs(ctx context.Context, age time.Duration) (body io.ReadCloser, batches int, err error) {
	return c.stream(ctx, http.MethodGet, "/v1/inputs?age="+url.QueryEscape(age.String()), "Muster-Batches", nil)
}
