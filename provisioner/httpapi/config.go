package httpapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/login"
	"muster/provisioner/operate"
)

// Config configures [New].
type Config struct {
	// Socket is the path of the Unix socket. An existing one is replaced. Required.
	Socket string

	Provisioner *provisioner.Provisioner // required
	Orders      *operate.Orders          // required
	Login       *login.Verifier          // required

	// Backup writes a backup for by to w, after it has called started with the approximate number of messages.
	// Required.
	Backup func(ctx context.Context, by string, started func(messages uint64), w io.Writer) error

	// Inputs writes the inputs of decisions in the last age, a [policies.Recording] in JSON a line and a blank line
	// after each batch. started gets the number of batches first. Required.
	Inputs func(ctx context.Context, age time.Duration, started func(batches uint64), w io.Writer) error

	Fleet      *fleet.Index     // required
	Nodes      *fleet.Inspector // required
	Components Components       // required
	Events     events.Log       // required
	Webhooks   events.Webhooks  // required
	Metrics    http.Handler     // serves GET /metrics; required

	// Ready returns by name what keeps this provisioner from serving. It needs no authentication, so only names are
	// shown. Required.
	Ready func(context.Context) map[string]error

	// Console serves HTTPS requests outside the routes; nil: not found.
	Console http.Handler

	// HTTPS is the listener for other machines; nil: only the socket.
	HTTPS *HTTPSConfig

	// Log defaults to discarding.
	Log *slog.Logger

	// Now defaults to [time.Now].
	Now func() time.Time
}

// New checks cfg and returns a Server. It opens nothing.
func New(cfg Config) (*Server, error) {
	if cfg.Socket == "" || cfg.Provisioner == nil || cfg.Orders == nil {
		return nil, errors.New("operators' edge: no socket or no provisioner given")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), routes: make(map[string]access)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	for _, routes := range []func(*Server){
		tokenRoutes, signerRoutes, nodeRoutes, orderRoutes, waitingRoutes, allowRoutes, settingRoutes, componentRoutes,
		statusRoutes, operatorRoutes, backupRoutes, inputsRoutes, policyRoutes, eventRoutes, webhookRoutes,
		healthRoutes, downloadRoutes, openAPIRoute,
	} {
		routes(s)
	}
	s.mux.HandleFunc("/", s.unrouted)
	return s, nil
}
