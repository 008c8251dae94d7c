package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"muster/provisioner/trust"

	"muster/provisioner/login"
)

const (
	// stallTimeout is how long the reader of a stream may take nothing of it: a slow disk that is flushed takes seconds.
	stallTimeout = time.Minute

	// checkEvery is how often it is looked whether the reader of a stream may still have it. With the time after which a
	// removal is known everywhere that is under a second.
	checkEvery = 500 * time.Millisecond
)

// A stream is an answer that takes as long as its reader takes. What goes wrong after its beginning cuts it off.
type stream struct {
	need   access // of its route
	form   string // content type
	pieces string // header with about how many pieces it has, for progress; optional
}

// stream answers with what write writes, after it has called started once.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, to stream,
	write func(ctx context.Context, started func(pieces uint64), out *reader) error,
) {
	w.Header().Set("Content-Type", to.form)
	if r.Method == http.MethodHead { // nothing is read for an answer that has no body
		return
	}
	out := &reader{ResponseWriter: w, mayStill: func() error { return s.mayStill(r, to.need.role) }, looked: time.Now()}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the request was read within its time
	begun := false
	err := write(r.Context(), func(pieces uint64) {
		begun = true
		if to.pieces != "" {
			w.Header().Set(to.pieces, strconv.FormatUint(pieces, 10))
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // the next write fails as well
	}, out)
	if err == nil {
		return
	}
	s.cfg.Log.WarnContext(r.Context(), "answer not read to its end", "subject", r.Method+" "+r.URL.Path, "by", by(r.Context()), "err", err)
	if begun {
		panic(http.ErrAbortHandler) // all that can still be said: it is not whole
	}
	ProblemOf(err).write(w)
}

// A reader takes a stream as long as it goes on taking, and as its operator may have it.
type reader struct {
	http.ResponseWriter

	mayStill func() error
	looked   time.Time // when mayStill was last asked
}

// Write implements [io.Writer].
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

// send writes p at once.
func (o *reader) send(p []byte) error {
	if _, err := o.Write(p); err != nil {
		return err
	}
	return http.NewResponseController(o.ResponseWriter).Flush()
}

// mayStill returns why the reader of a stream may no longer have it: the operator was removed or has another role, or
// the credential has ended. While that is not known the reader may: a store that does not answer has nothing to stream.
func (s *Server) mayStill(r *http.Request, needs trust.OperatorRole) error {
	if l, _ := loginOf(r.Context()); !l.remote {
		return nil
	}
	l, err := s.authenticate(r)
	switch {
	case errors.Is(err, login.ErrLogin):
		return err
	case err == nil && !l.role.Covers(needs):
		return fmt.Errorf("%s is %s now", l.by, l.role)
	}
	return nil
}

// stream asks for a stream, and returns it with about how many pieces it has, which the header says. Close it.
func (c *Client) stream(ctx context.Context, method, path, header string, q io.Reader) (io.ReadCloser, int, error) {
	resp, err := c.send(ctx, method, path, "", q)
	if err != nil {
		return nil, 0, err
	}
	pieces, _ := strconv.Atoi(resp.Header.Get(header)) // 0 shows no end
	return resp.Body, pieces, nil
}
