package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"muster/provisioner/orders"

	"muster/internal/wire"
	"muster/provisioner/fleet"
)

// A Status is the installation at a glance: sums over all provisioners that are
// there, as they were some seconds ago at most.
type Status struct {
	Installation string               `json:"installation"`
	Provisioners []*StatusProvisioner `json:"provisioners"`
	Nodes        *fleet.Summary       `json:"nodes,omitempty"` // nil while the records are being read
	Waiting      int                  `json:"waiting"`         // keys that wait for an operator, or for the policy
	Activity     fleet.Activity       `json:"activity"`
	Pauses       []*orders.Pause      `json:"pauses"`
	Frozen       bool                 `json:"frozen"`  // a recovery has frozen limited tokens
	Unknown      []string             `json:"unknown"` // what could not be found out

	// Standing is what somebody should do something about, a line each; empty: all
	// is well.
	Standing []string `json:"standing"`
}

// A StatusProvisioner is a provisioner in short.
type StatusProvisioner struct {
	*fleet.HeardComponent

	Features []fleet.Feature `json:"features"` // that have failed
}

func statusRoutes(s *Server) {
	get(s, viewer, "/v1/status", func(r *http.Request) (*Status, error) { return s.status(r.Context()), nil })
}

// status finds out what it can. What it cannot is in Unknown.
func (s *Server) status(ctx context.Context) *Status {
	p := s.cfg.Provisioner
	now := &Status{
		Installation: p.Config().Installation, Provisioners: []*StatusProvisioner{}, Pauses: s.cfg.Orders.Pauses.List(), Frozen: s.cfg.Orders.Recovery.Frozen(),
		Activity: fleet.Activity{Refused: map[wire.Code]int{}}, Unknown: []string{}, Standing: []string{},
	}
	unknown := func(what string, err error) {
		now.Unknown = append(now.Unknown, fmt.Sprintf("%s: %v", what, err))
	}
	list := s.components(ctx)
	if list.Incomplete != "" {
		now.Unknown = append(now.Unknown, list.Incomplete)
	}
	for _, c := range list.Components {
		now.Provisioners = append(now.Provisioners, &StatusProvisioner{HeardComponent: c, Features: c.Failed()})
		if !c.Gone {
			now.Activity.Add(c.Activity)
		}
	}
	var err error
	if now.Nodes, err = s.cfg.Fleet.Summary(s.cfg.Now()); err != nil {
		unknown("nodes", err)
	}
	if now.Waiting, err = s.cfg.Orders.Keys.Count(ctx); err != nil {
		unknown("who waits", err)
	}
	now.stand()
	return now
}

// stand lists what somebody should look at.
func (t *Status) stand() {
	add := func(format string, args ...any) {
		first, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n") // a compiler goes on with the line that it is about
		t.Standing = append(t.Standing, first)
	}
	for _, p := range t.Provisioners {
		switch {
		case p.Stopped:
			continue // by somebody, who knows
		case p.Gone:
			add("provisioner %s is gone since %s", p.Name, p.Heard.Format("2006-01-02T15:04:05Z"))
			continue
		}
		for _, a := range p.Alarms {
			if a.Code != wire.CodePaused { // said below, once for all
				add("alarm %s on %s: %s", a.Code, p.Name, a.Cause)
			}
		}
		for _, f := range p.Features {
			add("feature %s of %s has failed: %s", f.Name, p.Name, f.Reason)
		}
	}
	for _, pause := range t.Pauses {
		add("enrollment is %v", pause.Because())
	}
	if t.Frozen {
		add("a recovery has frozen limited tokens: sign new ones, or muster token unfreeze")
	}
	if n := t.Nodes; n != nil && n.Cloned > 0 {
		add("names that two machines use: %d; muster events --type node.cloned", n.Cloned)
	}
	for _, what := range t.Unknown {
		add("not known: %s", what)
	}
}
