package httpapi

import (
	"context"
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

	// Backup calls started with the approximate number of messages, and then writes a backup to w. by is the operator.
	// Required.
	Backup func(ctx context.Context, by string, started func(messages uint64), w io.Writer) error

	// Inputs calls started with the number of batches, and then writes the decisions of the last age: one
	// [policies.Recording] in JSON on each line, a blank line after each batch. Required.
	Inputs func(ctx context.Context, age time.Duration, started func(batches uint64), w io.Writer) error

	Fleet      *fleet.Index     // required
	Nodes      *fleet.Inspector // required
	Components Components       // required
	Events     events.Log       // required
	Webhooks   events.Webhooks  // required
	Metrics    http.Handler     // serves GET /metrics; required

	// Ready returns the parts that keep this provisioner from serving, by name. Callers need no authentication, so only
	// names are shown. Required.
	Ready func(context.Context) map[string]error

	// Console serves HTTPS requests outside /v1/; nil: they get 404.
	Console http.Handler

	// HTTPS configures the listener for other machines; nil: none.
	HTTPS *HTTPSConfig

	Log *slog.Logger     // required
	Now func() time.Time // required
}

// New returns a Server. It opens nothing.
func New(cfg Config) *Server {
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
	return s
}
