package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/trust"
)

const (
	streamLeases  = "MUSTER_LEASES"
	subjectLeases = "muster.lease." // + identity
)

// A lease has about 2 KiB, and a connection of its own while it is used.
const maxLeaseBytes = 128 << 20

// Lease returns the newest lease of id with its revision, or nil and 0.
func (s *Store) Lease(ctx context.Context, id wire.Identity) (*provisioner.Lease, trust.Revision, error) {
	return getLast[provisioner.Lease](ctx, s.client, streamLeases, subjectLeases+id.SubjectToken())
}

// PutLease writes l if the newest revision is still after, else it returns [trust.ErrConflict].
func (s *Store) PutLease(ctx context.Context, l *provisioner.Lease, after trust.Revision) (trust.Revision, error) {
	return s.put(ctx, subjectLeases+l.Identity.SubjectToken(), l, after)
}

// DropLease removes a lease that has not changed since the revision.
func (s *Store) DropLease(ctx context.Context, id wire.Identity, upTo trust.Revision) error {
	return s.drop(ctx, streamLeases, subjectLeases+id.SubjectToken(), upTo)
}

// Leases calls each for every lease.
func (s *Store) Leases(ctx context.Context, each func(*provisioner.Lease, trust.Revision) error) error {
	return scanReadable(ctx, s.client, streamLeases, subjectLeases+">", each)
}

// drop removes the messages of a subject up to a revision. Repeating it is harmless.
func (c *client) drop(ctx context.Context, stream, subject string, upTo trust.Revision) error {
	if upTo == 0 { // the broker would remove all
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_, err := retryIfClustered(ctx, c, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.handles[stream].Purge(ctx,
			jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(uint64(upTo)+1))
	})
	if err != nil {
		return fmt.Errorf("remove %s: %w", subject, err)
	}
	return nil
}

const (
	streamComponents = "MUSTER_COMPONENTS"

	subjectComponent = "muster.component."

	// maxComponentBytes is room for 256 provisioners of 4 KiB each.
	maxComponentBytes = 1 << 20
)

// PutComponent replaces a component's report. After an error the report may have been written.
func (s *Store) PutComponent(ctx context.Context, c *fleet.Component) error {
	subject := subjectComponent + strings.ReplaceAll(c.Name, ".", "_")
	_, err := s.putReserved(ctx, subject, c, trust.AnyRevision)
	return err
}

// Components returns all reports by name, without those of a later version.
func (s *Store) Components(ctx context.Context) ([]*fleet.HeardComponent, error) {
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
