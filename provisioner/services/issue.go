package services

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/span"
	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/events"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

const (
	// maxFormer bounds the replaced certificates of an entry that have not expired.
	maxFormer = 64

	// maxNames bounds the entries of a node, of which [wire.MaxCertificates] may be in use. Entries are never deleted.
	maxNames = 16 * wire.MaxCertificates
)

// A request is a request of a node with the results of its verification.
type request struct {
	*Service
	*wire.CertificateRequest
	*provisioner.Session
	source provisioner.Source
	begun  time.Time // monotonic

	csr   *ca.CSR
	id    string   // digest of the key and of what is requested
	asked []string // names

	// Of one round.
	entry    *Certificate // newest of the present owner, or nil
	after    trust.Revision
	decision *policies.Decision
	names    []string // to be issued; before the policy's decision the requested ones
	usages   []string
	approval *Answer
}

// Handle answers a request of a node. The error is a *[provisioner.Refusal].
//
// The entry is on disk before a certificate leaves. So a crash at any step is harmless: before the write there is
// nothing to undo, and after it the same request gets the same certificate.
func (s *Service) Handle(ctx context.Context, r *wire.CertificateRequest, source provisioner.Source,
) (*wire.ServiceCertificate, error) {
	q := &request{Service: s, CertificateRequest: r, source: source, begun: time.Now()}
	session, done, err := s.p.Session(ctx, r.Identity, source)
	if err == nil {
		defer done()
		q.Session = session
		err = q.handle(ctx)
	}
	if err != nil {
		return nil, q.refused(ctx, err)
	}
	answer := &wire.ServiceCertificate{Name: r.Name}
	if r.Verb == wire.CertificateIssue {
		answer.Serial, answer.CA = q.entry.Current.Serial, s.own.Authority.RootsPEM()
		answer.Certificate = s.own.Authority.Chain(q.entry.Current.DER)
	}
	return answer, nil
}

func (q *request) handle(ctx context.Context) error {
	if err := q.index.Fresh(); err != nil {
		return q.refuse(wire.CodeRevocationsUnknown, err)
	}
	step := map[wire.CertificateVerb]func(context.Context) error{wire.CertificateIssue: q.issue,
		wire.CertificateReport: q.noteState, wire.CertificateRevoke: q.giveUp}[q.Verb]
	if q.Verb == wire.CertificateIssue {
		q.cfg.Issuing.Add(1)
		defer q.cfg.Issuing.Add(-1)
		if err := q.parse(); err != nil {
			return q.refuse(wire.CodeCSRInvalid, err)
		}
	}
	for round := range maxRounds {
		if round > 0 {
			span.Sleep(ctx, time.Duration(round)*againPause)
		}
		err := q.read(ctx, round > 0)
		if err == nil {
			err = step(ctx)
		}
		if !errors.Is(err, errAgain) {
			return err
		}
	}
	return q.refuse(wire.CodeBusy, errAgain)
}

// read finds the entry. If the index has none, the store is asked only after a conflict.
func (q *request) read(ctx context.Context, again bool) (err error) {
	q.entry, q.after, q.names, q.decision = nil, 0, q.asked, nil
	if _, _, known := q.index.Get(q.Node, q.Name); !known && !again {
		return nil
	}
	q.entry, q.after, err = q.cfg.Store.Certificate(ctx, q.Node, q.Name)
	if err == nil && q.entry != nil && !q.entry.OwnedSince.Equal(q.Record.OwnedSince) {
		err = q.revokeFormer(ctx, q.Node, []*Certificate{q.entry})
		q.entry = nil
	}
	return q.unstored(err)
}

func (q *request) issue(ctx context.Context) error {
	if q.repeats() {
		return nil
	}
	err := q.admit()
	if err == nil {
		err = q.decide(ctx)
	}
	if err != nil {
		return err
	}
	issued, err := q.own.Authority.Issue(
		provisioner.ServiceRequest(q.Node, q.Name, q.csr.PublicKey, &q.decision.Certificate))
	if err != nil {
		return q.note(ctx, q.refuse(provisioner.IssueCode(err), err))
	}
	if err := q.Recheck(); err != nil {
		return err
	}
	next, renewed := q.next(), q.entry != nil && q.entry.Current != nil
	next.Former = next.unexpired(next.UpdatedAt)
	next.Names, next.Usages, next.Approval, next.Waiting = q.names, q.usages, q.approval, nil
	next.Current = &Issued{
		RevokedCertificate: trust.RevokedCertificate{Serial: issued.Serial, NotAfter: issued.NotAfter,
			Issuer: q.own.Authority.IssuerKeyID()},
		KeyHash:   q.csr.KeyHash,
		Request:   q.id,
		DER:       issued.DER,
		NotBefore: issued.NotBefore,
		IssuedAt:  next.UpdatedAt,
	}
	if err := q.write(ctx, next); err != nil {
		return err
	}
	if err := q.Recheck(); err != nil {
		return err // [Service.follow] has the certificate revoked
	}
	e := q.event(events.CertificateIssued, q.Node, q.Name, trust.Cause{})
	if renewed {
		e.Type = events.CertificateRenewed
	}
	e.Serial, e.Policy, e.Source, e.Attempt = issued.Serial, q.decision.Digest, q.source.Address, next.Attempt
	e.Elapsed = time.Since(q.begun)
	q.own.Emit(e)
	q.own.Log.InfoContext(ctx, "service certificate issued", "node", q.Node, "name", q.Name, "serial", e.Serial,
		"names", q.names, "renewed", renewed, "elapsed", e.Elapsed)
	return nil
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

// next returns the next revision of the entry.
func (q *request) next() *Certificate {
	next := &Certificate{}
	if q.entry != nil {
		*next = *q.entry
	}
	next.Schema, next.Node, next.Name, next.Source = Schema, q.Node, q.Name, q.Source
	next.OwnedSince, next.Attempt, next.UpdatedAt = q.Record.OwnedSince, wire.NewID(), q.now()
	if q.Verb == wire.CertificateIssue {
		next.Profile, next.Network = q.Profile, q.Network
	}
	return next
}

// write is put for the entry.
func (q *request) write(ctx context.Context, next *Certificate) error {
	err := q.put(ctx, next, q.after)
	if err == nil {
		q.entry = next
	}
	return q.unstored(err)
}

func (q *request) unstored(err error) error {
	if err == nil || errors.Is(err, errAgain) {
		return err
	}
	return q.refuse(provisioner.StoreCode(err), err)
}

func (q *request) refuse(code wire.Code, err error) error {
	return &provisioner.Refusal{Code: code, Err: err}
}

// parse verifies the certificate request. Only its key is issued, but names that no policy sees are refused.
func (q *request) parse() (err error) {
	if q.csr, err = ca.ParseCSR(q.CSR); err != nil {
		return err
	}
	parsed, err := x509.ParseCertificateRequest(q.CSR)
	if err != nil {
		return err
	}
	all := 0
	for _, e := range parsed.Extensions {
		var names []asn1.RawValue
		if e.Id.String() != "2.5.29.17" {
			continue
		}
		if _, err := asn1.Unmarshal(e.Value, &names); err != nil {
			return err
		}
		all += len(names)
	}
	q.asked = slices.Sorted(slices.Values(slices.Concat(q.csr.DNSNames, q.csr.IPAddresses, q.csr.URIs)))
	if all == 0 || all != len(q.asked) {
		return fmt.Errorf("%d alternative names, %d of them DNS names, IP addresses and URIs: want these alone", all,
			len(q.asked))
	}
	q.id = digest(q.csr.KeyHash, q.asked, q.Usages, []string{q.Profile, q.Network})
	return nil
}

func digest(key string, lists ...[]string) string {
	return wire.Sum(fmt.Appendf(nil, "%q %q", key, lists))[:32]
}

// admit checks limits and the key.
func (q *request) admit() error {
	if !q.issues.Allow(q.Node) {
		return q.refuse(wire.CodeQuotaExceeded, errTooMany)
	}
	if err := q.checkRoom(); err != nil {
		return err
	}
	if by := q.p.Revocations().Key(q.csr.KeyHash); by != nil {
		return q.refuse(wire.CodeIdentityRevoked, by.Err())
	}
	if slices.Contains(q.Record.Keys(), q.csr.KeyHash) {
		return q.refuse(wire.CodeCSRInvalid, errors.New("the key is one of the node's own certificate"))
	}
	for _, c := range q.index.of(q.Node) {
		if i := c.Current; i != nil && i.KeyHash == q.csr.KeyHash &&
			(c.Name != q.Name || q.index.revoked(i.Serial) != nil) {
			return q.refuse(wire.CodeCSRInvalid,
				fmt.Errorf("the key is that of service certificate %q, %s", c.Name, q.index.listed(c).State))
		}
	}
	return nil
}

var errTooMany = errors.New("too many requests about service certificates")

// checkRoom bounds the entries of a node.
func (q *request) checkRoom() error {
	used, all := 0, 1
	for _, c := range q.index.of(q.Node) {
		if c.Name == q.Name {
			continue
		}
		if all++; c.OwnedSince.Equal(q.Record.OwnedSince) && (q.index.live(c) || q.index.asks(c) ||
			c.State != nil && q.own.Now().Sub(c.UpdatedAt) < forgetAfter) {
			used++
		}
	}
	if used >= wire.MaxCertificates || all > maxNames || q.entry != nil && len(q.entry.Former) >= maxFormer &&
		len(q.entry.unexpired(q.now())) > maxFormer {
		return q.refuse(wire.CodeQuotaExceeded, fmt.Errorf("the node has %d other service certificates, limit %d, or "+
			"has had too many", used, wire.MaxCertificates-1))
	}
	return nil
}

// decide asks the policy, judges each name that it gives, and looks for an operator's answer.
func (q *request) decide(ctx context.Context) error {
	d, err := q.Decide(ctx, q.csr, &policies.ServiceRequest{Name: q.Name, Profile: q.Profile, Network: q.Network,
		Usages: q.Usages, Source: q.Source})
	if err != nil && (d == nil || d.Verdict() != policies.VerdictApproval) {
		return q.note(ctx, err)
	}
	c := &d.Certificate
	q.decision, q.names, q.usages = d, slices.Concat(c.DNSNames, c.IPAddresses, c.URIs), nil
	if c.ServerAuth {
		q.usages = append(q.usages, "server")
	}
	if c.ClientAuth {
		q.usages = append(q.usages, "client")
	}
	held, judged := q.judge(ctx, c)
	if judged != nil {
		return q.note(ctx, judged)
	}
	err = cmp.Or(held, err)
	if q.approval = q.answered(); q.approval != nil && q.approval.Verdict == orders.VerdictReject {
		return q.note(ctx, q.refuse(wire.CodeRejected, fmt.Errorf("rejected by %s: %s", q.approval.By, q.approval.Why)))
	}
	if err != nil && q.approval == nil {
		return q.note(ctx, err)
	}
	return nil
}

// judge refuses what no node may have. Operators may approve that several nodes hold a name.
func (q *request) judge(ctx context.Context, c *policies.Certificate) (held, err error) {
	if err := c.Check(); err != nil {
		return nil, q.refuse(wire.CodeCertificateFailed, fmt.Errorf("policy: certificate: %w", err))
	}
	for _, name := range slices.Concat(c.DNSNames, c.IPAddresses) {
		if err := q.JudgeName(ctx, name); err != nil {
			return nil, err
		}
		if other := q.index.holder(name, q.Node); other != "" && !slices.Contains(c.Shared, name) {
			held = q.refuse(wire.CodeApprovalPending,
				fmt.Errorf("%s is in a service certificate of the node %s", name, other))
		}
	}
	return held, nil
}

// answered returns the operator's answer about the request, or about the certificate that it renews, or nil.
func (q *request) answered() (a *Answer) {
	e := q.entry
	switch {
	case e == nil:
	case e.Waiting != nil && e.Waiting.Answer != nil && e.Waiting.ID == q.waitingID():
		if a = e.Waiting.Answer; a.Verdict == orders.VerdictReject || q.own.Now().Before(a.ExpiresAt) {
			break
		}
		a = nil
	case q.index.live(e) && slices.Equal(e.Names, q.names) && slices.Equal(e.Usages, q.usages):
		a = e.Approval
	}
	if r := q.logs.NewestRecovery(); a != nil && r != nil && !a.At.After(r.Began) {
		return nil
	}
	return a
}

func (q *request) waitingID() string { return digest(q.id, q.names, q.usages) }

// ours are the codes of refusals that say nothing about the request.
var ours = []wire.Code{wire.CodeBusy, wire.CodeUnavailable, wire.CodeRevocationsUnknown, wire.CodeStoreUnavailable,
	wire.CodeStorageLow, wire.CodeAuthorityExpired, wire.CodePolicyFailed}

// note writes why the request is refused into the entry, if that changed in the last hour, and returns the refusal. An
// approval is not pending unless operators can see it.
func (q *request) note(ctx context.Context, err error) error {
	r, ok := errors.AsType[*provisioner.Refusal](err)
	if !ok || slices.Contains(ours, r.Code) {
		return err
	}
	next := q.next()
	w := &Waiting{ID: q.waitingID(), KeyHash: q.csr.KeyHash, Names: q.names, Usages: q.usages, Code: r.Code,
		Cause: events.BoundedText(r.Err), Since: next.UpdatedAt, Asked: next.UpdatedAt}
	if before := next.Waiting; before != nil && before.ID == w.ID {
		if before.Code == w.Code && before.Cause == w.Cause && w.Asked.Sub(before.Asked).Abs() < time.Hour {
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

// refused reports a refusal, and returns it.
func (q *request) refused(ctx context.Context, err error) *provisioner.Refusal {
	r := provisioner.RefusalOf(err, wire.CodeUnavailable)
	e := provisioner.RefusalEvent(string(q.source.Node), r, q.moment(), q.source.Address)
	e.Type, e.Name = events.CertificateFailed, q.Name
	if q.decision != nil {
		e.Policy = q.decision.Digest
	}
	var ok bool
	if e.LeftOut, ok = q.refusals.Take(q.source.Node); ok {
		q.own.Emit(e)
		q.own.Log.WarnContext(ctx, "service certificate refused", "node", e.Node, "name", q.Name, "code", r.Code,
			"source", q.source.Address, "err", e.Cause)
	}
	return r
}

// noteState writes the node's own word.
func (q *request) noteState(ctx context.Context) error {
	next := q.next()
	if s, r := next.State, q.Report; s != nil && s.State == r.State && s.Stuck == r.Stuck && s.Error == r.Error {
		return nil
	}
	if !q.reports.Allow(q.Node) {
		return q.refuse(wire.CodeQuotaExceeded, errTooMany)
	}
	if err := q.checkRoom(); err != nil {
		return err
	}
	next.State = q.Report
	return q.write(ctx, next)
}

// giveUp revokes what the node does not need any more.
func (q *request) giveUp(ctx context.Context) error {
	if q.entry == nil {
		return nil
	}
	if !q.givenUp.Allow(q.Node) {
		return q.refuse(wire.CodeQuotaExceeded, errTooMany)
	}
	return q.unstored(q.Revoke(ctx, q.Node, q.Name, trust.Cause{By: string(q.Node), Why: "not needed"}))
}
