package operate

import (
	"context"
	"errors"
	"fmt"

	"muster/provisioner/trust"

	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/events"
)

// Process is the provisioner itself: its policy, its clock and its backups.
type Process struct {
	*base

	cfg provisioner.Config
}

// A PolicyInUse is the policy that decides.
type PolicyInUse struct {
	Digest  string `json:"policy"`
	Before  string `json:"before,omitempty"`  // of a reload: the digest of the one before, which may be the same
	Refused string `json:"refused,omitempty"` // why the files are not the policy in use; "" if they are
}

// Policy returns what decides now.
func (p *Process) Policy() *PolicyInUse {
	return &PolicyInUse{Digest: p.cfg.Policy.Digest(), Refused: events.ErrorText(p.cfg.Policy.Refused())}
}

// ReloadPolicy reads the policy's files at once rather than when they are next looked at. A policy that does not compile,
// or whose tests fail, is refused: the one before stays in use, the alarm [events.AlarmPolicyRefused] is raised, and an
// event and the error say why. Reloading what is in use is harmless and an event as well.
func (p *Process) ReloadPolicy(ctx context.Context, c trust.Cause) (*PolicyInUse, error) {
	before := p.cfg.Policy.Digest()
	err := p.cfg.Policy.Reload(ctx)
	if ctx.Err() != nil && err != nil {
		return nil, err // the caller has gone, and nothing is known of the files
	}
	p.cfg.Alarms.Keep(ctx, events.AlarmPolicyRefused, p.cfg.Policy.Refused)
	e := p.event(events.PolicyReloaded, c)
	e.Policy = p.cfg.Policy.Digest()
	if err != nil {
		e.Type, e.Cause = events.PolicyRefused, events.ErrorText(err)
	}
	p.emit(e)
	if err != nil {
		p.log.ErrorContext(ctx, "policy not reloaded, the one before stays in use", "policy", before, "by", c.By, "err", err)
		return nil, err
	}
	p.log.InfoContext(ctx, "policy reloaded", "policy", e.Policy, "before", before, "by", c.By)
	in := p.Policy()
	in.Before = before
	return in, nil
}

// AcceptClock is [trust.Clock.Accept], with an event.
func (p *Process) AcceptClock(ctx context.Context, c trust.Cause) error {
	if p.cfg.Clock == nil {
		return errors.New("accept clock: the clock is not watched")
	}
	if err := p.cfg.Clock.Accept(ctx, c); err != nil {
		return err
	}
	e := p.event(events.ClockAccepted, c)
	e.Cause = fmt.Sprintf("by %s: %s", c.By, c.Why)
	p.emit(e)
	return nil
}

// BackupBegun emits the event that a backup has been begun.
func (p *Process) BackupBegun(c trust.Cause) {
	p.emit(p.event(events.BackupBegun, c))
}

// An AuthorityInfo is what everybody may know of the installation.
type AuthorityInfo struct {
	Installation string `json:"installation"`
	Roots        string `json:"roots"`       // PEM
	Fingerprint  string `json:"fingerprint"` // what tokens pin as their `ca`

	Certificates []ca.CertificateInfo `json:"certificates"`
}

// Authority returns what everybody may know.
func (p *Process) Authority() *AuthorityInfo {
	return &AuthorityInfo{
		Installation: p.cfg.Installation,
		Roots:        p.cfg.Authority.RootsPEM(),
		Fingerprint:  p.cfg.Authority.Fingerprint(),
		Certificates: p.cfg.Authority.Certificates(),
	}
}
