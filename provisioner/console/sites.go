package console

import (
	"context"
	"slices"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
	"muster/provisioner/waiting"
)

// A scope returns an error unless what a page is about is at the sites.
type scope func(ctx context.Context, of string, sites trust.Sites) error

// onPage is for pages that show or change no more than what is at the sites.
func onPage(context.Context, string, trust.Sites) error { return nil }

func (c *Console) ofNode(ctx context.Context, of string, sites trust.Sites) error {
	id, err := wire.ParseName(of)
	if err != nil {
		return badRequest(err)
	}
	return c.cfg.Orders.Nodes.Within(ctx, sites, id)
}

func (c *Console) ofToken(ctx context.Context, of string, sites trust.Sites) error {
	return c.cfg.Orders.Tokens.Within(ctx, sites, jwt.TokenID(of))
}

func (r *route) within(ctx context.Context, of string, sites trust.Sites) error {
	switch {
	case sites == nil:
		return nil
	case r.at == nil:
		return operate.ErrOtherSite
	}
	return r.at(ctx, of, sites)
}

// keysOf returns the waiting keys of a name, or all if id is empty, that the operator may see.
func (c *Console) keysOf(ctx context.Context, v *visit, id wire.Identity) ([]*waiting.Key, error) {
	all, err := c.cfg.Orders.Keys.Waiting(ctx, id)
	return slices.DeleteFunc(all, func(w *waiting.Key) bool { return !v.login.Sites.Has(w.Site) }), err
}
