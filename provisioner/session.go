package provisioner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner/ca"
	"muster/provisioner/trust"
)

// A Session is a node of the fleet that asks for something besides its own certificate. Its errors are *[Refusal].
type Session struct {
	Node   wire.Identity
	Record *Record // must not be changed

	attempt *attempt
	newest  trust.Revision // of the revocations about the node
}

// Session returns the node that sent a request. It is as strict as [Provisioner.Renew]; the signature is that of the
// session. Until done is called, this process handles no other request of the node.
func (p *Provisioner) Session(
	ctx context.Context, identity string, source Source,
) (_ *Session, done func(), err error) {
	id, err := wire.ParseIdentity(identity)
	switch {
	case err != nil:
		return nil, nil, refuse(wire.CodeIdentityInvalid, err)
	case source.Node != id:
		return nil, nil, refuse(wire.CodeRenewSession,
			fmt.Errorf("request of %q over the session of %q", id, source.Node))
	}
	if err := p.records.checkStore(); err != nil {
		return nil, nil, err
	}
	if done, err = p.lockIdentity(ctx, id, source); err != nil {
		return nil, nil, err
	}
	s := &Session{Node: id, attempt: &attempt{proof: proof{
		Provisioner: p,
		request:     &wire.EnrollRequest{Identity: identity},
		source:      source,
		identity:    id,
		renewal:     true,
	}}}
	if err := s.read(ctx); err != nil {
		done()
		return nil, nil, err
	}
	return s, done, nil
}

func (s *Session) read(ctx context.Context) (err error) {
	a := s.attempt
	_, s.newest = a.revocations.About(s.Node) // before the record
	if s.Record, err = a.Gate.peer(ctx, s.Node, ""); err != nil {
		return err
	}
	live := false
	for _, serial := range s.Record.Live(a.now()) {
		live = live || a.revocations.Serial(serial) == nil &&
			a.Gate.admitsPeer(s.Record, ProtocolMuster, s.Node, serial) == nil
	}
	if !live {
		return refuse(wire.CodeRenewSession, errSession)
	}
	a.record, a.reason = s.Record, ReasonRenew
	if a.token, err = s.Record.storedToken(); err != nil {
		return refuse(wire.CodeUnavailable, err)
	}
	return a.checkPaused()
}

// Recheck refuses the request if the node may have been revoked, retired or handed over since.
func (s *Session) Recheck() error {
	if err := s.attempt.Fresh(); err != nil {
		return refuse(wire.CodeRevocationsUnknown, err)
	}
	if _, newest := s.attempt.revocations.About(s.Node); newest != s.newest {
		return refuse(wire.CodeBusy, errAgain)
	}
	return s.attempt.records.checkStore()
}

// Decide asks the policy for a service certificate of the key. If the verdict is not allow, it returns the decision and
// the refusal.
func (s *Session) Decide(ctx context.Context, key *ca.CSR, want *policies.ServiceRequest) (*policies.Decision, error) {
	a := s.attempt
	a.csr = key
	a.request.Facts, _ = s.Record.Facts.MarshalJSON() // texts always encode
	in := a.input()
	in.Certificate = want
	if err := a.ask(ctx, in); err != nil {
		return nil, err
	}
	if v := a.decision.Verdict(); v != policies.VerdictAllow {
		return a.decision, refuse(verdictCodes[v], policyReasons(a.decision))
	}
	return a.decision, nil
}

// JudgeName refuses a name that enters a service certificate, by the rules for the node's own, and a name below the
// identity of another node.
func (s *Session) JudgeName(ctx context.Context, name string) error {
	node := string(s.Node)
	if name == node {
		return nil
	}
	if err := s.attempt.cfg.Reserved(name, s.attempt.token); err != nil {
		return refuse(wire.CodeIdentityReserved, err)
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	for owner, more := name, true; more && owner != node; _, owner, more = strings.Cut(owner, ".") {
		r, _, err := s.attempt.cfg.Store.Record(ctx, wire.Identity(owner))
		if err != nil && !errors.Is(err, trust.ErrRecord) { // an unreadable record keeps its name
			return refuse(StoreCode(err), err)
		}
		if err != nil || r != nil && r.State != StateRetired {
			return refuse(wire.CodeNameTaken, fmt.Errorf("%s belongs to the node %s", name, owner))
		}
	}
	return nil
}

// OwnedSince returns [Record.OwnedSince], or zero if the node is revoked or retired, or is about to be. The error is
// [ErrNoRecord] if it has never enrolled.
func (p *Provisioner) OwnedSince(ctx context.Context, id wire.Identity) (time.Time, error) {
	r, _, err := p.cfg.Store.Record(ctx, id)
	if errors.Is(err, trust.ErrRecord) && p.revocations.Outstanding(id, "") != nil {
		return time.Time{}, nil
	}
	if err == nil {
		err = p.SyncRevocations(ctx, r)
	}
	if err == nil && r == nil {
		err = ErrNoRecord
	}
	if err != nil {
		return time.Time{}, err
	}
	if by, _ := p.revocations.About(id); r.State == StateRevoked || r.State == StateRetired || applies(by, r) {
		return time.Time{}, nil
	}
	return r.OwnedSince, nil
}
