package provisioner

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner/ca"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// filesOf refuses files that the node would not write. The error is a *[Refusal].
func filesOf(ctx context.Context, from Configurator, d *policies.Decision, s Subject) (wire.Files, error) {
	files := wire.Files{Configuration: d.Configuration}
	var err error
	switch {
	case files.Configuration != nil, from == nil && s.Edge != nil:
	case from == nil:
		err = errors.New("the policy gives no configuration, and neither configuration.template nor " +
			"configuration.helper is set")
	default:
		files, err = from.Configure(ctx, s)
	}
	if s.Edge == nil { // clients of other systems have none
		files.Certificates = d.Certificates
	}
	if err == nil {
		files, err = s.Edge.complete(wire.Identity(s.Identity), files)
	}
	if err != nil {
		return wire.Files{}, RefusalOf(err, wire.CodeConfigurationFailed)
	}
	return files, nil
}

// e may be nil.
func certificateOf(id wire.Identity, key crypto.PublicKey, d *policies.Certificate, e *Edge) ca.Request {
	r := ca.Request{
		Role:       wire.RoleNode,
		Name:       string(id),
		PublicKey:  key,
		TTL:        d.TTL,
		DNSNames:   d.DNSNames,
		ServerAuth: d.ServerAuth,
		ClientAuth: d.ClientAuth,
		URIs:       d.URIs,
		Extensions: d.Extensions,
	}
	if r.TTL == 0 && e != nil {
		r.TTL = e.TTL
	}
	for _, text := range d.IPAddresses {
		r.IPAddresses = append(r.IPAddresses, net.ParseIP(text))
	}
	return r
}

// ServiceRequest asks for the service certificate of a node that d names.
func ServiceRequest(id wire.Identity, name string, key crypto.PublicKey, d *policies.Certificate) ca.Request {
	r := certificateOf(id, key, d, nil)
	r.Role, r.Name = wire.RoleService, string(id)+"/"+name
	return r
}

// A Preview does after a decision what enrollment does, and writes and issues nothing. So `muster policy` and a shadow
// policy find what enrollment refuses.
type Preview struct {
	// Configurator is that of [Config].
	Configurator Configurator

	// PolicyOnly leaves the Configurator out: it is unknown, or a helper, which may have effects.
	PolicyOnly bool

	// MaxTTL is that of [ca.Config], but for Puppet agents.
	MaxTTL time.Duration

	// Record returns the record of a node, nil without one. Nil: names of other nodes are not refused.
	Record func(context.Context, wire.Identity) (*Record, error)

	// Choria completes the files of a Choria server. Nil: there is no gateway.
	Choria func(wire.Identity) *Edge

	// Reserved is that of [Config]. Nil: only names that no installation issues are refused.
	Reserved func(name string, token *jwt.Verified) error
}

// Follow is [policies.Config.Follow]. The error is the *[Refusal] of [Provisioner.Enroll].
func (p *Preview) Follow(ctx context.Context, in *policies.Input, d *policies.Decision) (wire.Files, error) {
	id, err := wire.ParseIdentity(in.Identity)
	if err != nil {
		return wire.Files{}, refuse(wire.CodeIdentityInvalid, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return wire.Files{}, err
	}
	claims := jwt.Claims{Brokers: strings.Join(in.Token.URLs, ","), SRVDomain: in.Token.SRVDomain}
	token := &jwt.Verified{Claims: claims}
	if err := p.reserved(string(id), token); err != nil && in.Node.Reason != string(ReasonRenew) {
		return wire.Files{}, refuse(wire.CodeIdentityReserved, err)
	}
	err = checkAdded(id, &d.Certificate, token, p.reserved)
	if err == nil && p.Record != nil && len(d.Certificate.DNSNames) > 0 {
		own, unread := p.Record(ctx, id)
		if unread != nil {
			return wire.Files{}, unread
		}
		err = own.checkForeign(ctx, id, d.Certificate.DNSNames, p.Record)
	}
	if err != nil {
		return wire.Files{}, RefusalOf(err, wire.CodeCertificateFailed)
	}
	maxTTL, puppet := p.MaxTTL, in.Source.Protocol == ProtocolPuppet.String()
	if puppet {
		maxTTL = PuppetMaxTTL
	}
	request := certificateOf(id, key.Public(), &d.Certificate, nil)
	if in.Certificate != nil {
		request = ServiceRequest(id, in.Certificate.Name, key.Public(), &d.Certificate)
	}
	if err := ca.CheckRequest(request, maxTTL); err != nil {
		return wire.Files{}, refuse(IssueCode(err), err)
	}
	if in.Certificate != nil || d.Configuration == nil && p.PolicyOnly {
		return wire.Files{}, nil
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: in.Identity}, DNSNames: []string{in.Identity}}
	csr, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return wire.Files{}, err
	}
	s := Subject{Input: in, CSRDER: csr}
	if puppet {
		s.Edge = &Edge{}
	}
	if p.Choria != nil && in.Source.Protocol == ProtocolChoria.String() {
		s.Edge = p.Choria(id)
	}
	return filesOf(ctx, p.Configurator, d, s)
}

// reserved judges the name or the address of a node.
func (p *Preview) reserved(host string, token *jwt.Verified) error {
	if p.Reserved != nil {
		return p.Reserved(host, token)
	}
	if net.ParseIP(host) != nil {
		return nil
	}
	return wire.CheckReserved(wire.Identity(host))
}

// Forecast returns the code with which the key of an open approval will be refused, or "". It ignores policy and token.
// r is the record and g the newest grant; each may be nil. [wire.CodeApprovalPending] means that the approval is void.
func (p *Provisioner) Forecast(ctx context.Context, a *orders.Answer, r *Record, g *orders.Grant) wire.Code {
	if p.Fresh() != nil || p.SyncRevocations(ctx, r) != nil {
		return wire.CodeRevocationsUnknown
	}
	if p.revocations.Key(a.KeyHash) != nil || p.revocations.Outstanding(a.Identity, r.AppliedRevocation()) != nil ||
		StateOf(r) == StateRevoked {
		return wire.CodeIdentityRevoked
	}
	reason, err := classify(r, claim{
		identity:  a.Identity,
		keyHash:   a.KeyHash,
		grant:     g,
		requested: p.now(),
	})
	if errors.Is(err, errTaken) && r.Awaits() {
		reason, err = ReasonNew, nil
	}
	if err != nil {
		// The name is not taken if an owner's key vouches for this one: the request waits for approval.
		w, _, err := p.cfg.Store.Waiter(ctx, a.Identity, a.KeyHash)
		switch {
		case err != nil && !errors.Is(err, trust.ErrRecord):
			return StoreCode(err)
		case err != nil, w == nil, w.Code != wire.CodeApprovalPending, !w.LastAsked.After(r.OwnedSince):
			return wire.CodeIdentityTaken
		}
	}
	switch {
	case !p.approvalCounts(a, r, reason):
		return wire.CodeApprovalPending
	case p.logs.Pauses.About(false, "", "") != nil:
		return wire.CodePaused
	}
	return ""
}

// An approval from before a revocation or retirement was for the former owner.
func (p *Provisioner) approvalCounts(a *orders.Answer, r *Record, reason Reason) bool {
	if !r.admittedBy(a, reason, p.now()) {
		return false
	}
	out, _ := p.revocations.About(a.Identity)
	return out == nil || a.At.After(out.At)
}

// GrantApplies reports whether the grant, which may be nil, still admits its key.
func (r *Record) GrantApplies(g *orders.Grant, now time.Time) bool {
	switch state := StateOf(r); {
	case g == nil, state == StateRevoked:
		return false
	case g.Secret != "":
		return g.Open(now) && (r == nil || r.Grant != g.ID)
	case state == StateNone, state == StateRetired && !r.Awaiting:
		return false
	}
	return r.grantedBy(g, g.KeyHash, now)
}
