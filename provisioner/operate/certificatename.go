package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// ErrNotListed means that no nodes are listed for the name.
var ErrNotListed = errors.New("no nodes are listed for this name")

// CertificateNames are the names that operators list for service certificates.
type CertificateNames struct{ *base }

// A NameOrder lists a name for nodes.
type NameOrder struct {
	Name    string         `json:"name"`                 // DNS name or IP address
	Nodes   []wire.Pattern `json:"nodes"`                // may not cover every node
	Expires time.Duration  `json:"expires_ns,omitempty"` // from now; 0: never
}

// List returns the entries by name, expired ones too.
func (n *CertificateNames) List(context.Context) ([]*orders.CertificateName, error) {
	if err := n.provisioner.Fresh(); err != nil {
		return nil, err
	}
	return n.logs.CertificateNames.List(), nil
}

// Allow lets service certificates of the nodes have a name, in place of the name's earlier entry. The policy decides
// nevertheless.
func (n *CertificateNames) Allow(
	ctx context.Context, o NameOrder, c trust.Cause,
) (_ *orders.CertificateName, err error) {
	defer about(&err, "allow name %.80q", o.Name)
	e := n.entry(o.Name, c)
	e.Nodes = slices.Compact(slices.Sorted(slices.Values(o.Nodes)))
	if o.Expires != 0 {
		e.ExpiresAt = e.At.Add(o.Expires)
	}
	err = e.Check()
	if o.Expires < 0 {
		err = errors.Join(err, fmt.Errorf("expires in %v, want more than 0", o.Expires))
	}
	if err == nil {
		err = n.cfg.Reserved(o.Name, nil)
	}
	if err := wrong(err); err != nil {
		return nil, err
	}
	return e, n.change(ctx, e, events.NameAllowed)
}

// Disallow ends that. Certificates stay valid; `muster certificate revoke` ends them. The error is [ErrNotListed] if
// there is no entry.
func (n *CertificateNames) Disallow(ctx context.Context, name string, c trust.Cause) (err error) {
	defer about(&err, "disallow name %.80q", name)
	if err := wrong(c.Check()); err != nil {
		return err
	}
	e := n.entry(name, c)
	e.Removed = true
	return n.change(ctx, e, events.NameDisallowed)
}

func (n *CertificateNames) entry(name string, c trust.Cause) *orders.CertificateName {
	name = wire.FoldName(name)
	if a, err := wire.ParseNodeAddress(name); err == nil {
		name = a.String()
	}
	return &orders.CertificateName{
		Schema: orders.CertificateNameSchema,
		ID:     wire.NewID(),
		Name:   name,
		At:     n.now(),
		Cause:  c,
	}
}

func (n *CertificateNames) change(ctx context.Context, e *orders.CertificateName, t events.Type) error {
	event := n.event(t, e.Cause)
	event.Name = e.Name
	_, err := trust.Change(ctx, n.logs.CertificateNames.Log, e.LogKey(),
		func(newest trust.Entry[*orders.CertificateName]) (*orders.CertificateName, error) {
			if e.Removed && newest.Unread == nil && (newest.Value == nil || newest.Value.Removed) {
				return nil, ErrNotListed
			}
			return e, nil
		})
	if err == nil {
		n.report(ctx, "names of service certificates changed", event, "name", e.Name, "nodes", e.Nodes,
			"removed", e.Removed)
	}
	return err
}
