package fleet

import (
	"fmt"
	"slices"
	"time"

	"muster/jwt"
	"muster/provisioner/events"
)

// A FeatureState is a state as Foreman's registration protocol names it.
type FeatureState string

// The states of a feature.
const (
	FeatureStarting FeatureState = "starting"
	FeatureRunning  FeatureState = "running"
	FeatureDisabled FeatureState = "disabled" // turned off by the configuration or an operator
	FeatureFailed   FeatureState = "failed"   // see Reason
)

// A Feature is a part of a provisioner as shown to operators. It holds no secret.
type Feature struct {
	Name   string       `json:"name"`
	State  FeatureState `json:"state"`
	Reason string       `json:"reason,omitempty"` // cause of a failure or limitation

	// Settings are for Foreman: texts, lists of texts, or nil.
	Settings map[string]any `json:"settings,omitempty"`
}

// FeaturePuppetCA is the name that Foreman has for the authority of Puppet agents.
const FeaturePuppetCA = "puppetca"

// ComponentSchema is the version of a [Component] in JSON.
const ComponentSchema = 1

// A Component is a provisioner's report about itself.
type Component struct {
	Schema   int            `json:"schema"`
	Name     string         `json:"name"`
	Process  string         `json:"process"` // differs after each start
	Version  string         `json:"version"`
	Site     jwt.Site       `json:"site,omitempty"`
	URL      string         `json:"url,omitempty"`      // of its HTTPS API
	Reserved []string       `json:"reserved,omitempty"` // its names and addresses, which no node may have
	Since    time.Time      `json:"since"`              // start of the process
	Free     string         `json:"free,omitempty"`     // space on the disk of its data, such as 42 GiB
	Stopped  bool           `json:"stopped,omitempty"`
	Features []Feature      `json:"features"` // by name
	Alarms   []events.Alarm `json:"alarms,omitempty"`
}

// Check validates a component that was read.
func (c *Component) Check() error {
	if c.Schema != ComponentSchema || c.Name == "" {
		return fmt.Errorf("component %.80q: schema %d, want %d and a name", c.Name, c.Schema, ComponentSchema)
	}
	return nil
}

// Failed returns the features that do not work.
func (c *Component) Failed() []Feature {
	all := append([]Feature{}, c.Features...)
	return slices.DeleteFunc(all, func(f Feature) bool { return f.State != FeatureFailed })
}

// Times and sizes of the components' reports.
const (
	ComponentEvery = 5 * time.Second    // interval of the reports
	ComponentGone  = 3 * ComponentEvery // age of the newest report of a gone component
	maxReasonBytes = 500                // enough for an error with two paths
)

// A HeardComponent is a component with the time of its newest report.
type HeardComponent struct {
	Component

	Heard time.Time `json:"heard"`          // by the store's clock
	Gone  bool      `json:"gone,omitempty"` // stopped, or no report for [ComponentGone]
}

// MarkGone sets Gone. It compares the reports' times with the newest of them. All are by the store's clock, so no other
// clock matters.
func MarkGone(all []*HeardComponent) {
	var newest time.Time
	for _, c := range all {
		if c.Heard.After(newest) {
			newest = c.Heard
		}
	}
	for _, c := range all {
		c.Gone = c.Stopped || newest.Sub(c.Heard) > ComponentGone
	}
}

// NewFeature returns a running feature, or a failed one if err is not nil. err must hold no secret.
func NewFeature(name string, err error) Feature {
	f := Feature{Name: name, State: FeatureRunning}
	if err != nil {
		f.State, f.Reason = FeatureFailed, events.Cut(events.Scrub(err.Error()), maxReasonBytes)
	}
	return f
}
