package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"muster/provisioner/waiting"

	"muster/provisioner/orders"

	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner/ca"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// maxRounds bounds conflicts with other processes in a row. Even two are rare.
const maxRounds = 8

// errAgain starts another round.
var errAgain = errors.New("another request changed the record")

var errUnknownIssuer = errors.New("the certificate on record was issued by an authority that this provisioner does " +
	"not know; if the CA was rolled over, restart this provisioner")

// A proof is a request with the results of its verification.
type proof struct {
	*Provisioner

	id      string    // unique; on every record that the attempt writes
	begun   time.Time // monotonic, since Config.Now may be wrong
	request *wire.EnrollRequest
	source  Source
	renewal bool // without a token, over the node's session

	certificate []byte // of a renewal in a recovery: the node's certificate in DER

	// Set by prove.
	identity  wire.Identity
	token     *jwt.Verified // without one in the request: set by each round
	bearer    string        // text of the request's token, once verified
	challenge string        // text of a Puppet request in place of a token
	csr       *ca.CSR
	vouching  string
}

type attempt struct {
	proof

	// Kept from round to round.
	quotaTaken bool
	claim      *trust.TokenClaim // in the log of claims, or nil
	unsure     bool              // a record may have been written
	// confirming is the record last tried by a renewal that also confirms an offer, or nil.
	confirming *Record

	findings
}

// findings are the results of one round.
type findings struct {
	record     *Record // newest, or nil
	after      trust.Revision
	revocation *trust.Revocation // about the identity, or nil
	grant      *orders.Grant
	oneTime    bool              // challenge is the grant's secret
	allowance  *orders.Allowance // covers the identity; or nil
	approval   *orders.Answer    // if the policy wants one, or nil
	unsigned   error             // why autosign did not approve
	reason     Reason
	seen       *policies.Input
	decision   *policies.Decision
	files      wire.Files
	confirmed  *Issued // of a renewal: the offer that it confirms, or nil

	// Of a node that comes back in a recovery.
	returning *Recovered
	former    trust.RevokedCertificate
}

// Enroll verifies a request, asks the policy, issues the certificate and writes the record. The error is a *[Refusal].
//
// All checks come before the write of the record, and the reply comes after its acknowledgement. So a crash at any step
// is harmless: before the write there is nothing to undo, and after it the same request gets the same certificate.
func (p *Provisioner) Enroll(ctx context.Context, r *wire.EnrollRequest, source Source) (*wire.Enrolled, error) {
	ctx, cancel := context.WithTimeout(ctx, maxAttempt)
	defer cancel()
	a := &attempt{proof: proof{
		Provisioner: p,
		id:          wire.NewID(),
		begun:       time.Now(),
		request:     r,
		source:      source,
	}}
	enrolled, written, err := a.enroll(ctx)
	p.done(RequestEnroll, a.begun, err)
	if err != nil {
		return nil, a.reportRefused(ctx, err)
	}
	p.note(a.token)
	if written {
		p.pending.Gone(waiting.Holder{Key: a.csr.KeyHash, Identity: a.identity}, a.approval != nil)
	}
	a.reportGranted(ctx, events.Enrolled, "node enrolled", enrolled, written)
	return enrolled, nil
}

func (a *attempt) reportGranted(ctx context.Context, t events.Type, msg string, enrolled *wire.Enrolled, written bool) {
	e := events.Event{
		Type:     t,
		Time:     a.moment(),
		Node:     string(a.identity),
		Reason:   string(a.reason),
		Token:    a.token.ID,
		Signer:   a.token.Signer,
		Site:     a.token.Limits.Site,
		Source:   a.source.Address,
		Sealed:   a.source.Sealed,
		Attempt:  a.id,
		Policy:   a.decision.Digest,
		Serial:   enrolled.Serial,
		Digest:   enrolled.Digest,
		Elapsed:  time.Since(a.begun),
		Repeated: !written,
	}
	if !written && !allowRepeat(a.repeats.replies, &e) {
		return
	}
	a.cfg.Emit(e)
	a.cfg.Log.InfoContext(ctx, msg, "node", a.identity, "serial", e.Serial, //nolint:sloglint // one of two literals
		"reason", a.reason, "token_id", e.Token, "site", a.cfg.Site, "source", e.Source,
		"repeated", e.Repeated, "elapsed", e.Elapsed)
}

func (a *attempt) reportRefused(ctx context.Context, err error) error {
	r, told := a.notePending(ctx, RefusalOf(err, wire.CodeUnavailable))
	r.Proven = !a.renewal && a.provenBy() == policies.ProofToken
	e := RefusalEvent(a.request.Identity, r, a.moment(), a.source.Address)
	if a.source.Protocol == ProtocolPuppet && a.provenBy() == policies.ProofNone && !a.isPending(r) {
		e.Type = events.Attempt
	}
	e.Reason, e.Attempt = string(a.reason), a.id
	if a.token != nil {
		e.Token, e.Signer, e.Site = a.token.ID, a.token.Signer, a.token.Limits.Site
	}
	if a.decision != nil {
		e.Policy = a.decision.Digest
	}
	if told {
		return r
	}
	level := slog.LevelWarn
	if r.Code == wire.CodeDeferred || r.Code == wire.CodeApprovalPending || r.Code == wire.CodeShutdown {
		level = slog.LevelInfo
	}
	msg := "enrollment refused"
	if a.renewal {
		msg = "renewal refused"
	}
	a.reportRefusal(ctx, level, msg, e, a.source.Node != "" && string(a.source.Node) == a.request.Identity)
	return r
}

func (a *attempt) enroll(ctx context.Context) (*wire.Enrolled, bool, error) {
	// First, since a wrong clock misjudges the token's dates.
	if err := a.cfg.Clock.Check(); err != nil {
		return nil, false, refuse(wire.CodeClockBehind, err)
	}
	if err := a.prove(); err != nil {
		return nil, false, err
	}
	if err := a.checkRevocations(ctx); err != nil {
		return nil, false, err
	}
	unlock, err := a.lockIdentity(ctx, a.identity, a.source)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	for range maxRounds {
		enrolled, written, err := a.round(ctx)
		if !errors.Is(err, errAgain) {
			if err != nil {
				a.undo(ctx)
			}
			return enrolled, written, err
		}
	}
	a.undo(ctx)
	return nil, false, refuse(wire.CodeBusy, fmt.Errorf("%w, %d times in a row", errAgain, maxRounds))
}

func (a *proof) prove() error {
	if err := a.proveRequest(); err != nil || a.renewal {
		return err
	}
	// Before the lock, since this may wait for DNS.
	if err := a.cfg.Reserved(string(a.identity), a.token); err != nil {
		return refuse(wire.CodeIdentityReserved, err)
	}
	return nil
}

func (a *proof) proveRequest() error {
	if a.renewal {
		return a.proveRenewal()
	}
	r := a.request
	id, err := wire.ParseIdentity(r.Identity)
	if err != nil {
		return refuse(wire.CodeIdentityInvalid, err)
	}
	a.identity = id
	if a.token = withoutToken(); a.source.Protocol == ProtocolPuppet && !isToken(string(r.Token)) {
		a.challenge = string(r.Token)
		return a.proveKey()
	}
	token, err := a.authentic(string(r.Token), a.source.Address)
	if err != nil {
		a.token = nil
		return refuse(TokenCode(err), err)
	}
	a.token, a.bearer = token, string(r.Token)
	a.source.proven()
	if token.Limits.Seal != "" && !a.source.Sealed {
		// The token may be stolen, and the reply could be read on the network.
		return refuse(wire.CodeSealedInvalid,
			fmt.Errorf("token %s requires a sealed request, and this one is not sealed", token.ID))
	}
	if err := token.Admits(id, a.siteOf(a.source)); err != nil {
		return refuse(TokenCode(err), err)
	}
	return a.proveKey()
}

func (a *proof) proveKey() (err error) {
	r := a.request
	if a.source.Edge != nil {
		a.csr = a.source.Edge.Key
	} else if a.csr, err = ca.ParseCSR(r.CSR); err != nil {
		return refuse(wire.CodeCSRInvalid, err)
	}
	if cn := a.csr.CommonName; cn != "" && cn != string(a.identity) {
		return refuse(wire.CodeCSRIdentity, fmt.Errorf("certificate request names %q, want %q", cn, a.identity))
	}
	if oids := a.csr.Unpermitted; len(oids) > 0 && a.source.Protocol == ProtocolPuppet {
		return refuse(wire.CodeCSRInvalid, fmt.Errorf("certificate request asks for the extensions %s: "+
			"only pp_ extensions are permitted", strings.Join(oids, ", ")))
	}
	if a.source.Edge != nil && a.source.Edge.Session {
		a.vouching = a.csr.KeyHash
		return nil
	}
	if a.vouching, err = vouchingKey(r); err != nil {
		return refuse(wire.CodeBadRequest, err)
	}
	return nil
}

// TokenCode returns the code for an error of package jwt.
func TokenCode(err error) wire.Code {
	switch {
	case errors.Is(err, jwt.ErrBudget):
		return wire.CodeSourceLimited
	case errors.Is(err, jwt.ErrExpired):
		return wire.CodeTokenExpired
	case errors.Is(err, jwt.ErrNotYetValid):
		return wire.CodeTokenNotYetValid
	case errors.Is(err, jwt.ErrLimit):
		return wire.CodeTokenUnsupported
	case errors.Is(err, jwt.ErrIdentity):
		return wire.CodeTokenIdentity
	case errors.Is(err, jwt.ErrSite):
		return wire.CodeTokenSite
	case errors.Is(err, trust.ErrRevocationsUnknown):
		return wire.CodeRevocationsUnknown
	default:
		return wire.CodeTokenInvalid
	}
}

// round goes from reading the record to writing the next, and reports whether it wrote. After errAgain no certificate
// has left the process.
func (a *attempt) round(ctx context.Context) (*wire.Enrolled, bool, error) {
	a.findings = findings{}
	err := a.classify(ctx)
	if err == nil {
		err = a.checkLost()
	}
	if err != nil {
		return nil, false, a.concealExistence(ctx, err)
	}
	if err := a.checkPaused(); err != nil {
		return nil, false, err
	}
	if a.returning == nil {
		if err := a.pace(); err != nil {
			return nil, false, err
		}
	}
	if err := a.checkStorage(); err != nil {
		return nil, false, err
	}
	if err := a.decide(ctx); err != nil {
		return nil, false, err
	}
	if err := a.configure(ctx); err != nil {
		return nil, false, err
	}
	if a.reason == ReasonReplay {
		return a.replay(ctx)
	}
	if err := a.checkNames(ctx); err != nil {
		return nil, false, err
	}
	request := certificateOf(a.identity, a.csr.PublicKey, &a.decision.Certificate, a.source.Edge)
	certificate, err := a.authority().Issue(request)
	if err != nil {
		return nil, false, refuse(IssueCode(err), err)
	}
	if a.reason == ReasonNew && !a.quotaTaken {
		if err := a.quotas.take(a.token.ID, a.source.Address); err != nil {
			return nil, false, refuse(wire.CodeQuotaExceeded, err)
		}
		a.quotaTaken = true
	}
	// The first write. From here on, only concurrent changes can refuse the request.
	if err := a.claimUse(ctx); err != nil {
		return nil, false, err
	}
	offer := &Issued{
		Serial:    certificate.Serial,
		KeyHash:   a.csr.KeyHash,
		DER:       certificate.DER,
		NotBefore: certificate.NotBefore,
		NotAfter:  certificate.NotAfter,
		Digest:    wire.Digest(certificate.Chain, a.files),
		OfferedAt: a.now(),
	}
	if err := a.checkRevocations(ctx); err != nil {
		return nil, false, err
	}
	if err := a.checkStillAdmitted(); err != nil {
		return nil, false, err
	}
	next := a.next(a.now(), offer)
	if err := a.publish(ctx, next); err != nil {
		return nil, false, err
	}
	if a.reason.handsOver() {
		if err := a.records.handOver(ctx, a.record, next, handOverCause(a)); err != nil {
			return nil, false, err
		}
	}
	a.records.kickSuperseded(a.record, next)
	return a.enrolled(offer, certificate.Chain, a.files), true, nil
}

func (a *attempt) classify(ctx context.Context) error {
	var err error
	if a.record, a.after, err = a.cfg.Store.Record(ctx, a.identity); err != nil {
		return refuse(StoreCode(err), err)
	}
	if err := a.SyncRevocations(ctx, a.record); err != nil {
		return refuse(wire.CodeRevocationsUnknown, err)
	}
	a.revocation, _ = a.revocations.About(a.identity)
	if by := a.revocations.Outstanding(a.identity, a.record.AppliedRevocation()); by != nil {
		return refuse(wire.CodeIdentityRevoked, by.Err())
	}
	if err := a.checkProtocol(); err != nil {
		return err
	}
	if e := a.revocation; a.record != nil && e != nil && e.Kind == trust.RetiredNode && applies(e, a.record) {
		// Applied first, or it would retire the next owner.
		if err := a.Enforce(ctx, a.identity); err != nil {
			return refuse(StoreCode(err), err)
		}
		return errAgain
	}
	if a.renewal {
		return a.classifyRenewal(ctx)
	}
	c := claim{
		identity:  a.identity,
		keyHash:   a.csr.KeyHash,
		vouching:  a.vouching,
		token:     a.token,
		secret:    a.challenge,
		requested: a.now(),
	}
	a.reason, err = classify(a.record, c)
	if c.secret != "" || errors.Is(err, errTaken) {
		if c.grant, _, err = a.logs.Grant(a.identity); err != nil {
			return refuse(wire.CodeUnavailable, err)
		}
		if c.grant != nil && c.grant.Reprovision && (a.source.Edge == nil || !a.source.Edge.Settled) {
			c.grant = nil
		}
		a.grant = c.grant
		a.reason, err = classify(a.record, c)
	}
	if errors.Is(err, errTaken) && a.record.Awaits() &&
		a.Provisioner.approval(a.identity, a.csr.KeyHash, a.record, ReasonNew) != nil {
		a.reason, err = ReasonNew, nil
	}
	if err == nil && a.bearer == "" {
		err = a.recallToken()
	}
	switch {
	case errors.Is(err, errTaken):
		return refuse(wire.CodeIdentityTaken, err)
	case errors.Is(err, errRevoked):
		return refuse(wire.CodeIdentityRevoked, err)
	}
	return err
}

func (a *attempt) replay(ctx context.Context) (*wire.Enrolled, bool, error) {
	if err := a.checkRevocations(ctx); err != nil {
		return nil, false, err
	}
	if err := a.records.handOverAgain(ctx, a.record); err != nil {
		return nil, false, err
	}
	now := a.now()
	offered := a.record.validFor(a.csr.KeyHash, now)
	if offered == nil {
		return nil, false, errAgain // expired meanwhile
	}
	if by := a.revocations.Serial(offered.Serial); by != nil {
		// The record is older than the revocation.
		return nil, false, refuse(wire.CodeIdentityRevoked, by.Err())
	}
	authority := a.authority()
	if authority.IssuerOf(offered.DER) == "" {
		// The authority has been rolled over since this process started.
		return nil, false, refuse(wire.CodeUnavailable, errUnknownIssuer)
	}
	chain := authority.Chain(offered.DER)
	digest := wire.Digest(chain, a.files)
	if digest == offered.Digest && !a.otherSecret(a.record) {
		if err := a.records.checkStore(); err != nil {
			return nil, false, err // the record may not be on disk
		}
		if err := a.updateFacts(ctx); err != nil {
			return nil, false, err
		}
		a.records.kickFormer(a.record)
		return a.enrolled(offered, chain, a.files), false, nil
	}
	// The new digest must be on record before the reply, or the confirmation would match nothing. A recent offer
	// for another key stays: it may be confirmed soon.
	if err := a.busy(a.record.protectedOffer(a.csr.KeyHash, now)); err != nil {
		return nil, false, err
	}
	offer := *offered
	offer.Digest = digest // OfferedAt stays: see tooSoon and reassignedBy
	next := a.next(now, &offer)
	if err := a.publish(ctx, next); err != nil {
		return nil, false, err
	}
	a.records.kickSuperseded(a.record, next)
	return a.enrolled(&offer, chain, a.files), true, nil
}

// authority returns the one that issues over the request's protocol.
func (a *attempt) authority() *ca.Authority {
	if branch := a.cfg.Authority.Branch(); branch != nil && a.source.Protocol == ProtocolPuppet {
		return branch
	}
	return a.cfg.Authority
}

func (p *Provisioner) enrolled(offer *Issued, chain string, files wire.Files) *wire.Enrolled {
	return &wire.Enrolled{
		Serial:      offer.Serial,
		Certificate: chain,
		CA:          p.cfg.Authority.TrustPEM(),
		Files:       files,
		Digest:      offer.Digest,
	}
}

func (a *attempt) next(now time.Time, offer *Issued) *Record {
	n := &Record{
		Schema:          RecordSchema,
		Identity:        a.identity,
		State:           StateEnrolled,
		FirstEnrolledAt: now,
		OwnedSince:      now,
	}
	switch {
	case a.reason != ReasonNew && a.record != nil && a.record.State != StateRetired:
		copied := *a.record
		n = &copied
	case a.record != nil:
		n.Grant, n.Approval = a.record.Grant, a.record.Approval // kept after a retirement, so that they stay spent
	}
	if a.reason == ReasonNew || a.record == nil || StateOf(a.record) == StateRetired {
		n.Revoked = a.record.AppliedRevocation()
		if a.revocation != nil {
			n.Revoked = a.revocation.ID
		}
	}
	if a.reason.handsOver() {
		// The live certificate stays until the new one is confirmed.
		n.Lineage = nil
	}
	if a.reason == ReasonGrant || a.oneTime {
		n.Grant = a.grant.ID
	}
	if a.approval != nil {
		n.Approval = &SpentApproval{
			ID:      a.approval.ID,
			At:      now,
			By:      a.approval.By,
			KeyHash: a.csr.KeyHash,
		}
	}
	if a.reason == ReasonRenew {
		a.confirmed = n.confirmNext(a.vouching, now)
	}
	if a.confirmed != nil {
		a.confirming = n
	}
	if a.reason.changesHands() {
		n.OwnedSince, n.Cloned, n.Fault = now, nil, nil
	}
	if a.returning != nil {
		n.markRecovered(a.returning, a.former)
	}
	n.Next = offer
	n.keepSuperseded(a.record, now)
	n.addKey(offer.KeyHash, a.vouching)
	n.Attempt, n.UpdatedAt = a.id, now
	n.Token, n.Signer, n.Site, n.Source = a.token.ID, a.token.Signer, a.token.Limits.Site, a.source.Address
	switch {
	case a.bearer != "":
		n.Terms, n.CommandKey = a.token.Terms(), CommandKey(a.token, a.identity)
	case a.reason.changesHands():
		n.Terms, n.CommandKey = nil, nil
	}
	n.Protocol, n.Extensions = a.source.Protocol, a.extensions()
	n.Agent, n.Boot, n.Facts = a.request.Agent, a.request.Boot, a.keptFacts()
	n.Decision = Decided{Reason: a.reason, Policy: a.decision.Digest, Notes: slices.Clone(a.decision.Reasons)}
	if a.allowance != nil {
		n.Decision.Allowed = string(a.allowance.Pattern)
	}
	return n
}
