package certificates

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
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

// A certificate is stuck after so many failures: of disk and action, and of requests, which an outage of the
// provisioners explains.
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

// steps does all that is due. Each step is on disk before the next one, and can be repeated.
func (m *Manager) steps(ctx context.Context, u *unit, w *want) error {
	st := u.state
	st.Source = w.source
	if w.problem != nil {
		return final{w.problem}
	}
	if st.InForce != nil && st.Specification.Renew != w.spec.Renew {
		if chain, err := st.InForce.chain(); err == nil {
			st.RenewAt = st.InForce.renewAt(&w.spec, chain[0])
		}
	}
	st.Specification = w.spec
	st.Files = make(map[string]string)
	for kind, f := range w.spec.Files.All() {
		st.Files[kind] = f.Path
	}
	err := m.renew(ctx, st)
	err = errors.Join(err, m.save(st))
	if st.Staged == nil || st.Staged.Certificate == "" {
		err = errors.Join(err, m.act(ctx, st))
	}
	if err == nil && st.State != Current {
		err = m.mark(st, Current)
	}
	return err
}

// due reports whether a new certificate is needed.
func (m *Manager) due(st *state, identity string) bool {
	p := st.InForce
	if p == nil || st.Order != "" || p.Asked != asked(&st.Specification) ||
		identity != "" && st.Identity != "" && st.Identity != identity {
		return true
	}
	now := m.cfg.Now()
	return !now.Before(st.RenewAt) || now.After(st.NotAfter.Add(-st.NotAfter.Sub(st.NotBefore)/12))
}

// renew asks for a certificate if one is due. The key is on disk before the request, so that a repeated request gets
// the certificate of the first.
func (m *Manager) renew(ctx context.Context, st *state) error {
	if p := st.Staged; p != nil && p.Certificate != "" {
		if _, err := p.check(m.cfg.Now); err == nil {
			return nil
		}
		st.Staged = nil // expired before it could be saved
	}
	identity, ask := m.connection()
	if !m.due(st, identity) {
		return nil
	}
	made, requested := KeyMade, Requested
	if st.InForce != nil {
		made, requested = Renewing, Renewing
	} else if st.State == "" {
		if err := m.mark(st, Wanted); err != nil {
			return err
		}
	}
	if ask == nil {
		return errOffline
	}
	list, err := m.targets(st, nil)
	if err != nil {
		return err
	}
	closeAll(list)
	if st.Staged == nil || st.Staged.Asked != asked(&st.Specification) || st.Identity != identity {
		former := st.InForce
		if st.Order == Rekey {
			former = nil
		}
		if st.Staged, err = newPair(&st.Specification, former, identity, m.cfg.Facts()); err != nil {
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
	spec := &st.Specification
	answer, err := ask(ctx, &wire.CertificateRequest{ID: wire.NewID(), Identity: identity, Name: st.Name,
		Verb: wire.CertificateIssue, CSR: st.Staged.CSR, Profile: spec.Profile, Network: spec.Network,
		Usages: spec.Usages, Source: st.Source, Replaces: st.Serial})
	if err != nil {
		return m.refused(st, err)
	}
	m.cfg.Step("answered")
	return m.issued(st, answer)
}

func (m *Manager) refused(st *state, err error) error {
	refusal, ok := errors.AsType[link.Refusal](err)
	if !ok {
		return unanswered{err}
	}
	if !advice.Given(err) {
		err = advice.New(err, refusal.Remedy())
	}
	switch {
	case refusal.Code.Waits():
		return errors.Join(unanswered{err}, m.mark(st, WaitingApproval))
	case !wire.MeaningOf(refusal.Code).Retry:
		return final{err}
	}
	return unanswered{err}
}

func (m *Manager) issued(st *state, answer *wire.ServiceCertificate) error {
	p := *st.Staged
	p.Certificate, p.CA, p.Jitter = answer.Certificate, answer.CA, m.cfg.Random()
	leaf, err := p.check(m.cfg.Now)
	if err == nil && answer.Name != st.Name {
		err = fmt.Errorf("it is for %q", answer.Name)
	}
	if err != nil {
		return unanswered{fmt.Errorf("the issued certificate cannot be used: %w", err)}
	}
	st.Order, st.Staged = "", &p
	if st.InForce != nil && serial(leaf) == st.Serial { // asked before the provisioner would renew
		st.Staged, st.RenewAt = nil, p.renewAt(&wire.Specification{}, leaf)
		st.InForce.Asked = p.Asked
		return m.mark(st, Current)
	}
	m.cfg.Log.Info("service certificate issued", "name", st.Name, "serial", serial(leaf),
		"not_after", leaf.NotAfter)
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
	leaf, err := p.check(m.cfg.Now)
	if errors.Is(err, trust.ErrExpired) {
		return nil // what is there stays; a new one is due
	}
	if err != nil {
		return err
	}
	list, err := m.targets(st, p)
	if err != nil {
		return err
	}
	defer closeAll(list)
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
		st.InForce, st.Staged, st.Adopted, st.Replace = p, nil, false, false
		st.describe(leaf, m.cfg.Now())
	}
	return m.mark(st, Saved)
}

// act runs the action if it has to run. It may run again after a crash.
func (m *Manager) act(ctx context.Context, st *state) error {
	if !st.Act {
		return nil
	}
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
	list, err := m.targets(st, st.InForce)
	for _, t := range list {
		if err = errors.Join(err, t.forget(st.Specification.Removed == "revoke")); err == nil {
			err = disk.SyncDir(filepath.Dir(t.path))
		}
		m.cfg.Step("removed " + t.kind)
	}
	closeAll(list)
	if st.Specification.Removed == "revoke" {
		if _, never := errors.AsType[final](err); err != nil && !never {
			return err
		}
		identity, ask := m.connection()
		if ask == nil {
			return errOffline
		}
		_, err := ask(ctx, &wire.CertificateRequest{ID: wire.NewID(), Identity: identity, Name: st.Name,
			Verb: wire.CertificateRevoke, Source: st.Source})
		if refusal, ok := errors.AsType[link.Refusal](err); err != nil && (!ok || wire.MeaningOf(refusal.Code).Retry) {
			return unanswered{err}
		} else if ok {
			m.cfg.Log.Warn("service certificate was not revoked", "name", st.Name, "err", err)
		}
	}
	path := filepath.Join(m.cfg.State, st.Name+stateSuffix)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return disk.SyncDir(m.cfg.State)
}

// forget removes what is incomplete, and the file itself if it is as it was written.
func (t *target) forget(file bool) error {
	err := t.dir.Remove(t.base + tempSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if file && t.same {
		err = errors.Join(err, t.dir.Remove(t.base))
	}
	return err
}

// settle records how the steps ended, and when to take the next ones.
func (m *Manager) settle(ctx context.Context, st *state, err error) {
	now := m.cfg.Now().UTC()
	overdue := st.InForce != nil && now.After(st.NotAfter.Add(-st.NotAfter.Sub(st.NotBefore)/10))
	_, needsPerson := errors.AsType[final](err)
	_, request := errors.AsType[unanswered](err)
	st.Next, st.Stuck, st.Reason, st.Advice = time.Time{}, false, "", ""
	switch {
	case err == nil:
		st.Tries = 0
	case errors.Is(err, errOffline) && !needsPerson:
		st.Reason, st.Stuck = errOffline.Error(), overdue
	default:
		st.Tries++
		wait := m.wait(st, err, needsPerson)
		st.Next = now.Add(wait)
		st.Reason, st.Advice = oneLine(err), advice.Of(err)
		st.Error, st.ErrorAt = st.Reason, now
		waits := st.State == WaitingApproval
		st.Stuck = needsPerson || overdue || !waits && (st.Tries >= stuckRequests || !request && st.Tries >= stuckAfter)
		if needsPerson && st.State != Removing {
			st.State, st.Since = Failed, now
		}
		level := slog.LevelWarn
		if waits {
			level = slog.LevelInfo
		}
		m.cfg.Log.Log(ctx, level, "service certificate not complete", "name", st.Name, "state", st.State,
			"stuck", st.Stuck, "err", st.Reason, "advice", st.Advice, "retry_in", wait.Round(time.Second))
	}
	m.report(ctx, st)
	if err := m.put(st); err != nil {
		m.cfg.Log.ErrorContext(ctx, "state of a service certificate not saved", "name", st.Name, "err", err)
	}
}

// oneLine returns an error for reports.
func oneLine(err error) string {
	text := wire.OneLine(link.OneLine(err).Error())
	return strings.ToValidUTF8(text[:min(len(text), wire.MaxCertificateError)], "")
}

// wait returns the wait after an error: what a refusal asks for, else a doubling one. It is at most half of what is left
// of the certificate's life.
func (m *Manager) wait(st *state, err error, needsPerson bool) time.Duration {
	bound := m.cfg.BackoffMax
	if doubled := float64(m.cfg.BackoffMin) * math.Exp2(float64(st.Tries-1)); !needsPerson && doubled < float64(bound) {
		bound = time.Duration(doubled)
	}
	wait := bound/2 + time.Duration(m.cfg.Random()*float64(bound/2))
	if refusal, ok := errors.AsType[link.Refusal](err); ok && refusal.Wait() > 0 {
		wait = refusal.Wait() + time.Duration(m.cfg.Random()*float64(refusal.Wait()/4))
	}
	if left := st.NotAfter.Sub(m.cfg.Now()); st.InForce != nil && left > 0 {
		wait = min(wait, max(left/2, m.cfg.BackoffMin))
	}
	return wait
}

// report tells the provisioner what changed.
func (m *Manager) report(ctx context.Context, st *state) {
	r := wire.CertificateState{State: st.State, Stuck: st.Stuck, Error: st.Reason, Since: st.Since}
	identity, ask := m.connection()
	if ask == nil || !slices.Contains(wire.CertificateStates, r.State) ||
		st.Reported != nil && st.Reported.State == r.State && st.Reported.Stuck == r.Stuck && st.Reported.Error == r.Error {
		return
	}
	_, err := ask(ctx, &wire.CertificateRequest{ID: wire.NewID(), Identity: identity, Name: st.Name,
		Verb: wire.CertificateReport, Source: st.Source, Report: &r})
	if err != nil {
		m.cfg.Log.DebugContext(ctx, "state of a service certificate not reported", "name", st.Name, "err", err)
		return
	}
	st.Reported = &r
}
