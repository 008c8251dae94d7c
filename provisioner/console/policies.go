package console

import (
	"context"

	"muster/provisioner/trust"

	"muster/provisioner/events"
	"muster/provisioner/operate"
)

const maxShadowEvents = 20

// policiesPage is the policy in use and its shadow.
type policiesPage struct {
	InUse   *operate.PolicyInUse
	Changes []*loggedEvent // newest reloads
	Shadow  *Shadow        // or nil
	Differs []*loggedEvent // newest differences
	Done    string
}

var policyActions = []*action{{
	Name:  "reload",
	Label: "Reload the policy",
	Touches: []string{
		"This provisioner reads its policy files now.",
		"A policy that does not compile, or whose tests fail, is refused: the former policy stays in use.",
	},
	Done: "The policy files were read again.",
}}

func (c policyPages) reload(*visit) (*order, error) {
	return &order{
		action: named(policyActions, "reload"),
		Back:   "/policies",
		On:     []string{"the policy"},
		do: func(ctx context.Context, cause trust.Cause) error {
			_, err := c.cfg.Orders.Process.ReloadPolicy(ctx, cause)
			return err
		},
	}, nil
}

func (c policyPages) policies(v *visit) error {
	p := &policiesPage{Done: done(v, policyActions), InUse: c.cfg.Orders.Process.Policy()}
	if c.cfg.Shadow != nil {
		p.Shadow = c.cfg.Shadow()
	}
	p.Changes = c.activity.newest(maxShadowEvents, func(t *loggedEvent) bool {
		return t.Type == events.PolicyReloaded || t.Type == events.PolicyRefused
	})
	p.Differs = c.activity.newest(maxShadowEvents, func(t *loggedEvent) bool { return t.Type == events.ShadowDiffers })
	return c.page(v, "policies", "Policies", p)
}
