package httpapi

import (
	"context"
	"net/http"

	"muster/provisioner/fleet"
)

// Components are the provisioners of the installation.
type Components interface {
	// Self returns this provisioner. It must be cheap, since it needs no authentication.
	Self() *fleet.Component

	// All returns all provisioners by name. If it fails, it returns this provisioner beside the error.
	All(ctx context.Context) ([]*fleet.HeardComponent, error)
}

// A ComponentList lists the provisioners.
type ComponentList struct {
	Components []*fleet.HeardComponent `json:"components"`
	Incomplete string                  `json:"incomplete,omitempty"` // why other provisioners are missing
}

// A V2Feature is a feature as version 2 of the registration protocol of Foreman's smart proxies has it. Reason is not
// in that protocol.
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
			all[f.Name] = V2Feature{
				HTTPS:        s.https != nil,
				Settings:     map[string]string{},
				State:        f.State,
				Capabilities: []string{},
				Reason:       f.Reason,
			}
		}
		return all, nil
	})
	get(s, viewer, "/v1/components", func(r *http.Request) (*ComponentList, error) {
		return s.components(r.Context()), nil
	})
}

func (s *Server) components(ctx context.Context) *ComponentList {
	all, err := s.cfg.Components.All(ctx)
	list := &ComponentList{Components: append([]*fleet.HeardComponent{}, all...)}
	if err != nil {
		list.Incomplete = err.Error()
	}
	return list
}
