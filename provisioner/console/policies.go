package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/provisioner/trust"

	"muster/policies"
	"muster/provisioner/events"
	"muster/provisioner/operate"
)

// Bounds of a replay; chosen. A day of a busy installation is a million decisions,
// which take a core for some minutes: the rest is for `muster policy replay`, which
// runs on the operator's machine.
const (
	replayLimit     = 2 * time.Minute
	maxDifferences  = 200
	maxShadowEvents = 20
)

// replayed is what came of a replay of the shadow policy.
type replayed struct {
	Over    string // how far back, in words
	Report  *policies.ReplayReport
	Problem string
}

// policiesPage is what decides, and what would.
type policiesPage struct {
	InUse     *operate.PolicyInUse
	Changes   []*told // the last reloads
	Shadow    *Shadow // nil: there is none
	Differs   []*told // what it decided otherwise lately
	CanReplay bool
	Replay    *replayed // nil: none was asked for
	Shown     []*policies.NodeReplay
	More      int // that differ as well
	Done      string
	Ages      []choice
}

// ages are how far a replay may look back.
var ages = []choice{{"1h", "the last hour"}, {"6h", "the last 6 hours"}, {"24h", "the last day"}}

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
	return c.showPolicies(v, &policiesPage{Done: done(v, policyActions)})
}

// showPolicies fills the page in and shows it.
func (c policyPages) showPolicies(v *visit, p *policiesPage) error {
	p.InUse, p.CanReplay, p.Ages = c.cfg.Orders.Process.Policy(), c.cfg.Replay != nil, ages
	if c.cfg.Shadow != nil {
		p.Shadow = c.cfg.Shadow()
	}
	p.Changes = c.activity.newest(maxShadowEvents, func(t *told) bool {
		return t.Type == events.PolicyReloaded || t.Type == events.PolicyRefused
	})
	p.Differs = c.activity.newest(maxShadowEvents, func(t *told) bool { return t.Type == events.ShadowDiffers })
	if r := p.Replay; r != nil && r.Report != nil {
		p.Shown = r.Report.Differences[:min(maxDifferences, len(r.Report.Differences))]
		p.More = len(r.Report.Differences) - len(p.Shown)
	}
	return c.page(v, "policies", "Policies", p)
}

// replay runs the shadow policy over what was recorded, one at a time, and shows what came of it. It changes nothing.
func (c policyPages) replay(v *visit) error {
	i := slices.IndexFunc(ages, func(a choice) bool { return a.Value == v.r.PostForm.Get("since") })
	if i < 0 {
		return badRequest(errors.New("since: want one of the list"))
	}
	if c.cfg.Replay == nil {
		return errNoPage
	}
	if !c.replaying.TryLock() {
		return errReplaying
	}
	defer c.replaying.Unlock()
	age, err := time.ParseDuration(ages[i].Value)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(v.r.Context(), replayLimit)
	defer cancel()
	one := &replayed{Over: ages[i].Label}
	if one.Report, err = c.cfg.Replay(ctx, age); err != nil {
		one.Problem = err.Error()
		if ctx.Err() != nil {
			one.Problem = fmt.Sprintf("ended after %v: take a shorter time, or `muster policy replay` on your machine", replayLimit)
		}
	}
	return c.showPolicies(v, &policiesPage{Replay: one})
}
