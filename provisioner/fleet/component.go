package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
)

// A FeatureState is what a part of a provisioner does, in the words of Foreman's
// registration protocol.
type FeatureState string

// The states of a feature.
const (
	FeatureStarting FeatureState = "starting"
	FeatureRunning  FeatureState = "running"
	FeatureDisabled FeatureState = "disabled" // by the configuration or an operator
	FeatureFailed   FeatureState = "failed"   // Reason says why
)

// A Feature is a part of a provisioner that an operator would ask about. It holds
// no secret.
type Feature struct {
	Name         string            `json:"name"`
	State        FeatureState      `json:"state"`
	Reason       string            `json:"reason,omitempty"`       // why it has failed, or is not in full use
	Settings     map[string]string `json:"settings,omitempty"`     // as configured
	Capabilities []string          `json:"capabilities,omitempty"` // what it can do, or has, now
}

// ComponentSchema is the version of a component's JSON form.
const ComponentSchema = 1

// A Component is a provisioner of the installation with its features, as it has
// said of itself.
type Component struct {
	Schema   int            `json:"schema"`
	Name     string         `json:"name"`
	Process  string         `json:"process"` // differs after each start
	Version  string         `json:"version"`
	Site     jwt.Site       `json:"site,omitempty"`
	URL      string         `json:"url,omitempty"` // where operators reach it over HTTPS
	Since    time.Time      `json:"since"`         // when it was started
	Stopped  bool           `json:"stopped,omitempty"`
	Features []Feature      `json:"features"` // by name
	Alarms   []events.Alarm `json:"alarms,omitempty"`

	// Activity is what it did until it was heard; nil from one of an earlier version.
	Activity *Activity `json:"activity,omitempty"`
}

// Activity is what was answered lately.
type Activity struct {
	Enrolled int               `json:"enrolled_last_minute"` // a retry counts each time
	Renewed  int               `json:"renewed_last_minute"`
	Refused  map[wire.Code]int `json:"refused_last_hour"` // by the true code; who waits is not refused, see [wire.Code.Waits]
}

// Add adds what another did; nil is nothing. Refused is not nil.
func (a *Activity) Add(other *Activity) {
	if other == nil {
		return
	}
	a.Enrolled, a.Renewed = a.Enrolled+other.Enrolled, a.Renewed+other.Renewed
	for c, n := range other.Refused {
		a.Refused[c] += n
	}
}

// Check reports what about a component cannot be. It is run on each that is read.
func (c *Component) Check() error {
	if c.Schema != ComponentSchema || c.Name == "" {
		return fmt.Errorf("component %.80q: schema %d, want %d and a name", c.Name, c.Schema, ComponentSchema)
	}
	return nil
}

// Failed returns the features that have failed.
func (c *Component) Failed() []Feature {
	failed := []Feature{}
	for _, f := range c.Features {
		if f.State == FeatureFailed {
			failed = append(failed, f)
		}
	}
	return failed
}

// Times of components; chosen.
const (
	ComponentEvery = 5 * time.Second    // how often a provisioner says that it is there
	ComponentGone  = 3 * ComponentEvery // it has said nothing for so long: it is gone
	maxReasonBytes = 500                // of a feature; chosen, a cause with a path or two
)

// A HeardComponent is a component and when it was last heard of.
type HeardComponent struct {
	Component

	Heard time.Time `json:"heard"`          // by the store's clock
	Gone  bool      `json:"gone,omitempty"` // since then, stopped or not
}

// MarkGone says of each component whether it is gone: it has stopped, or has said
// nothing for [ComponentGone] while others have. The times are all of the store's
// clock, so that nobody else's matters.
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

// A ComponentStore keeps the newest word of each provisioner.
type ComponentStore interface {
	// PutComponent replaces what is known of the component. After an error it may be
	// written or may yet be.
	PutComponent(ctx context.Context, c *Component) error

	// Components returns what is known of all, by name, with Heard set. What cannot
	// be read, of a later version say, is left out.
	Components(ctx context.Context) ([]*HeardComponent, error)
}

// NewFeature returns a feature that runs, or has failed if err is not nil. The
// error must hold no secret.
func NewFeature(name string, err error) Feature {
	f := Feature{Name: name, State: FeatureRunning}
	if err != nil {
		f.State, f.Reason = FeatureFailed, events.Cut(events.Scrub(err.Error()), maxReasonBytes)
	}
	return f
}

// NewFactsFeature returns the feature that says which facts a provisioner keeps of nodes; it is disabled where there are
// none. Lists by a fact lack the nodes that came to a provisioner which does not keep it.
func NewFactsFeature(names []string) Feature {
	f := NewFeature("facts", nil)
	if len(names) == 0 {
		f.State = FeatureDisabled
		return f
	}
	f.Settings = map[string]string{"kept": strings.Join(slices.Sorted(slices.Values(names)), ", ")}
	return f
}
