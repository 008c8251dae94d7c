package provisioner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner/events"
)

func (a *attempt) decide(ctx context.Context) error {
	a.allowance = a.logs.Allowances.Match(a.identity, a.now(), a.provenBy() == policies.ProofNone)
	if err := a.ask(ctx, a.input()); err != nil {
		return err
	}
	d := a.decision
	a.approval = nil
	switch v := d.Verdict(); {
	case v == policies.VerdictApproval,
		// In a recovery, a new name may have had a record that was lost.
		v == policies.VerdictAllow && a.reason == ReasonNew && (a.logs.InRecovery() != nil || a.record.Awaits()):
		return a.checkApproved(ctx)
	case v == policies.VerdictAllow:
		return nil
	case v == policies.VerdictDeny && a.cloned():
		return refuse(wire.CodeIdentityCloned, policyReasons(d))
	default:
		return refuse(verdictCodes[v], policyReasons(d))
	}
}

func (a *attempt) ask(ctx context.Context, in *policies.Input) error {
	asked := a.cfg.Policy.Digest() // read first, so that a policy loaded meanwhile is not blamed
	d, err := a.cfg.Policy.Decide(ctx, in)
	if !a.source.Edge.keeps() && (err == nil || ctx.Err() == nil) { // a canceled evaluation is no decision
		a.cfg.Observe(in, d, err, asked)
	}
	if err != nil {
		if ctx.Err() == nil {
			a.policy.Store(&policyFailure{asked, time.Now(), err})
		}
		return refuse(wire.CodePolicyFailed, err)
	}
	a.seen, a.decision = in, d
	return nil
}

var errWithdrawn = errors.New("the allow-list entry, approval or grant that admitted the node was withdrawn meanwhile")

// checkStillAdmitted runs right before the write, since a configuration helper may run for minutes.
func (a *attempt) checkStillAdmitted() error {
	stands := a.allowance == nil || a.logs.Allowances.Stands(a.allowance, a.identity, a.now())
	if stands && a.approval != nil && a.approval.Identity != "" { // autosign's have no Identity and are not stored
		answer, _ := a.logs.Answers.Of(a.identity, a.csr.KeyHash)
		stands = answer != nil && answer.ID == a.approval.ID
	}
	if stands && (a.reason == ReasonGrant || a.reason == ReasonOneTimeToken && a.oneTime) {
		grant, _, _ := a.logs.Grant(a.identity) // an unreadable grant counts as withdrawn
		stands = grant != nil && grant.ID == a.grant.ID
	}
	if !stands {
		return fmt.Errorf("%w: %w", errAgain, errWithdrawn)
	}
	return nil
}

func policyReasons(d *policies.Decision) error {
	if why := d.Why(); len(why) > 0 {
		return fmt.Errorf("policy: %s", strings.Join(why, "; "))
	}
	return nil
}

func (a *attempt) input() *policies.Input {
	in := &policies.Input{
		Identity: string(a.identity),
		Proof:    a.provenBy(),
		Token:    tokenInput(a.token),
		CSR: policies.CSR{
			CommonName:  a.csr.CommonName,
			DNSNames:    a.csr.DNSNames,
			IPAddresses: a.csr.IPAddresses,
			URIs:        a.csr.URIs,
			Emails:      a.csr.Emails,
			Key:         policies.Key{Type: a.csr.KeyType, Hash: a.csr.KeyHash},
			Extensions:  a.extensions(),
		},
		Facts:      a.request.Facts,
		FactsError: events.Scrub(a.request.FactsError),
		Allow:      a.allowance.Input(),
		Node:       policies.Node{State: string(StateOf(a.record)), Reason: string(a.reason)},
		Source: policies.Source{
			Address:  a.source.Address,
			Site:     string(a.siteOf(a.source)),
			Protocol: a.source.Protocol.String(),
		},
		Provisioner: policies.Provisioner{
			Site: string(a.cfg.Site), Version: a.cfg.Version,
		},
		Time: a.now(),
	}
	if !a.grant.Holds(a.challenge) {
		in.CSR.Challenge = a.challenge
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

func (p *Provisioner) siteOf(s Source) jwt.Site {
	if site := wire.SiteOfServer(s.Server); site != "" {
		return jwt.Site(site)
	}
	return p.cfg.Site
}

// tokenInput leaves out the token's secrets.
func tokenInput(v *jwt.Verified) policies.Token {
	t := policies.Token{
		ID:         string(v.ID),
		Signer:     v.SignerName,
		Issuer:     v.Issuer,
		Org:        v.Organization,
		Site:       string(v.Limits.Site),
		Uses:       v.Limits.Uses,
		IssuedAt:   v.IssuedAt,
		ExpiresAt:  v.Expiry(),
		Secure:     v.Secure,
		URLs:       v.URLs(),
		SRVDomain:  v.SRVDomain,
		Default:    v.Default,
		Extensions: v.ExtensionsJSON(),
	}
	for _, p := range v.Limits.Identities {
		t.Identities = append(t.Identities, string(p))
	}
	return t
}

func (a *attempt) configure(ctx context.Context) (err error) {
	a.files, err = filesOf(ctx, a.cfg.Configurator, a.decision, Subject{
		Input:    a.seen,
		Verified: a.token,
		CSRDER:   a.request.CSR,
		Edge:     a.source.Edge,
	})
	return err
}
