package provisioner

import (
	"context"
	"muster/provisioner/events"
)

// A PolicyInUse is the policy that decides.
type PolicyInUse struct {
	Digest  string `json:"policy"`
	Before  string `json:"before,omitempty"`  // of a reload: the digest of the one before, which may be the same
	Refused string `json:"refused,omitempty"` // why the files are not the policy in use; "" if they are
}

// Policy returns what decides now.
func (p *Provisioner) Policy() *PolicyInUse {
	in := &PolicyInUse{Digest: p.cfg.Policy.Digest()}
	if err := p.cfg.Policy.Refused(); err != nil {
		in.Refused = events.Scrub(err.Error())
	}
	return in
}

// ReloadPolicy reads the policy's files now rather than when they are next looked
// at. One that does not compile, or whose tests fail, is refused: the policy before
// stays in use, the alarm [events.AlarmPolicyRefused] is raised, and an event and the
// error say why. Reloading what is in use is harmless and an event as well: an
// operator has asked.
func (p *Provisioner) ReloadPolicy(ctx context.Context, why Cause) (*PolicyInUse, error) {
	before := p.cfg.Policy.Digest()
	err := p.cfg.Policy.Reload(ctx)
	if ctx.Err() != nil && err != nil {
		return nil, err // nobody waits, and nothing is known of the files
	}
	p.cfg.Alarms.Keep(ctx, events.AlarmPolicyRefused, p.cfg.Policy.Refused)
	e := events.Event{Type: events.PolicyReloaded, Time: p.moment(), Policy: p.cfg.Policy.Digest(), By: why.By, Why: why.Why}
	if err != nil {
		e.Type, e.Cause = events.PolicyRefused, events.ErrorText(err)
	}
	p.cfg.Emit(e)
	if err != nil {
		p.cfg.Log.ErrorContext(ctx, "policy not reloaded, the one before stays in use", "policy", before, "by", why.By, "err", err)
		return nil, err
	}
	p.cfg.Log.InfoContext(ctx, "policy reloaded", "policy", e.Policy, "before", before, "by", why.By)
	in := p.Policy()
	in.Before = before
	return in, nil
}
