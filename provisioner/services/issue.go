package services

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/events"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// maxFormer bounds the replaced certificates of an entry that have not expired.
const maxFormer = 64

// maxNames bounds the entries of a node, of which [wire.MaxCertificates] may be in use. Entries are never deleted.
const maxNames = 16 * wire.MaxCertificates

// A request is a request of a node with the results of its verification.
type request struct {
	*Service
	*wire.CertificateRequest
	source  provisioner.Source
	session *provisioner.Session
	node    wire.Identity
	begun   time.Time // monotonic

	csr *ca.CSR
	id  string // digest of the key and of what is requested

	// Of one round.
	entry    *Certificate // newest, or nil; its certificates are the present owner's
	after    trust.Revision
	decision *policies.Decision
	names    []string // to be issued, or if there is no decision yet, requested
	usages   []string
	approval *Answer
}

// Handle answers a request of a node. The error is a *[provisioner.Refusal].
//
// The entry is on disk before a certificate leaves. So a crash at any step is harmless: before the write there is
// nothing to undo, and after it the same request gets the same certificate.
func (s *Service) Handle(
	ctx context.Context, r *wire.CertificateRequest, source provisioner.Source,
) (*wire.ServiceCertificate, error) {
	q := &request{Service: s, CertificateRequest: r, source: source, begun: time.Now()}
	answer, err := q.handle(ctx)
	if err != nil {
		return nil, q.refused(ctx, err)
	}
	return answer, nil
}

func (q *request) handle(ctx context.Context) (*wire.ServiceCertificate, error) {
	session, done, err := q.p.Session(ctx, q.Identity, q.source)
	if err != nil {
		return nil, err
	}
	defer done()
	q.session, q.node = session, session.Node
	if err := q.index.Fresh(); err != nil {
		return nil, refuse(q.node, wire.CodeRevocationsUnknown, err)
	}
	step := q.issue
	switch q.Verb {
	case wire.CertificateReport:
		step = q.noteState
	case wire.CertificateRevoke:
		step = q.giveUp
	default:
		q.cfg.Issuing.Add(1)
		defer q.cfg.Issuing.Add(-1)
		if err := q.parse(); err != nil {
			return nil, refuse(q.node, wire.CodeCSRInvalid, err)
		}
	}
	for round := range maxRounds {
		if err := q.read(ctx, round > 0); err != nil {
			return nil, err
		}
		answer, err := step(ctx)
		if !errors.Is(err, errAgain) {
			return answer, err
		}
	}
	return nil, refuse(q.node, wire.CodeBusy, fmt.Errorf("%w, %d times in a row", errAgain, maxRounds))
}

// read finds the entry. If the index has none, the store is asked only after a conflict.
func (q *request) read(ctx context.Context, again bool) (err error) {
	q.entry, q.after, q.decision, q.approval = nil, 0, nil, nil
	if _, _, known := q.index.Get(q.node, q.Name); !known && !again {
		return nil
	}
	if q.entry, q.after, err = q.cfg.Store.Certificate(ctx, q.node, q.Name); err != nil {
		return refuse(q.node, provisioner.StoreCode(err), err)
	}
	if q.entry == nil || q.entry.OwnedSince.Equal(q.session.Record.OwnedSince) {
		return nil
	}
	if err := q.revokeFormer(ctx, q.node, []*Certificate{q.entry}); err != nil {
		return refuse(q.node, provisioner.StoreCode(err), err)
	}
	q.entry = nil
	return nil
}

func (q *request) issue(ctx context.Context) (*wire.ServiceCertificate, error) {
	if q.repeats() {
		return q.answer(), nil
	}
	if err := q.admit(); err != nil {
		return nil, err
	}
	if err := q.decide(ctx); err != nil {
		return nil, err
	}
	issued, err := q.own.Authority.Issue(provisioner.ServiceRequest(q.node, q.Name, q.csr.PublicKey,
		&q.decision.Certificate))
	if err != nil {
		return nil, q.note(ctx, refuse(q.node, provisioner.IssueCode(err), err))
	}
	if err := q.session.Recheck(); err != nil {
		return nil, err
	}
	renewed := q.entry != nil && q.entry.Current != nil
	next := q.next()
	next.Current = &Issued{
		RevokedCertificate: trust.RevokedCertificate{
			Serial:   issued.Serial,
			NotAfter: issued.NotAfter,
			Issuer:   q.own.Authority.IssuerKeyID(),
		},
		KeyHash:   q.csr.KeyHash,
		Request:   q.id,
		DER:       issued.DER,
		NotBefore: issued.NotBefore,
		IssuedAt:  next.UpdatedAt,
	}
	next.Names, next.Usages, next.Approval, next.Waiting = q.names, q.usages, q.approval, nil
	if q.entry != nil {
		next.Former = q.entry.unexpired(next.UpdatedAt)
	}
	if err := q.write(ctx, next); err != nil {
		return nil, err
	}
	if err := q.session.Recheck(); err != nil { // a sweep may have missed the entry
		q.sweepSoon(q.node)
		return nil, err
	}
	q.entry = next
	q.reportIssued(ctx, renewed)
	return q.answer(), nil
}

// repeats reports whether the entry has the certificate that is requested, in the first two thirds of its life.
func (q *request) repeats() bool {
	if q.entry == nil || !q.index.live(q.entry) {
		return false
	}
	i := q.entry.Current
	return i.Request == q.id && q.own.Now().Before(i.IssuedAt.Add(i.NotAfter.Sub(i.IssuedAt)*2/3)) &&
		q.own.Authority.IssuerOf(i.DER) != ""
}

func (q *request) answer() *wire.ServiceCertificate {
	return &wire.ServiceCertificate{
		Name:        q.Name,
		Serial:      q.entry.Current.Serial,
		Certificate: q.own.Authority.Chain(q.entry.Current.DER),
		CA:          q.own.Authority.RootsPEM(),
	}
}

// next returns the next revision of the entry.
func (q *request) next() *Certificate {
	next := &Certificate{}
	if q.entry != nil {
		*next = *q.entry
	}
	next.Schema, next.Node, next.Name = Schema, q.node, q.Name
	next.Profile, next.Network, next.Source = q.Profile, q.Network, q.Source
	next.OwnedSince, next.Attempt, next.UpdatedAt = q.session.Record.OwnedSince, wire.NewID(), q.now()
	return next
}

func (q *request) write(ctx context.Context, c *Certificate) error {
	err := q.put(ctx, c, q.after)
	if err != nil && !errors.Is(err, errAgain) {
		return refuse(q.node, provisioner.StoreCode(err), err)
	}
	return err
}

// parse verifies the certificate request. Nothing of it is issued but the key; names that the policy would not see are
// refused.
func (q *request) parse() (err error) {
	if q.csr, err = ca.ParseCSR(q.CSR); err != nil {
		return err
	}
	if err := checkAlternativeNames(q.CSR); err != nil {
		return err
	}
	q.names = slices.Concat(q.csr.DNSNames, q.csr.IPAddresses, q.csr.URIs)
	slices.Sort(q.names)
	if q.usages = q.Usages; len(q.usages) == 0 {
		q.usages = []string{"server"}
	}
	q.id = digest(q.csr.KeyHash, q.names, q.usages, []string{q.Profile, q.Network})
	return nil
}

func digest(key string, lists ...[]string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", key, lists))
	return hex.EncodeToString(sum[:16])
}

// admit checks limits and the key.
func (q *request) admit() error {
	if len(q.names) == 0 {
		return refuse(q.node, wire.CodeCSRInvalid, errors.New("the certificate request has no alternative names"))
	}
	if !q.issues.Allow(q.node) {
		r := refuse(q.node, wire.CodeQuotaExceeded, fmt.Errorf("more than %d requests for service certificates, and "+
			"one a second", issueRate.Burst))
		return r
	}
	if err := q.checkRoom(); err != nil {
		return err
	}
	if by := q.p.Revocations().Key(q.csr.KeyHash); by != nil {
		return refuse(q.node, wire.CodeIdentityRevoked, by.Err())
	}
	if slices.Contains(q.session.Record.Keys(), q.csr.KeyHash) {
		return refuse(q.node, wire.CodeCSRInvalid, errors.New("the key is one of the node's own certificate"))
	}
	for _, other := range q.index.of(q.node) {
		if i := other.Current; i == nil || i.KeyHash != q.csr.KeyHash {
			continue
		} else if other.Name != q.Name {
			return refuse(q.node, wire.CodeCSRInvalid, fmt.Errorf("the key is that of service certificate %q", other.Name))
		} else if by := q.index.revoked(i.Serial); by != nil {
			return refuse(q.node, wire.CodeCSRInvalid, fmt.Errorf("the key's certificate was revoked: %w", by.Err()))
		}
	}
	if q.entry != nil && len(q.entry.Former) >= maxFormer && len(q.entry.unexpired(q.now())) > maxFormer {
		return refuse(q.node, wire.CodeQuotaExceeded,
			fmt.Errorf("%d replaced certificates have not expired, the limit", maxFormer))
	}
	return nil
}

// checkRoom bounds the names of a node.
func (q *request) checkRoom() error {
	used, all, here := 0, 0, false
	for _, c := range q.index.of(q.node) {
		all++
		if !c.OwnedSince.Equal(q.session.Record.OwnedSince) {
			continue
		}
		if c.Name == q.Name {
			here = true
		} else if q.index.live(c) || q.index.asks(c) ||
			c.State != nil && q.own.Now().Sub(c.UpdatedAt) < forgetAfter {
			used++
		}
	}
	if used >= wire.MaxCertificates || all >= maxNames && !here {
		return refuse(q.node, wire.CodeQuotaExceeded, fmt.Errorf("the node has %d service certificates, limit %d, and "+
			"has had %d, limit %d", used, wire.MaxCertificates, all, maxNames))
	}
	return nil
}

// decide asks the policy, and judges each name that it gives.
func (q *request) decide(ctx context.Context) error {
	want := &policies.ServiceRequest{
		Name:    q.Name,
		Profile: q.Profile,
		Network: q.Network,
		Usages:  q.usages,
		Source:  q.Source,
	}
	d, err := q.session.Decide(ctx, q.csr, want)
	pending := d != nil && d.Verdict() == policies.VerdictApproval
	if err != nil && !pending {
		return q.note(ctx, err)
	}
	q.decision = d
	c := &d.Certificate
	q.names, q.usages = slices.Concat(c.DNSNames, c.IPAddresses, c.URIs), nil
	for usage, wanted := range map[string]bool{"server": c.ServerAuth, "client": c.ClientAuth} {
		if wanted {
			q.usages = append(q.usages, usage)
		}
	}
	slices.Sort(q.usages)
	held, judged := q.judge(ctx, c)
	if judged != nil {
		return q.note(ctx, judged)
	}
	return q.checkAnswer(ctx, cmp.Or(held, err))
}

// judge refuses what no node may have. An operator may approve that several nodes hold a name.
func (q *request) judge(ctx context.Context, c *policies.Certificate) (held, err error) {
	if err = c.Check(); len(q.names) == 0 {
		err = errors.New("it names nothing")
	}
	if err != nil {
		return nil, refuse(q.node, wire.CodeCertificateFailed, fmt.Errorf("policy: certificate: %w", err))
	}
	for _, name := range slices.Concat(c.DNSNames, c.IPAddresses) {
		if err := q.session.JudgeName(ctx, name); err != nil {
			return nil, err
		}
		if other := q.index.holder(name, q.node); other != "" && !slices.Contains(c.Shared, name) {
			held = refuse(q.node, wire.CodeApprovalPending, fmt.Errorf("%s is in a service certificate of the node %s", name, other))
		}
	}
	return held, nil
}

// checkAnswer looks for an operator's answer. pending is the refusal of a policy that wants an approval, or nil.
func (q *request) checkAnswer(ctx context.Context, pending error) error {
	var given *Answer
	if e := q.entry; e != nil && e.Waiting != nil && e.Waiting.ID == q.waitingID() {
		given = e.Waiting.Answer
	}
	if given != nil && given.Verdict == orders.VerdictReject {
		return q.note(ctx, refuse(q.node, wire.CodeRejected, fmt.Errorf("rejected by %s: %s", given.By, given.Why)))
	}
	if e := q.entry; given == nil && e != nil && q.index.live(e) && slices.Equal(e.Names, q.names) &&
		slices.Equal(e.Usages, q.usages) {
		given = e.Approval // of what is renewed
	} else if given != nil && !q.own.Now().Before(given.ExpiresAt) {
		given = nil
	}
	if r := q.logs.NewestRecovery(); given != nil && r != nil && !given.At.After(r.Began) {
		given = nil
	}
	if q.approval = given; pending != nil && given == nil {
		return q.note(ctx, pending)
	}
	return nil
}

func (q *request) waitingID() string { return digest(q.id, q.names, q.usages) }

// askedEvery is how often [Waiting.Asked] is written if nothing else changes.
const askedEvery = time.Hour

// ours are the codes of refusals that say nothing about the request.
var ours = []wire.Code{wire.CodeBusy, wire.CodeUnavailable, wire.CodeRevocationsUnknown, wire.CodeStoreUnavailable,
	wire.CodeStorageLow, wire.CodeAuthorityExpired, wire.CodePolicyFailed}

// note writes why the request is refused into the entry, if that changed, and returns the refusal. An approval is not
// pending unless an operator can see it.
func (q *request) note(ctx context.Context, err error) error {
	r, ok := errors.AsType[*provisioner.Refusal](err)
	if !ok || slices.Contains(ours, r.Code) {
		return err
	}
	next := q.next()
	w := &Waiting{
		ID:      q.waitingID(),
		KeyHash: q.csr.KeyHash,
		Names:   q.names,
		Usages:  q.usages,
		Code:    r.Code,
		Cause:   events.BoundedText(r.Err),
		Since:   next.UpdatedAt,
		Asked:   next.UpdatedAt,
	}
	if before := next.Waiting; before != nil && before.ID == w.ID {
		if before.Code == w.Code && before.Cause == w.Cause && w.Asked.Sub(before.Asked).Abs() < askedEvery {
			return err
		}
		w.Since, w.Answer = before.Since, before.Answer
	}
	next.Waiting = w
	if werr := q.write(ctx, next); werr != nil && r.Code == wire.CodeApprovalPending {
		return werr
	}
	return err
}

func (q *request) reportIssued(ctx context.Context, renewed bool) {
	e := events.Event{
		Type:    events.CertificateIssued,
		Node:    string(q.node),
		Name:    q.Name,
		Serial:  q.entry.Current.Serial,
		Policy:  q.decision.Digest,
		Source:  q.source.Address,
		Attempt: q.entry.Attempt,
		Elapsed: time.Since(q.begun),
	}
	if renewed {
		e.Type = events.CertificateRenewed
	}
	q.report(ctx, "service certificate issued", e, "serial", e.Serial, "names", strings.Join(q.names, " "), "renewed",
		renewed, "elapsed", e.Elapsed)
}

func (q *request) refused(ctx context.Context, err error) *provisioner.Refusal {
	r, ok := errors.AsType[*provisioner.Refusal](err)
	if !ok {
		r = refuse(wire.Identity(q.Identity), wire.CodeUnavailable, err)
	}
	e := provisioner.RefusalEvent(r, q.own.Now().UTC().Truncate(time.Millisecond), q.source.Address)
	e.Type, e.Name = events.CertificateFailed, q.Name
	if q.decision != nil {
		e.Policy = q.decision.Digest
	}
	if e.LeftOut, ok = q.refusals.Take(cmp.Or(q.node, q.source.Node)); !ok {
		return r
	}
	q.own.Emit(e)
	level := slog.LevelWarn
	if r.Code.Waits() {
		level = slog.LevelInfo
	}
	q.own.Log.Log(ctx, level, "service certificate refused", "node", e.Node, "name", q.Name, "code", r.Code, "source",
		q.source.Address, "err", e.Cause)
	return r
}

// noteState writes the node's own word.
func (q *request) noteState(ctx context.Context) (*wire.ServiceCertificate, error) {
	done := &wire.ServiceCertificate{Name: q.Name}
	next := q.next()
	if s := next.State; s != nil && s.State == q.Report.State && s.Stuck == q.Report.Stuck && s.Error == q.Report.Error {
		return done, nil
	}
	if !q.reports.Allow(q.node) {
		return nil, refuse(q.node, wire.CodeQuotaExceeded, errors.New("too many reports about service certificates"))
	}
	if err := q.checkRoom(); err != nil {
		return nil, err
	}
	next.State = q.Report
	return done, q.write(ctx, next)
}

// giveUp revokes what the node does not need any more.
func (q *request) giveUp(ctx context.Context) (*wire.ServiceCertificate, error) {
	done := &wire.ServiceCertificate{Name: q.Name}
	if q.entry == nil {
		return done, nil
	}
	if !q.givenUp.Allow(q.node) {
		return nil, refuse(q.node, wire.CodeQuotaExceeded, errors.New("too many revocations of service certificates"))
	}
	if err := q.revoke(ctx, q.node, q.Name, []*Certificate{q.entry}, trust.Cause{By: string(q.node),
		Why: "the node does not need it any more"}); err != nil {
		return nil, refuse(q.node, provisioner.StoreCode(err), err)
	}
	next := q.next()
	next.Waiting, next.State, next.Approval = nil, nil, nil
	return done, q.write(ctx, next)
}
