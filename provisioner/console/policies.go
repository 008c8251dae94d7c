package console

import (
	"context"

	"muster/provisioner/trust"

	"muster/provisioner/events"
	"muster/provisioner/operate"
)

// maxShadowEvents bounds the events on the page.
const maxShadowEvents = 20

// policiesPage is what decides, and what would.
type policiesPage struct {
	InUse   *operate.PolicyInUse
	Changes []*told // the last reloads
	Shadow  *Shadow // nil: there is none
	Differs []*told // what it decided otherwise lately
	Done    string
}

// policyActions are about the files of this provisioner.
var policyActions = []*action{{
	Name:  "reload",
	Label: "Reload the policy",
	Touches: []string{
		"The files of this provisioner are read now.",
		"A policy that does not compile, or whose tests fail, is refused: the one before goes on deciding.",
	},
	Done: "The policy's files were read again.",
}}

// reload reads an order to read the policy's files now.
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
	p.Changes = c.activity.newest(maxShadowEvents, func(t *told) bool {
		return t.Type == events.PolicyReloaded || t.Type == events.PolicyRefused
	})
	p.Differs = c.activity.newest(maxShadowEvents, func(t *told) bool { return t.Type == events.ShadowDiffers })
	return c.page(v, "policies", "Policies", p)
}
