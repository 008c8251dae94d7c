package httpapi

import (
	"context"
	"maps"
	"net/http"

	"muster/provisioner/fleet"
)

// Components knows this provisioner's features, and those of all others.
type Components interface {
	// Self returns this one. It is asked without authentication, and costs nothing.
	Self() *fleet.Component

	// All returns all of the installation, by name, this one among them. With an
	// error it is the only one.
	All(ctx context.Context) ([]*fleet.HeardComponent, error)
}

// A ComponentList is the whole installation.
type ComponentList struct {
	Components []*fleet.HeardComponent `json:"components"`
	Incomplete string                  `json:"incomplete,omitempty"` // why others are missing
}

// A V2Feature is a feature in the form of version 2 of the registration protocol of
// Foreman's smart proxies. Reason is ours.
type V2Feature struct {
	HTTP         bool               `json:"http_enabled"`
	HTTPS        bool               `json:"https_enabled"`
	Settings     map[string]string  `json:"settings"`
	State        fleet.FeatureState `json:"state"`
	Capabilities []string           `json:"capabilities"`
	Reason       string             `json:"reason,omitempty"`
}

func componentRoutes(s *Server) {
	self := func() []fleet.Feature { return s.cfg.Components.Self().Features }
	get(s, anyone, "/features", func(*http.Request) ([]string, error) {
		running := []string{}
		for _, f := range self() {
			if f.State == fleet.FeatureRunning {
				running = append(running, f.Name)
			}
		}
		return running, nil
	})
	get(s, viewer, "/v2/features", func(*http.Request) (map[string]V2Feature, error) {
		all := map[string]V2Feature{}
		for _, f := range self() {
			v := V2Feature{
				HTTPS:        s.https != nil,
				Settings:     map[string]string{},
				State:        f.State,
				Capabilities: append([]string{}, f.Capabilities...),
				Reason:       f.Reason,
			}
			maps.Copy(v.Settings, f.Settings)
			all[f.Name] = v
		}
		return all, nil
	})
	get(s, viewer, "/v1/components", func(r *http.Request) (*ComponentList, error) { return s.components(r.Context()), nil })
}

// components lists the installation, or as much of it as is known.
func (s *Server) components(ctx context.Context) *ComponentList {
	all, err := s.cfg.Components.All(ctx)
	list := &ComponentList{Components: append([]*fleet.HeardComponent{}, all...)}
	if err != nil {
		list.Incomplete = err.Error()
	}
	return list
}
