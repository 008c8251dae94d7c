package operate

import (
	"log/slog"
	"time"

	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/login"
	"muster/provisioner/services"
)

// An Edge is what the API and the console serve operators with. All of it is required.
type Edge struct {
	Provisioner  *provisioner.Provisioner
	Orders       *Orders
	Login        *login.Verifier
	Fleet        *fleet.Index
	Nodes        *fleet.Inspector
	Certificates *services.Service
	Events       events.Log
	Recent       *events.Recent
	Webhooks     events.Webhooks // of this process
	Log          *slog.Logger
	Now          func() time.Time
}
