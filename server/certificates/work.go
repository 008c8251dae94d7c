package certificates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/internal/disk"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/link"
	"muster/server/trust"
)

// checkEvery is how often the files of a certificate are compared with what they should be.
const checkEvery = time.Minute

// A certificate is stuck after so many failures: of disk and action, and of requests, which an outage explains.
const (
	stuckAfter    = 3
	stuckRequests = 10
)

// errOffline waits for a connection.
var errOffline = errors.New("no connection to the fleet")

// final is an error that needs a person. It is tried again, seldom.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// send asks the provisioner about a certificate. The error is errOffline, final or a [link.Unanswered].
func (m *Manager) send(ctx context.Context, st *state, r wire.CertificateRequest) (*wire.ServiceCertificate, error) {
	node := m.node.Load()
	if node == nil {
		return nil, errOffline
	}
	r.ID, r.Identity, r.Name, r.Source = wire.NewID(), node.Identity, st.Name, st.Source
	answer, err := node.Ask(ctx, &r)
	m.cfg.Step("answered")
	if err == nil {
		return answer, nil
	}
	refusal, refused := errors.AsType[link.Refusal](err)
	if refused && !refusal.Code.Waits() && !wire.MeaningOf(refusal.Code).Retry {
		return nil, final{err}
	}
	return nil, link.Unanswered{Err: err}
}

// steps does all that is due. Each step is on disk before the next one, and can be repeated.
func (m *Manager) steps(ctx context.Context, st *state) error {
	w := st.want
	st.Source = w.source
	if w.gone {
		return m.remove(ctx, st)
	}
	if w.problem != nil {
		return final{w.problem}
	}
	st.Specification, st.Act = w.spec, st.Act && w.spec.Action != ""
	err := m.renew(ctx, st)
	err = errors.Join(err, m.save(st))
	if st.Act && st.issued() == nil {
		err = errors.Join(err, m.act(ctx, st))
	}
	if err == nil {
		err = m.mark(st, Current)
	}
	return err
}

// issued returns the pair that is to be put in force.
func (st *state) issued() *pair {
	if st.Staged == nil || st.Staged.Certificate == "" {
		return nil
	}
	return st.Staged
}

func (st *state) due(n *Node, now time.Time) bool {
	p := st.InForce
	return p == nil || st.Order != "" || !p.isFor(&st.Specification) || !now.Before(st.RenewAt) ||
		n != nil && st.Identity != "" && st.Identity != n.Identity
}

// renew asks for a certificate if one is due. The key is on disk before the request, so that a repeated request gets
// the certificate of the first.
func (m *Manager) renew(ctx context.Context, st *state) error {
	if p := st.issued(); p != nil {
		if _, err := p.check(m.cfg.Clock); err == nil {
			return nil
		}
		st.Staged = nil // expired before it could be saved
	}
	node := m.node.Load()
	if !st.due(node, m.now()) {
		return nil
	}
	if st.Staged == nil {
		st.enter(Wanted, m.now())
	}
	if node == nil {
		return errOffline
	}
	if _, err := m.targets(st, nil); err != nil {
		return err
	}
	spec := &st.Specification
	if st.Staged == nil || !st.Staged.isFor(spec) || st.Identity != node.Identity {
		former := st.InForce
		if st.Order == Rekey {
			former = nil
		}
		var err error
		if st.Staged, err = newPair(spec, former, node); err != nil {
			return err
		}
		st.Identity = node.Identity
		if err := m.mark(st, KeyMade); err != nil {
			return err
		}
	}
	if st.State != WaitingApproval {
		if err := m.mark(st, Requested); err != nil {
			return err
		}
	}
	answer, err := m.send(ctx, st, wire.CertificateRequest{Verb: wire.CertificateIssue, CSR: st.Staged.CSR,
		Profile: spec.Profile, Network: spec.Network, Usages: spec.Usages, Replaces: st.Serial})
	if refusal, ok := errors.AsType[link.Refusal](err); ok && refusal.Code.Waits() {
		return errors.Join(err, m.mark(st, WaitingApproval))
	} else if err != nil {
		return err
	}
	p := *st.Staged
	p.Certificate, p.CA, p.Jitter = answer.Certificate, answer.CA, m.cfg.Random()
	leaf, err := p.check(m.cfg.Clock)
	if err != nil {
		return link.Unanswered{Err: fmt.Errorf("the issued certificate cannot be used: %w", err)}
	}
	st.Staged = &p
	m.cfg.Log.InfoContext(ctx, "service certificate issued", "name", st.Name, "serial", leaf.SerialNumber.Text(16),
		"until", leaf.NotAfter)
	return m.mark(st, Issued)
}

// save puts the issued certificate in force, or mends the files of the one in force.
func (m *Manager) save(st *state) error {
	p := cmp.Or(st.issued(), st.InForce)
	if p == nil || st.issued() == nil && st.adopted() {
		return nil
	}
	if _, err := p.check(m.cfg.Clock); errors.Is(err, trust.ErrExpired) {
		return nil // what is there stays; a new one is due
	} else if err != nil {
		return err
	}
	list, err := m.targets(st, p)
	if err != nil {
		return err
	}
	if p == st.InForce && !slices.ContainsFunc(list, func(t *target) bool { return !t.same }) {
		return nil
	}
	st.Written = nil
	for _, t := range list {
		st.Written = append(st.Written, t.path)
	}
	st.Act = st.Specification.Action != ""
	if err := m.mark(st, Issued); err != nil {
		return err
	}
	if err := m.write(list); err != nil {
		return err
	}
	if p == st.Staged {
		p.Saved = m.now().UTC()
		st.InForce, st.Staged, st.Order = p, nil, ""
	}
	return m.mark(st, Saved)
}

func (m *Manager) act(ctx context.Context, st *state) error {
	a, err := m.cfg.action(st.Specification.Action)
	if err != nil {
		return final{err}
	}
	st.Action, err = a.run(ctx, st.Name, &st.Specification)
	st.Action.At = m.now().UTC()
	m.cfg.Step("action ended")
	if err != nil {
		return err
	}
	st.Act = false
	return m.mark(st, ActedOn)
}

func (m *Manager) remove(ctx context.Context, st *state) error {
	if err := m.mark(st, Removing); err != nil {
		return err
	}
	revoke := st.Specification.Removed == "revoke" && (st.InForce != nil || st.Staged != nil)
	list, err := m.targets(st, st.InForce)
	for _, t := range list {
		err = errors.Join(err, remove(t.path+tempSuffix))
		if revoke && t.same && t.data != nil {
			err = errors.Join(err, remove(t.path), disk.SyncDir(filepath.Dir(t.path)))
			m.cfg.Step("removed " + t.kind)
		}
	}
	if err != nil && !errors.As(err, new(final)) {
		return err
	}
	if revoke {
		_, err := m.send(ctx, st, wire.CertificateRequest{Verb: wire.CertificateRevoke})
		if errors.As(err, new(final)) {
			m.cfg.Log.WarnContext(ctx, "service certificate was not revoked", "name", st.Name, "err", err)
		} else if err != nil {
			return err
		}
	}
	return errors.Join(remove(filepath.Join(m.cfg.State, st.Name+".json")), disk.SyncDir(m.cfg.State))
}

func (m *Manager) settle(ctx context.Context, st *state, err error) {
	now := m.now().UTC()
	overdue := st.InForce != nil && now.After(st.NotAfter.Add(st.NotBefore.Sub(st.NotAfter)/10))
	needsPerson, request := errors.As(err, new(final)), errors.As(err, new(link.Unanswered))
	st.Next, st.Stuck, st.Reason, st.Advice = time.Time{}, false, "", ""
	switch {
	case err == nil:
		st.Tries = 0
	case errors.Is(err, errOffline) && !needsPerson:
		st.Reason, st.Stuck = errOffline.Error(), overdue
	default:
		st.Tries++
		wait := m.wait(st, err, needsPerson)
		st.Next, st.Reason, st.Advice = now.Add(wait), oneLine(err), advice.Of(err)
		st.Error, st.ErrorAt = st.Reason, now
		waits := st.State == WaitingApproval
		st.Stuck = needsPerson || overdue || !waits && (st.Tries >= stuckRequests || !request && st.Tries >= stuckAfter)
		if needsPerson && st.State != Removing {
			st.enter(Failed, now)
		}
		m.cfg.Log.WarnContext(ctx, "service certificate not complete", "name", st.Name, "state", st.State,
			"err", st.Reason, "remedy", st.Advice, "retry_in", wait.Round(time.Millisecond))
	}
	m.report(ctx, st)
	if err := m.put(st); err != nil {
		m.cfg.Log.ErrorContext(ctx, "state of a service certificate not saved", "name", st.Name, "err", err)
	}
	if st.next = cmp.Or(st.Next, now.Add(checkEvery)); err == nil && st.RenewAt.Before(st.next) {
		st.next = st.RenewAt
	}
}

func oneLine(err error) string {
	text := wire.OneLine(link.OneLine(err).Error())
	return strings.ToValidUTF8(text[:min(len(text), wire.MaxCertificateError)], "")
}

// wait returns the wait after an error. It is at most half of what is left of the certificate's life.
func (m *Manager) wait(st *state, err error, needsPerson bool) time.Duration {
	b := link.Backoff{Min: m.cfg.BackoffMin, Max: m.cfg.BackoffMax, Random: m.cfg.Random, Tries: st.Tries - 1}
	if needsPerson {
		b.Tries = 30
	}
	wait := b.AfterError(err)
	if left := st.NotAfter.Sub(m.now()); left > 0 {
		wait = min(wait, max(left/2, m.cfg.BackoffMin))
	}
	return wait
}

func (m *Manager) report(ctx context.Context, st *state) {
	r := wire.CertificateState{State: st.State, Stuck: st.Stuck, Error: st.Reason, Since: st.Since}
	if st.Reported == r || !slices.Contains(wire.CertificateStates, r.State) {
		return
	}
	_, err := m.send(ctx, st, wire.CertificateRequest{Verb: wire.CertificateReport, Report: &r})
	if err == nil {
		st.Reported = r
	} else {
		m.cfg.Log.DebugContext(ctx, "state of a service certificate not reported", "name", st.Name, "err", err)
	}
}

func (m *Manager) adopt(st *state) error {
	w := st.want
	if w.problem != nil {
		return w.problem
	}
	st.Source, st.Specification, st.Order = w.source, w.spec, Adopt
	list, err := m.targets(st, nil)
	if err != nil {
		return err
	}
	p, leaf, err := found(list)
	if err == nil && m.now().After(leaf.NotAfter) {
		err = fmt.Errorf("%w, at %s", trust.ErrExpired, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if err != nil {
		return err
	}
	p.Asked, p.Jitter = asked(w.spec), m.cfg.Random()
	st.InForce, st.Staged, st.Written, st.Order, st.Tries = p, nil, nil, "", 0
	return m.mark(st, Current)
}

func (m *Manager) end(st *state, revoke bool) error {
	if st.want.source == "pushed" && !st.want.gone {
		return advice.Errorf("remove it from the policy's decision", "the provisioner wants %s", st.Name)
	}
	if revoke {
		st.Specification.Removed = "revoke"
		if err := m.put(st); err != nil {
			return err
		}
	}
	return remove(m.cfg.specification(st.Name))
}
