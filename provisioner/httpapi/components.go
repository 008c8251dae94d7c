package httpapi

import (
	"context"
	"maps"
	"net/http"

	"muster/provisioner/fleet"
	"muster/provisioner/trust"
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
	Settings     map[string]any     `json:"settings"`
	State        fleet.FeatureState `json:"state"`
	Capabilities []string           `json:"capabilities"`
	Reason       string             `json:"reason,omitempty"`
}

// smartProxyVersion is the version of Foreman's smart proxy whose protocol the routes of Foreman follow.
const smartProxyVersion = "3.11.0"

// A SmartProxy is the answer about the version of a smart proxy and of its modules that Foreman uses.
type SmartProxy struct {
	Version string            `json:"version"`
	Modules map[string]string `json:"modules"`
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
	need := access{role: trust.RoleViewer, foreman: true}
	s.handle("GET /v2/features", need, func(w http.ResponseWriter, r *http.Request) {
		l, _ := loginOf(r.Context())
		all := map[string]V2Feature{}
		for _, f := range self() {
			v := V2Feature{
				HTTPS:        s.https != nil,
				Settings:     map[string]any{},
				State:        f.State,
				Capabilities: []string{},
				Reason:       f.Reason,
			}
			maps.Copy(v.Settings, f.Settings)
			if l.Role != trust.RoleForeman {
				all[f.Name] = v
			} else if f.Name == fleet.FeaturePuppetCA && f.State != fleet.FeatureDisabled {
				// Foreman deletes a feature that does not run.
				v.State, v.Reason = fleet.FeatureRunning, ""
				all[f.Name] = v
			}
		}
		s.answer(w, r, all, nil)
	})
	get(s, anyone, "/version", func(*http.Request) (*SmartProxy, error) {
		v := &SmartProxy{Version: smartProxyVersion, Modules: map[string]string{}}
		for _, f := range self() {
			if f.Name == fleet.FeaturePuppetCA && f.State != fleet.FeatureDisabled {
				v.Modules[f.Name] = smartProxyVersion
			}
		}
		return v, nil
	})
	if s.cfg.Foreman != nil {
		s.mux.Handle("/puppet/ca", s.cfg.Foreman)
		s.mux.Handle("/puppet/ca/", s.cfg.Foreman)
	}
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
