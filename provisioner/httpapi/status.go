package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"muster/provisioner/orders"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/services"
)

// A Status sums up the reports of the installation's provisioners, which are a few seconds old.
type Status struct {
	Installation string                  `json:"installation"`
	Provisioners []*fleet.HeardComponent `json:"provisioners"`           // with failed features only
	Nodes        *fleet.Summary          `json:"nodes,omitempty"`        // nil while the index is read
	Waiting      int                     `json:"waiting"`                // length of the pending list
	Certificates *services.Counts        `json:"certificates,omitempty"` // of services; nil while they are read
	Activity     *Activity               `json:"activity,omitempty"`     // nil with a limit to sites
	Pauses       []*orders.Pause         `json:"pauses"`
	Frozen       bool                    `json:"frozen"`  // a recovery has frozen limited tokens
	Unknown      []string                `json:"unknown"` // what could not be read, with the reason

	// Standing holds the problems that need an operator, one line each.
	Standing []string `json:"standing"`
}

// Activity counts events of the last hour, of all provisioners.
type Activity struct {
	Enrolled int               `json:"enrolled_last_hour"`
	Renewed  int               `json:"renewed_last_hour"`
	Refused  map[wire.Code]int `json:"refused_last_hour,omitempty"` // without waiting nodes and logins
}

func statusRoutes(s *Server) {
	get(s, viewer.on(inAnswer), "/v1/status", func(r *http.Request) (*Status, error) {
		return s.status(r.Context()), nil
	})
}

func (s *Server) status(ctx context.Context) *Status {
	p := s.cfg.Provisioner
	now := &Status{
		Installation: p.Config().Installation,
		Provisioners: []*fleet.HeardComponent{},
		Pauses:       s.cfg.Orders.Pauses.List(),
		Frozen:       s.cfg.Orders.Recovery.Frozen(),
		Unknown:      []string{},
		Standing:     []string{},
	}
	sites := sitesOf(ctx)
	var err error
	if now.Nodes, err = s.cfg.Fleet.Summary(s.cfg.Now(), sites); err != nil {
		now.Unknown = append(now.Unknown, "nodes: "+err.Error())
	}
	now.Certificates = s.cfg.Certificates.Index().Counts(s.cfg.Fleet.At(sites))
	if sites != nil {
		if err := s.statusAt(ctx, sites, now); err != nil {
			now.Unknown = append(now.Unknown, "pending nodes: "+err.Error())
		}
		now.stand()
		return now
	}
	now.Waiting = s.cfg.Orders.Keys.Count()
	list := s.components(ctx)
	if list.Incomplete != "" {
		now.Unknown = append(now.Unknown, list.Incomplete)
	}
	for _, c := range list.Components {
		shown := *c
		shown.Features = c.Failed()
		now.Provisioners = append(now.Provisioners, &shown)
	}
	_, hour, err := s.cfg.Recent.Counts(ctx, events.Periods[0])
	if err != nil {
		now.Unknown = append(now.Unknown, "activity of the last hour: "+err.Error())
	}
	delete(hour.Codes, "") // logins
	now.Activity = &Activity{Enrolled: hour.Admitted - hour.Renewed, Renewed: hour.Renewed, Refused: hour.Codes}
	now.stand()
	return now
}

func (t *Status) stand() {
	add := func(format string, args ...any) {
		// Errors of the policy's compiler have several lines
		first, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n")
		t.Standing = append(t.Standing, first)
	}
	for _, p := range t.Provisioners {
		switch {
		case p.Stopped:
			continue // an operator stopped it
		case p.Gone:
			add("provisioner %s has not reported since %s", p.Name, p.Heard.Format("2006-01-02T15:04:05Z"))
			continue
		}
		for _, a := range p.Alarms {
			if a.Code == events.AlarmEndsSoon {
				for line := range strings.SplitSeq(a.Cause, "\n") {
					add("alarm %s on %s: %s", a.Code, p.Name, line)
				}
			} else if a.Code != wire.CodePaused { // reported once, with the pauses
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
		add("a recovery has frozen limited tokens: sign new ones, or run muster token unfreeze")
	}
	if n := t.Nodes; n != nil && n.Cloned > 0 {
		add("nodes whose key two machines use: %d; see muster events --type node.cloned", n.Cloned)
	}
	for _, what := range t.Unknown {
		add("not known: %s", what)
	}
}
