package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// headerBatches says how many batches of inputs there are, for progress.
const headerBatches = "Muster-Batches"

// errNoInputs means that this provisioner was made without inputs.
var errNoInputs = errors.New("this provisioner records no inputs")

// inputsRoute serves what decisions saw, newline-delimited JSON, as a stream:
// what goes wrong after its beginning cuts it off.
func inputsRoute(s *Server) {
	const pattern = "GET /v1/inputs"
	s.raw(pattern, func(w http.ResponseWriter, r *http.Request) {
		age, err := ageOf(r)
		switch {
		case s.cfg.Inputs == nil:
			problemOf(errNoInputs).write(w)
			return
		case err != nil:
			problemOf(err).write(w)
			return
		case r.Method == http.MethodHead: // nothing is read for an answer that has no body
			w.Header().Set("Content-Type", typeNDJSON)
			return
		}
		begun := false
		err = s.cfg.Inputs(r.Context(), age, func(batches uint64) {
			begun = true
			w.Header().Set("Content-Type", typeNDJSON)
			w.Header().Set(headerBatches, strconv.FormatUint(batches, 10))
			w.WriteHeader(http.StatusOK)
		}, s.unhurried(w, r, pattern))
		switch {
		case err == nil:
		case !begun:
			s.cfg.Log.ErrorContext(r.Context(), "inputs not read", "by", by(r.Context()), "err", err)
			problemOf(err).write(w)
		default:
			s.cfg.Log.InfoContext(r.Context(), "inputs not read to their end", "by", by(r.Context()), "err", err)
			panic(http.ErrAbortHandler) // all that can still be said: it is not whole
		}
	})
}

// ageOf returns how far back inputs are asked for.
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

// Inputs asks for what decisions saw in the last age, and returns it with the
// number of its batches: a [policies.Recording] in JSON a line, and a blank line
// after each batch. Close it. Errors are those of [Client.Do].
func (c *Client) Inputs(ctx context.Context, age time.Duration) (body io.ReadCloser, batches int, err error) {
	resp, err := c.send(ctx, http.MethodGet, "/v1/inputs?age="+url.QueryEscape(age.String()), "", nil)
	if err != nil {
		return nil, 0, err
	}
	batches, _ = strconv.Atoi(resp.Header.Get(headerBatches)) // 0 shows no end
	return resp.Body, batches, nil
}
