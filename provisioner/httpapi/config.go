package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"muster/provisioner"
	"muster/provisioner/fleet"
)

// Config configures [New].
type Config struct {
	// Socket is the path of the Unix socket; one that an earlier process left
	// is replaced. Required.
	Socket string

	Provisioner *provisioner.Provisioner // required

	// Backup begins a backup in the name of who asks, and returns about how many
	// messages it will have. write then writes it, once. Nil: there are none.
	Backup func(ctx context.Context, by string) (messages uint64, write func(io.Writer) error, err error)

	// Inputs writes what decisions saw in the last age, a [policies.Recording] in
	// JSON a line and a blank line after each batch; started gets the number of
	// batches before that. Nil: none are kept.
	Inputs func(ctx context.Context, age time.Duration, started func(batches uint64), w io.Writer) error

	Fleet *fleet.Index     // lists nodes; nil: none are listed
	Nodes *fleet.Inspector // answers about one node; nil with Fleet

	// Components are the provisioners of the installation and their features.
	// Nil: nobody is told of any.
	Components Components

	// Events is where events are read. Nil: there are none.
	Events provisioner.EventLog

	// Webhooks are those of this process. Nil: there are none.
	Webhooks provisioner.Webhooks

	// Attempts are those that have failed. Nil: there are none.
	Attempts *provisioner.Attempts

	// Metrics answers GET /metrics. Nil: there are none.
	Metrics http.Handler

	// Console answers what is no route, over HTTPS. Nil: nothing does.
	Console http.Handler

	// HTTPS is the listener for operators on other machines. Nil: there is the
	// socket only.
	HTTPS *HTTPSConfig

	// Ready returns what keeps this provisioner from serving, by name, nil where
	// nothing does. It is asked without authentication, and only the names are
	// told. Nil: nothing does.
	Ready func(context.Context) map[string]error

	// Log is optional; discards by default.
	Log *slog.Logger

	// Now is optional; defaults to [time.Now].
	Now func() time.Time
}

// New checks cfg and returns a Server. It opens nothing.
func New(cfg Config) (*Server, error) {
	if cfg.Socket == "" || cfg.Provisioner == nil {
		return nil, errors.New("operators' edge: no socket or no provisioner given")
	}
	if cfg.HTTPS != nil {
		if err := cfg.HTTPS.check(); err != nil {
			return nil, fmt.Errorf("operators' edge: %w", err)
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), served: make(map[string]bool)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	for _, routes := range []func(*Server){
		tokenRoutes, signerRoutes, nodeRoutes, orderRoutes, waitingRoutes, allowRoutes, settingRoutes, componentRoutes,
		statusRoutes, clockRoute, operatorRoutes, backupRoute, inputsRoute, policyRoutes, eventRoute, webhookRoutes,
		attemptRoute, metricsRoute, healthRoutes, downloadRoutes, openAPIRoute,
	} {
		routes(s)
	}
	for _, pattern := range Routes() {
		if !s.served[pattern] {
			return nil, fmt.Errorf("operators' edge: nothing serves %s", pattern)
		}
	}
	return s, nil
}
