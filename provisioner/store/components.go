package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/provisioner/fleet"
	"muster/provisioner/trust"
)

const (
	streamComponents = "MUSTER_COMPONENTS"

	subjectComponent = "muster.component."

	// maxComponentBytes is room for 256 provisioners of 4 KiB each.
	maxComponentBytes = 1 << 20
)

// Components keep the newest report of each provisioner.
type Components struct{ *client }

// PutComponent replaces a component's report. After an error the report may have been written.
func (s *Components) PutComponent(ctx context.Context, c *fleet.Component) error {
	subject := subjectComponent + strings.ReplaceAll(c.Name, ".", "_")
	if _, err := s.putReserved(ctx, subject, c, uint64(trust.AnyRevision)); err != nil {
		return fmt.Errorf("write component %q: %w", c.Name, err)
	}
	return nil
}

// Components returns all reports by name, without those of a later version.
func (s *Components) Components(ctx context.Context) ([]*fleet.HeardComponent, error) {
	var all []*fleet.HeardComponent
	err := s.scan(ctx, streamComponents, 0, lastPerSubject(subjectComponent+"*"), func(m message) error {
		c := &fleet.HeardComponent{Heard: m.at.UTC()}
		if errors.Join(json.Unmarshal(m.data, &c.Component), c.Check()) == nil {
			all = append(all, c)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read components: %w", err)
	}
	slices.SortFunc(all, func(a, b *fleet.HeardComponent) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
