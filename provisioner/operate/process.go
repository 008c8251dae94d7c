package operate

import (
	"context"
	"fmt"

	"muster/provisioner/trust"

	"muster/provisioner/ca"
	"muster/provisioner/events"
)

// Process orders the provisioner itself.
type Process struct{ *base }

// A PolicyInUse is the policy that decides.
type PolicyInUse struct {
	Digest  string `json:"policy"`
	Before  string `json:"before,omitempty"`  // of a reload: the former digest
	Refused string `json:"refused,omitempty"` // why the files are not in use; empty if they are

	// Warnings name possible mistakes; see [policies.Engine.Warnings].
	Warnings []string `json:"warnings,omitempty"`
}

// Policy returns the policy that decides now.
func (p *Process) Policy() *PolicyInUse {
	return &PolicyInUse{
		Digest:   p.cfg.Policy.Digest(),
		Refused:  events.ErrorText(p.cfg.Policy.Refused()),
		Warnings: p.cfg.Policy.Warnings(),
	}
}

// ReloadPolicy reads the policy's files. If they do not compile or their tests fail, the former policy stays in use and
// [events.AlarmPolicyRefused] is raised.
func (p *Process) ReloadPolicy(ctx context.Context, c trust.Cause) (*PolicyInUse, error) {
	before := p.cfg.Policy.Digest()
	err := p.cfg.Policy.Reload(ctx)
	if ctx.Err() != nil && err != nil {
		return nil, err // the caller has disconnected: the files are not at fault
	}
	p.cfg.Alarms.Keep(ctx, events.AlarmPolicyRefused, p.cfg.Policy.Refused)
	e := p.event(events.PolicyReloaded, c)
	e.Policy = p.cfg.Policy.Digest()
	if err != nil {
		e.Type, e.Cause = events.PolicyRefused, events.ErrorText(err)
	}
	p.cfg.Emit(e)
	if err != nil {
		p.log.ErrorContext(ctx, "policy not reloaded, the former policy stays in use", "policy", before, "by", c.By,
			"err", err)
		return nil, err
	}
	p.log.InfoContext(ctx, "policy reloaded", "policy", e.Policy, "before", before, "by", c.By)
	in := p.Policy()
	in.Before = before
	return in, nil
}

// AcceptClock is [trust.Clock.Accept] with an event.
func (p *Process) AcceptClock(ctx context.Context, c trust.Cause) error {
	if err := p.cfg.Clock.Accept(ctx, c); err != nil {
		return err
	}
	e := p.event(events.ClockAccepted, c)
	e.Cause = fmt.Sprintf("by %s: %s", c.By, c.Why)
	p.cfg.Emit(e)
	return nil
}

// BackupBegun reports that a backup has begun.
func (p *Process) BackupBegun(c trust.Cause) {
	p.cfg.Emit(p.event(events.BackupBegun, c))
}

// An AuthorityInfo is public.
type AuthorityInfo struct {
	Installation string `json:"installation"`
	Roots        string `json:"roots"`       // PEM
	Fingerprint  string `json:"fingerprint"` // the fingerprint that tokens pin as `ca`

	Certificates []ca.CertificateInfo `json:"certificates"`
}

// Authority returns what is public about the authority.
func (p *Process) Authority() *AuthorityInfo {
	return &AuthorityInfo{
		Installation: p.cfg.Installation,
		Roots:        p.cfg.Authority.RootsPEM(),
		Fingerprint:  p.cfg.Authority.Fingerprint(),
		Certificates: p.cfg.Authority.Certificates(),
	}
}
