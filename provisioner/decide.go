package provisioner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
)

// decide asks the policy about a classified attempt.
func (a *attempt) decide(ctx context.Context) error {
	node := string(a.identity)
	a.allowance = a.logs.Allowances.Match(a.identity, a.now())
	asked := a.cfg.Policy.Digest() // before: a policy that is loaded meanwhile has not failed
	in := a.input()
	d, err := a.cfg.Policy.Decide(ctx, in)
	if err == nil || ctx.Err() == nil { // what was broken off decided nothing
		a.cfg.Observe(in, d, err, asked)
	}
	if err != nil {
		if ctx.Err() == nil {
			a.policy.failed(ctx, a.cfg.Alarms, asked, err)
		}
		return refuse(node, wire.CodePolicyFailed, err)
	}
	a.policy.decided(ctx, a.cfg.Alarms, d.Digest)
	a.decision, a.approval = d, nil
	switch v := d.Verdict(); {
	case v == policies.VerdictApproval,
		v == policies.VerdictAllow && a.reason == ReasonNew && a.logs.InRecovery() != nil: // the name of a lost record?
		return a.approved(ctx)
	case v == policies.VerdictAllow:
		return nil
	case v == policies.VerdictDeny && a.cloned():
		return refuse(node, wire.CodeIdentityCloned, because(d))
	default:
		return refuse(node, verdictCodes[v], because(d))
	}
}

// errTakenBack says that an operator has taken back what an attempt was decided on.
var errTakenBack = errors.New("what it was let in by was taken back meanwhile")

// checkLetIn begins a round anew if what the attempt was let in by has been taken back
// since: an entry of the allow-list, an approval or a grant. It is asked right before the
// record is written, as [proof.checkRevocations] is: a helper may have taken minutes
// since. Approvals and grants are few, so each is worth a second read.
func (a *attempt) checkLetIn() error {
	stands := a.allowance == nil || a.logs.Allowances.Stands(a.allowance, a.identity, a.now())
	if stands && a.approval != nil && a.approval.Identity != "" { // else nobody has written it
		answer, _ := a.logs.Answers.Of(a.identity, a.csr.KeyHash)
		stands = answer != nil && answer.ID == a.approval.ID
	}
	if stands && a.reason == ReasonGrant {
		grant, _, _ := a.logs.Grant(a.identity) // one that cannot be read is another one
		stands = grant != nil && grant.ID == a.grant.ID
	}
	if !stands {
		return fmt.Errorf("%w: %w", errAgain, errTakenBack)
	}
	return nil
}

// because is the cause of a verdict in the policy's own words, nil if it has
// none.
func because(d *policies.Decision) error {
	if why := d.Why(); len(why) > 0 {
		return fmt.Errorf("policy: %s", strings.Join(why, "; "))
	}
	return nil
}

// input is what the policy sees. The token goes in without its secrets.
func (a *attempt) input() *policies.Input {
	in := &policies.Input{
		Identity: string(a.identity),
		Token:    tokenInput(a.token),
		CSR: policies.CSR{
			CommonName: a.csr.CommonName, DNSNames: a.csr.DNSNames, IPAddresses: a.csr.IPAddresses, URIs: a.csr.URIs, Emails: a.csr.Emails,
			Key: policies.Key{Type: a.csr.KeyType, Hash: a.csr.KeyHash},
		},
		Facts:  a.request.Facts,
		Allow:  a.allowance.Input(),
		Node:   policies.Node{State: string(a.record.state()), Reason: string(a.reason)},
		Source: policies.Source{Address: a.source.Address, Site: string(a.siteOf(a.source))},
		Provisioner: policies.Provisioner{
			Site: string(a.cfg.Site), Version: a.cfg.Version,
		},
		Time: a.now(),
	}
	if r := a.record; r != nil {
		in.Node.Cloned = a.cloned()
		in.Node.ProvisionedAt = r.ProvisionedAt
		if r.Current != nil {
			in.Node.Serial, in.Node.ExpiresAt = r.Current.Serial, r.Current.NotAfter
		}
	}
	return in
}

// siteOf returns the site that a request comes from: that of the broker where the
// node connected, which may be at another site than this provisioner, or else
// this provisioner's own.
func (p *Provisioner) siteOf(s Source) jwt.Site {
	if site := wire.SiteOfServer(s.Server); site != "" {
		return jwt.Site(site)
	}
	return p.cfg.Site
}

// tokenInput is what policies see of a token: its claims without the secrets.
func tokenInput(v *jwt.Verified) policies.Token {
	t := policies.Token{
		ID: string(v.ID), Signer: v.SignerName, Issuer: v.Issuer, Org: v.Organization, Site: string(v.Limits.Site), Uses: v.Limits.Uses,
		IssuedAt: v.IssuedAt, ExpiresAt: v.Expiry(), Secure: v.Secure, URLs: v.URLs(), SRVDomain: v.SRVDomain, Default: v.Default,
		Extensions: v.ExtensionsJSON(),
	}
	for _, p := range v.Limits.Identities {
		t.Identities = append(t.Identities, string(p))
	}
	return t
}

// configure makes the configuration: the policy's if it gave one, else the
// configurator's. What a node could not write as server.conf is refused here,
// before anything is on record.
func (a *attempt) configure(ctx context.Context) error {
	node := string(a.identity)
	a.files = wire.Files{Configuration: a.decision.Configuration}
	if a.decision.Configuration == nil {
		if a.cfg.Configurator == nil {
			return refuse(node, wire.CodeConfigurationFailed, errors.New("the policy gives no configuration, and neither a template nor a helper is set"))
		}
		files, err := a.cfg.Configurator.Configure(ctx, Subject{
			Identity: a.identity, Token: a.token, CSR: a.csr, CSRDER: a.request.CSR, Facts: a.request.Facts, Source: a.source,
		})
		var r *Refusal
		switch {
		case errors.As(err, &r):
			r.Node = node
			return r
		case err != nil:
			return refuse(node, wire.CodeConfigurationFailed, err)
		}
		a.files = files
	}
	if err := a.files.Check(); err != nil {
		return refuse(node, wire.CodeConfigurationFailed, err)
	}
	return nil
}
