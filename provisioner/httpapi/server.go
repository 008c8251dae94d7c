package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"muster/internal/wire"
)

// Bounds on one exchange; chosen. A listing of a large store takes seconds.
const (
	maxBodyBytes  = 64 << 10
	readTimeout   = 10 * time.Second
	answerTimeout = 5 * time.Minute
	stopTimeout   = 5 * time.Second
)

// A Server answers operators. Make one with [New], then Open and Run it, once.
type Server struct {
	cfg    Config
	mux    *http.ServeMux
	socket *net.UnixListener // set by Open

	stopping context.Context // ends streams when Run is to return
	stop     context.CancelFunc
}

// Open makes the socket: who connects from now on waits for Run.
func (s *Server) Open() (err error) {
	s.socket, err = listen(s.cfg.Socket)
	return err
}

// Run serves until ctx is done, then finishes what it has in hand, for a few
// seconds, and returns nil. It owns every goroutine of the server.
func (s *Server) Run(ctx context.Context) (err error) {
	srv := &http.Server{
		Handler: s.mux, ReadTimeout: readTimeout, WriteTimeout: answerTimeout,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, peerName(c))
		},
		ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelWarn),
	}
	defer s.stop()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(s.socket) }()
	select {
	case err = <-served:
	case <-ctx.Done():
		s.stop()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if srv.Shutdown(stop) != nil {
			_ = srv.Close() // whoever still waits has had its time
		}
		err = <-served
	}
	_ = os.Remove(s.cfg.Socket) // a stale one says the same: nobody answers
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("control socket: %w", err)
}

type peerKey struct{}

// by returns who asks, for events and history.
func by(ctx context.Context) string {
	name, _ := ctx.Value(peerKey{}).(string)
	return name
}

// route serves method and path with do: it gets the request's body, decoded
// strictly, and returns what is to be answered, or an error for problemOf.
func route[Q, A any](s *Server, pattern string, do func(r *http.Request, q *Q) (A, error)) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var q Q
		a, err := *new(A), decode(w, r, &q)
		if err == nil {
			a, err = do(r, &q)
		}
		if err != nil {
			p := problemOf(err)
			s.cfg.Log.InfoContext(r.Context(), "operator's request failed", "subject", r.Method+" "+r.URL.Path, "by", by(r.Context()), "err", err)
			p.write(w)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a) // the client has gone
	})
}

// none is the body of requests that have none, and of answers that say only
// that it is done.
type none struct{}

// decode reads the body of a request into q. No body is an empty object.
func decode(w http.ResponseWriter, r *http.Request, q any) error {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		return badRequest(fmt.Errorf("request body: %w", err))
	}
	if len(b) == 0 {
		return nil
	}
	if err := wire.DecodeStrict(b, q); err != nil {
		return badRequest(fmt.Errorf("request body: %w", err))
	}
	return nil
}
