package certificates

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// unanswered is an error of a request.
type unanswered struct{ error }

func (u unanswered) Unwrap() error { return u.error }

// send asks the provisioner about a certificate. The error is errOffline, final or unanswered.
func (m *Manager) send(ctx context.Context, st *state, r wire.CertificateRequest) (*wire.ServiceCertificate, error) {
	identity, ask := m.connection()
	if ask == nil {
		return nil, errOffline
	}
	r.ID, r.Identity, r.Name, r.Source = wire.NewID(), identity, st.Name, st.Source
	answer, err := ask(ctx, &r)
	m.cfg.Step("answered")
	refusal, refused := errors.AsType[link.Refusal](err)
	switch {
	case err == nil:
		return answer, nil
	case refused && !advice.Given(err):
		err = advice.New(err, refusal.Remedy())
	}
	if refused && !refusal.Code.Waits() && !wire.MeaningOf(refusal.Code).Retry {
		return nil, final{err}
	}
	return nil, unanswered{err}
}

// steps does all that is due. Each step is on disk before the next one, and can be repeated.
func (m *Manager) steps(ctx context.Context, st *state, w *want) error {
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
	if st.Act && (st.Staged == nil || st.Staged.Certificate == "") {
		err = errors.Join(err, m.act(ctx, st))
	}
	if err == nil {
		err = m.mark(st, Current)
	}
	return err
}

// due reports whether a new certificate is needed.
func (m *Manager) due(st *state, identity string) bool {
	p, now := st.InForce, m.cfg.Now()
	return p == nil || st.Order != "" || !p.isFor(&st.Specification) ||
		identity != "" && st.Identity != "" && st.Identity != identity ||
		!now.Before(st.RenewAt) || now.After(st.NotAfter.Add(st.NotBefore.Sub(st.NotAfter)/12))
}

// renew asks for a certificate if one is due. The key is on disk before the request, so that a repeated request gets
// the certificate of the first.
func (m *Manager) renew(ctx context.Context, st *state) error {
	if p := st.Staged; p != nil && p.Certificate != "" {
		if _, err := p.check(m.cfg.Now()); err == nil {
			return nil
		}
		st.Staged = nil // expired before it could be saved
	}
	identity, ask := m.connection()
	if !m.due(st, identity) {
		return nil
	}
	wanted, made, requested := Wanted, KeyMade, Requested
	if st.InForce != nil {
		wanted, made, requested = Renewing, Renewing, Renewing
	}
	if st.Staged == nil {
		st.enter(wanted, m.cfg.Now())
	}
	if ask == nil {
		return errOffline
	}
	if _, err := m.targets(st, nil); err != nil {
		return err
	}
	spec := &st.Specification
	if st.Staged == nil || !st.Staged.isFor(spec) || st.Identity != identity {
		former := st.InForce
		if st.Order == Rekey {
			former = nil
		}
		var err error
		if st.Staged, err = newPair(spec, former, identity, m.cfg.Facts()); err != nil {
			return err
		}
		st.Identity = identity
		if err := m.mark(st, made); err != nil {
			return err
		}
	}
	if st.State != WaitingApproval {
		if err := m.mark(st, requested); err != nil {
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
	leaf, err := p.check(m.cfg.Now())
	if err != nil {
		return unanswered{fmt.Errorf("the issued certificate cannot be used: %w", err)}
	}
	st.Order, st.Staged = "", &p
	m.cfg.Log.InfoContext(ctx, "service certificate issued", "name", st.Name, "serial", leaf.SerialNumber.Text(16),
		"until", leaf.NotAfter)
	return m.mark(st, Issued)
}

// save puts the issued certificate in force, or mends the files of the one in force.
func (m *Manager) save(st *state) error {
	p := st.Staged
	if p == nil || p.Certificate == "" {
		if p = st.InForce; p == nil || st.Adopted {
			return nil
		}
	}
	if _, err := p.check(m.cfg.Now()); errors.Is(err, trust.ErrExpired) {
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
		p.Saved = m.cfg.Now().UTC()
		st.InForce, st.Staged, st.Adopted, st.Replace = p, nil, false, false
	}
	st.describe()
	return m.mark(st, Saved)
}

// act runs the action. It may run again after a crash.
func (m *Manager) act(ctx context.Context, st *state) error {
	a, err := m.cfg.action(st.Specification.Action)
	if err != nil {
		return final{err}
	}
	<-m.slots // keys and requests of other certificates go on meanwhile
	m.acting <- struct{}{}
	st.Action, err = a.run(ctx, st.Name, &st.Specification)
	<-m.acting
	m.slots <- struct{}{}
	st.Action.At = m.cfg.Now().UTC()
	m.cfg.Step("action ended")
	if err != nil {
		return err
	}
	st.Act = false
	return m.mark(st, ActedOn)
}

// remove does what the specification says for its own end. The state file goes last.
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

// settle records how the steps ended, and returns when to take the next ones. What falls due while they were taken is
// due at once.
func (m *Manager) settle(ctx context.Context, st *state, err error, began time.Time) (next time.Time) {
	st.describe()
	now := m.cfg.Now().UTC()
	overdue := st.InForce != nil && now.After(st.NotAfter.Add(st.NotBefore.Sub(st.NotAfter)/10))
	needsPerson, request := errors.As(err, new(final)), errors.As(err, new(unanswered))
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
	if next = st.Next; next.IsZero() {
		next = began.Add(checkEvery)
		if at := st.RenewAt; err == nil && at.After(began) && at.Before(next) {
			next = at
		}
	}
	return next
}

// oneLine returns an error for reports.
func oneLine(err error) string {
	text := wire.OneLine(link.OneLine(err).Error())
	return strings.ToValidUTF8(text[:min(len(text), wire.MaxCertificateError)], "")
}

// wait returns the wait after an error: what a refusal asks for, else a doubling one. It is at most half of what is
// left of the certificate's life.
func (m *Manager) wait(st *state, err error, needsPerson bool) time.Duration {
	bound := m.cfg.BackoffMax
	if doubled := float64(m.cfg.BackoffMin) * math.Exp2(float64(st.Tries-1)); !needsPerson && doubled < float64(bound) {
		bound = time.Duration(doubled)
	}
	wait := bound/2 + time.Duration(m.cfg.Random()*float64(bound/2))
	if refusal, ok := errors.AsType[link.Refusal](err); ok && refusal.Wait() > 0 {
		wait = refusal.Wait() + time.Duration(m.cfg.Random()*float64(refusal.Wait()/4))
	}
	if left := st.NotAfter.Sub(m.cfg.Now()); left > 0 {
		wait = min(wait, max(left/2, m.cfg.BackoffMin))
	}
	return wait
}

// report tells the provisioner what changed.
func (m *Manager) report(ctx context.Context, st *state) {
	r := wire.CertificateState{State: st.State, Stuck: st.Stuck, Error: st.Reason}
	if st.Reported == r || !slices.Contains(wire.CertificateStates, r.State) {
		return
	}
	told := r
	told.Since = st.Since
	_, err := m.send(ctx, st, wire.CertificateRequest{Verb: wire.CertificateReport, Report: &told})
	if err == nil {
		st.Reported = r
	} else {
		m.cfg.Log.DebugContext(ctx, "state of a service certificate not reported", "name", st.Name, "err", err)
	}
}

// adopt puts the key and certificate in force that are in the files.
func (m *Manager) adopt(st *state, w *want) error {
	if w.problem != nil {
		return w.problem
	}
	st.Source, st.Specification, st.Replace = w.source, w.spec, true
	list, err := m.targets(st, nil)
	if err != nil {
		return err
	}
	p, leaf, err := found(list)
	if err == nil && m.cfg.Now().After(leaf.NotAfter) {
		err = fmt.Errorf("%w, at %s", trust.ErrExpired, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if err != nil {
		return err
	}
	p.Asked, p.Jitter = asked(&st.Specification), m.cfg.Random()
	st.InForce, st.Staged, st.Adopted, st.Order, st.Tries = p, nil, true, "", 0
	st.describe()
	return m.mark(st, Current)
}

// end removes the specification's file.
func (m *Manager) end(st *state, w *want, revoke bool) error {
	if w.source == "pushed" && !w.gone {
		return advice.Errorf("remove it from the policy's decision", "the provisioner wants %s", st.Name)
	}
	if revoke {
		st.Specification.Removed = "revoke"
		if err := m.put(st); err != nil {
			return err
		}
	}
	return remove(filepath.Join(m.cfg.Specifications, st.Name+".yaml"))
}
