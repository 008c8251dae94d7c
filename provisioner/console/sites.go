package console

import (
	"context"
	"errors"
	"slices"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/operate"
	"muster/provisioner/orders"
	"muster/provisioner/waiting"
)

// A scope returns an error unless a visit is to what is at the operator's sites.
type scope func(*Console, *visit) error

// scopes are the pages for operators with a limit to sites. Every other page is refused to them.
var scopes = map[string]scope{
	"GET /{$}":                                         onPage,
	"GET /live":                                        onPage,
	"GET /nodes":                                       onPage,
	"GET /nodes/{identity}":                            ofNode,
	"GET /nodes/{identity}/do/{action}":                ofNode,
	"POST /nodes/{identity}/do/{action}":               ofNode,
	"GET /nodes.csv":                                   onPage,
	"GET /nodes.json":                                  onPage,
	"GET /certificates.csv":                            onPage,
	"GET /certificates.json":                           onPage,
	"GET /tokens.csv":                                  onPage,
	"GET /tokens.json":                                 onPage,
	"GET /approvals":                                   onPage,
	"POST /approvals/decide":                           onPage,
	"GET /certificates":                                onPage,
	"GET /certificates/{identity}/{name}":              ofNode,
	"GET /certificates/{identity}/{name}/do/{action}":  ofNode,
	"POST /certificates/{identity}/{name}/do/{action}": ofNode,
	"GET /tokens":                                      onPage,
	"GET /tokens/{tid}":                                ofToken,
	"GET /tokens/{tid}/do/{action}":                    ofToken,
	"POST /tokens/{tid}/do/{action}":                   ofToken,
	"GET /events":                                      onPage,
	"GET /login/command":                               onPage,
	"POST /login/command":                              onPage,
}

// onPage is for pages that show or change no more than what is at the sites.
func onPage(*Console, *visit) error { return nil }

func ofNode(c *Console, v *visit) error {
	id, err := wire.ParseName(v.r.PathValue("identity"))
	if err != nil {
		return badRequest(err)
	}
	return c.cfg.Orders.Nodes.Within(v.r.Context(), v.login.Sites, id)
}

func ofToken(c *Console, v *visit) error {
	return c.cfg.Orders.Tokens.Within(v.r.Context(), v.login.Sites, jwt.TokenID(v.r.PathValue("tid")))
}

func (c *Console) within(pattern string, v *visit) error {
	if v.login.Sites == nil {
		return nil
	}
	if check := scopes[pattern]; check != nil {
		return check(c, v)
	}
	return operate.ErrOtherSite
}

// keysOf returns the waiting keys of a name, or all if id is empty, that the operator may see.
func (c *Console) keysOf(ctx context.Context, v *visit, id wire.Identity) ([]*waiting.Key, error) {
	all, err := c.cfg.Orders.Keys.Waiting(ctx, id)
	return slices.DeleteFunc(all, func(w *waiting.Key) bool { return !v.login.Sites.Has(w.Site) }), err
}

// overviewAt is the overview of an operator with a limit to sites. It has nothing of provisioners.
func (c overviewPages) overviewAt(v *visit) error {
	ctx, sites := v.r.Context(), v.login.Sites
	about := c.cfg.Fleet.About(sites)
	page := &overviewPage{
		Pauses: slices.DeleteFunc(c.cfg.Orders.Pauses.List(),
			func(p *orders.Pause) bool { return p.Site != "" && !sites.Has(p.Site) }),
		Feed: c.cfg.Recent.Newest(feedLength, func(l *events.Logged) bool { return about(l.Stored) }),
	}
	keys, err := c.keysOf(ctx, v, "")
	if err != nil {
		return err
	}
	page.Tiles = []row{{Label: "pending", Link: "/approvals", Count: len(keys)}}
	page.Nodes, err = c.cfg.Fleet.Summary(c.cfg.Now(), sites)
	switch {
	case err == nil:
		page.countNodes()
	case !errors.Is(err, fleet.ErrReading):
		return err
	}
	return c.page(v, "site", "Overview", page)
}
