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
	// Socket is the path of the Unix socket; one that an earlier process left
	// is replaced. Required.
	Socket string

	Provisioner *provisioner.Provisioner // required
	Orders      *operate.Orders          // given to it; required
	Login       *login.Verifier          // of its operators; required

	// Backup writes a backup in the name of by, to w, after it has called started
	// with about how many messages it will have. Required.
	Backup func(ctx context.Context, by string, started func(messages uint64), w io.Writer) error

	// Inputs writes what decisions saw in the last age, a [policies.Recording] in
	// JSON a line and a blank line after each batch; started gets the number of
	// batches before that. Required.
	Inputs func(ctx context.Context, age time.Duration, started func(batches uint64), w io.Writer) error

	Fleet      *fleet.Index     // lists nodes; required
	Nodes      *fleet.Inspector // answers about one node; required
	Components Components       // the provisioners of the installation and their features; required
	Events     events.Log       // required
	Webhooks   events.Webhooks  // of this process; required
	Metrics    http.Handler     // answers GET /metrics; required

	// Ready returns what keeps this provisioner from serving, by name, nil where
	// nothing does. It is asked without authentication, and only the names are
	// told. Required.
	Ready func(context.Context) map[string]error

	// Console answers what is no route, over HTTPS. Nil: nothing does.
	Console http.Handler

	// HTTPS is the listener for operators on other machines. Nil: there is the
	// socket only.
	HTTPS *HTTPSConfig

	// Log is optional; discards by default.
	Log *slog.Logger

	// Now is optional; defaults to [time.Now].
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
