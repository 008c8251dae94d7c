package httpapi

import (
	"context"
	"net/http"

	"muster/provisioner"
)

// Components knows this provisioner's features, and those of all others.
type Components interface {
	// Self returns this one. It is asked without authentication, and costs nothing.
	Self() *provisioner.Component

	// All returns all of the installation, by name, this one among them. With an
	// error it is the only one.
	All(ctx context.Context) ([]*provisioner.HeardComponent, error)
}

// A ComponentList is the whole installation.
type ComponentList struct {
	Components []*provisioner.HeardComponent `json:"components"`
	Incomplete string                        `json:"incomplete,omitempty"` // why others are missing
}

// A V2Feature is a feature in the form of version 2 of the registration protocol of
// Foreman's smart proxies. Reason is ours.
type V2Feature struct {
	HTTP         bool                     `json:"http_enabled"`
	HTTPS        bool                     `json:"https_enabled"`
	Settings     map[string]string        `json:"settings"`
	State        provisioner.FeatureState `json:"state"`
	Capabilities []string                 `json:"capabilities"`
	Reason       string                   `json:"reason,omitempty"`
}

func componentRoutes(s *Server) {
	self := func() []provisioner.Feature {
		if s.cfg.Components == nil {
			return nil
		}
		return s.cfg.Components.Self().Features
	}
	route(s, "GET /features", func(*http.Request, *none) ([]string, error) {
		running := []string{}
		for _, f := range self() {
			if f.State == provisioner.FeatureRunning {
				running = append(running, f.Name)
			}
		}
		return running, nil
	})
	route(s, "GET /v2/features", func(*http.Request, *none) (map[string]V2Feature, error) {
		all := map[string]V2Feature{}
		for _, f := range self() {
			v := V2Feature{HTTPS: s.https != nil, Settings: f.Settings, State: f.State, Capabilities: f.Capabilities, Reason: f.Reason}
			if v.Settings == nil {
				v.Settings = map[string]string{}
			}
			if v.Capabilities == nil {
				v.Capabilities = []string{}
			}
			all[f.Name] = v
		}
		return all, nil
	})
	route(s, "GET /v1/components", func(r *http.Request, _ *none) (*ComponentList, error) { return s.components(r.Context()), nil })
}

// components lists the installation, or as much of it as is known.
func (s *Server) components(ctx context.Context) *ComponentList {
	list := &ComponentList{Components: []*provisioner.HeardComponent{}}
	if s.cfg.Components == nil {
		return list
	}
	all, err := s.cfg.Components.All(ctx)
	list.Components = append(list.Components, all...) // an empty list is one, too
	if err != nil {
		list.Incomplete = err.Error()
	}
	return list
}
