package operate

import (
	"context"
	"errors"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/trust"
	"muster/provisioner/waiting"
)

// ErrOtherSite means that an operator with a limit to sites asks for something else. It does not tell what exists.
var ErrOtherSite = errors.New("not a node, pending key, token or certificate at a site of yours")

// Within returns nil for a node whose record is at one of the sites, and for a name without a record if keys wait for
// it at these sites only. The error is [ErrOtherSite].
func (n *Nodes) Within(ctx context.Context, sites trust.Sites, id wire.Identity) error {
	r, _, err := n.store.Record(ctx, id)
	switch {
	case err != nil:
		return err
	case r != nil:
		return within(sites, r.Site)
	}
	asked := false
	err = n.store.Waiters(ctx, id, func(w *waiting.Key, _ trust.Revision) error {
		asked = true
		return within(sites, w.Site)
	})
	for _, a := range n.logs.Answers.Rejected() {
		if err == nil && a.Identity == id {
			asked, err = true, within(sites, a.Site)
		}
	}
	if err == nil && !asked {
		err = ErrOtherSite
	}
	return err
}

// Within returns [ErrOtherSite] unless the token is for one of the sites.
func (t *Tokens) Within(ctx context.Context, sites trust.Sites, tid jwt.TokenID) error {
	if err := wrong(trust.CheckTokenID(tid)); err != nil {
		return err
	}
	l, err := trust.ReadUseCount(ctx, t.store, tid)
	if err != nil {
		return err
	}
	info := l.Token
	if info == nil {
		info, err = t.store.NotedToken(ctx, tid)
	}
	if err == nil && info == nil {
		err = ErrOtherSite
	}
	if err != nil {
		return err
	}
	return within(sites, info.Site)
}

func within(sites trust.Sites, site jwt.Site) error {
	if !sites.Has(site) {
		return ErrOtherSite
	}
	return nil
}

// within returns [ErrOtherSite] if the name of a key is that of a node at another site.
func (k *Keys) within(ctx context.Context, of KeyChoice) error {
	r, _, err := k.store.Record(ctx, of.Identity)
	if err != nil || r == nil || r.State == provisioner.StateRetired && !r.Awaits() {
		return err
	}
	return within(of.Sites, r.Site)
}
