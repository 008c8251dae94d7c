package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"muster/provisioner/login"
	"muster/provisioner/trust"
)

const (
	// stallTimeout bounds a write to a client that reads nothing; the client's flush to a slow disk takes seconds.
	stallTimeout = time.Minute

	// checkEvery is the interval of checking the reader's permission. A removal also takes time to spread: access ends
	// within a second.
	checkEvery = 500 * time.Millisecond
)

// A stream is an answer without a time limit. An error after its start closes the connection.
type stream struct {
	need   access // of its route
	form   string // content type
	pieces string // header with the approximate number of pieces, for progress; optional
}

// stream answers with the output of write, which must call started once before it writes.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, to stream,
	write func(ctx context.Context, started func(pieces uint64), out *reader) error,
) {
	w.Header().Set("Content-Type", to.form)
	if r.Method == http.MethodHead { // the answer has no body
		return
	}
	out := &reader{ResponseWriter: w, mayStill: func() error { return s.mayStill(r, to.need.role) }, looked: time.Now()}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the request has been read
	begun := false
	err := write(r.Context(), func(pieces uint64) {
		begun = true
		if to.pieces != "" {
			w.Header().Set(to.pieces, strconv.FormatUint(pieces, 10))
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // if this fails, the next write fails too
	}, out)
	if err == nil {
		return
	}
	s.cfg.Log.WarnContext(r.Context(), "answer not sent to its end", "subject", r.Method+" "+r.URL.Path, "by",
		by(r.Context()), "err", err)
	if begun {
		panic(http.ErrAbortHandler) // the only way to mark the answer as incomplete
	}
	ProblemOf(err).write(w)
}

// A reader is the client of a stream. Writes to it fail when it stalls or loses its permission.
type reader struct {
	http.ResponseWriter

	mayStill func() error
	looked   time.Time // last call of mayStill
}

func (o *reader) Write(p []byte) (int, error) {
	if time.Since(o.looked) >= checkEvery {
		if err := o.mayStill(); err != nil {
			return 0, err
		}
		o.looked = time.Now()
	}
	if err := http.NewResponseController(o.ResponseWriter).SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	return o.ResponseWriter.Write(p)
}

func (o *reader) send(p []byte) error {
	if _, err := o.Write(p); err != nil {
		return err
	}
	return http.NewResponseController(o.ResponseWriter).Flush()
}

// mayStill returns an error if the operator has lost access. If the store does not answer, the stream goes on.
func (s *Server) mayStill(r *http.Request, needs trust.OperatorRole) error {
	before, _ := loginOf(r.Context())
	if !before.remote {
		return nil
	}
	l, err := s.authenticate(r)
	switch {
	case errors.Is(err, login.ErrLogin):
		return err
	case err == nil && !l.Role.Covers(needs):
		return fmt.Errorf("%s now has role %s", l.By, l.Role)
	case err == nil && !slices.Equal(l.Sites, before.Sites):
		return fmt.Errorf("%s is now limited to other sites: %s", l.By, l.Sites)
	}
	return nil
}

// stream returns an answer with its approximate number of pieces. Close it.
func (c *Client) stream(ctx context.Context, method, path, header string, q io.Reader) (io.ReadCloser, int, error) {
	resp, err := c.send(ctx, method, path, "", q)
	if err != nil {
		return nil, 0, err
	}
	pieces, _ := strconv.Atoi(resp.Header.Get(header)) // 0: unknown
	return resp.Body, pieces, nil
}

// inputsRoutes serve the inputs of decisions as JSON lines. They hold everything that nodes have reported, so the role
// viewer must not read them.
func inputsRoutes(s *Server) {
	need := access{role: trust.RoleAuditor}
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

func backupRoutes(s *Server) {
	need := access{role: trust.RoleAdmin, changes: true}
	answer := stream{need: need, form: "application/octet-stream", pieces: "Muster-Messages"}
	s.handle("POST /v1/backup", need, func(w http.ResponseWriter, r *http.Request) {
		cause, err := decode(w, r, need, &Reason{})
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.stream(w, r, answer, func(ctx context.Context, started func(messages uint64), out *reader) error {
			return s.cfg.Backup(ctx, cause.By, func(messages uint64) {
				s.cfg.Orders.Process.BackupBegun(cause)
				started(messages)
			}, out)
		})
	})
}

// Backup starts a backup and returns it with its approximate number of messages. The caller verifies that it is
// complete, and closes it. Errors are those of [Client.Do].
func (c *Client) Backup(ctx context.Context, why string) (body io.ReadCloser, messages int, err error) {
	q, err := json.Marshal(Reason{Why: why})
	if err != nil {
		return nil, 0, err
	}
	return c.stream(ctx, http.MethodPost, "/v1/backup", "Muster-Messages", bytes.NewReader(q))
}
