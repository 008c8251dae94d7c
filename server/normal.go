package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"muster/server/orders"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/link"
)

const flushTimeout = 2 * time.Second

type nodeContext struct {
	*agent
	*inspection
}

func (d nodeContext) alive() time.Duration { return cmp.Or(d.cfg.AliveInterval, d.conf.AliveInterval) }

type member struct {
	nodeContext
	renewal  *renewal
	commands *commands

	nextRegistration, nextAlive, nextProbe time.Time

	facts       watched   // as they were last looked at
	nextConfirm time.Time // of the set in force
	confirmWait *link.Backoff

	// Of tryBrokers.
	tried     watched
	nextTry   time.Time
	unreached error
}

// serve stays connected to the fleet until ctx is done or the agent has to read its files again. The error is a
// command's: [ErrRestart] or errStopped.
func (a *agent) serve(ctx context.Context, v *inspection) error {
	d := nodeContext{a, v}
	m := &member{nodeContext: d, renewal: newRenewal(d), confirmWait: a.newBackoff()}
	m.commands = &commands{nodeContext: d, renewal: m.renewal}
	// Nodes that were switched on together do not publish together.
	m.nextAlive = time.Now().Add(time.Duration(a.cfg.hooks.random() * float64(d.alive())))
	wait := a.newBackoff()
	for ctx.Err() == nil {
		pause := wait.Next()
		conn, err := m.connect(ctx)
		switch {
		case err == nil:
			began := time.Now()
			again, err := m.serveConnection(ctx, conn)
			if again || err != nil || ctx.Err() != nil {
				return err
			}
			if time.Since(began) > a.cfg.BackoffMax {
				wait.Reset()
				pause = wait.Next()
			}
			a.problems.problem(ctx, slog.LevelWarn, msgLost, lostError(conn), "node", v.identity,
				"broker", conn.Broker, "retry_in", rounded(pause))
		case ctx.Err() == nil:
			a.problems.problem(ctx, slog.LevelWarn, msgUnreachable, err, "node", v.identity, "retry_in", rounded(pause))
			a.observe(Event{Kind: EventFailed, Err: err})
			if m.mustEnrollAgain() {
				return nil
			}
		}
		a.waitFor(ctx, pause, v.watched)
		if m.changed(ctx, false) {
			return nil
		}
	}
	return nil
}

func lostError(conn *link.Conn) error {
	if err := conn.LastError(); err != nil {
		return err
	}
	return errors.New("closed by the other end")
}

func (m *member) serveConnection(ctx context.Context, conn *link.Conn) (again bool, err error) {
	defer conn.End()
	m.cfg.Log.InfoContext(ctx, "connected to the fleet", "node", m.identity, "broker", conn.Broker,
		"serial", m.creds.Serial)
	m.observe(Event{Kind: EventConnected, Serial: m.creds.Serial})
	m.saveClock(ctx)
	return m.runConnection(ctx, conn)
}

// saveClock does not save a time by which no certificate is valid: it would lock the node out later.
func (m *member) saveClock(ctx context.Context) {
	if m.clockFault() != nil {
		return
	}
	if err := m.clock.save(m.creds.Leaf().NotBefore); err != nil {
		m.cfg.Log.DebugContext(ctx, "time not saved", "err", err)
	}
	m.cfg.hooks.steps("clock saved")
}

// A faulty policy may name brokers that do not exist. So that a fleet is not lost, connect tries the token's brokers
// with the certificate, and orders a reconfiguration, if no broker of the set was reached within RefusedLimit.
func (m *member) connect(ctx context.Context) (*link.Conn, error) {
	c, now := &m.state.contact, time.Now()
	if urls, srv := m.fleetBrokers(); c.srv != srv || !slices.Equal(c.urls, urls) {
		*c = contact{urls: urls, srv: srv}
	}
	conn, err := m.connectFleet(ctx, m.inspection)
	if err == nil {
		*c = contact{urls: c.urls, srv: c.srv, reached: true}
		m.problems.solved(msgTokenBroker)
		return conn, nil
	}
	if c.unreached.IsZero() {
		c.unreached = now
	}
	if !link.RefusedByBroker(err) {
		c.refused = time.Time{}
	} else if c.refused.IsZero() {
		c.refused = now
	}
	if c.reached || !c.refused.IsZero() || now.Sub(c.unreached) < m.cfg.RefusedLimit || m.token == nil {
		return nil, err
	}
	conn, failed := m.connectAny(ctx, m.inspection, m.token.URLs(), m.token.SRVDomain)
	if failed != nil {
		return nil, err
	}
	m.problems.problem(ctx, slog.LevelWarn, msgTokenBroker, advice.New(err,
		"correct the brokers in the policy's configuration; the node asks for its configuration again"),
		"node", m.identity, "broker", conn.Broker)
	if err := m.orders.Accept(orders.Order{ID: wire.NewID(), Verb: wire.VerbReconfigure}); err != nil {
		m.cfg.Log.WarnContext(ctx, "could not write the order to reconfigure", "node", m.identity, "err", err)
	}
	return conn, nil
}

// mustEnrollAgain reports whether brokers refused the certificate at every attempt for RefusedLimit, and the node may
// enroll again.
func (m *member) mustEnrollAgain() bool {
	c := m.state.contact
	return !c.refused.IsZero() && time.Since(c.refused) >= m.cfg.RefusedLimit && m.state.mayEnroll(errRefused)
}

// runConnection returns true if the agent has to read its files again.
func (m *member) runConnection(ctx context.Context, conn *link.Conn) (again bool, err error) {
	m.commands.challenge = challenge{} // a nonce belongs to one connection
	incoming := make(chan *nats.Msg, commandBacklog)
	if _, err := conn.ChanSubscribe(wire.CommandSubject(m.identity), incoming); err != nil {
		m.cfg.Log.WarnContext(ctx, "commands not received on this connection", "node", m.identity, "err", err)
	}
	_ = conn.FlushTimeout(flushTimeout)
	m.renewal.unrecorded = errors.Is(conn.LastError(), nats.ErrPermissionViolation)
	if !m.renewal.unrecorded {
		m.services.Connect(m.connected(conn))
		defer m.services.Connect(nil)
	}
	if !m.startupSent && !m.renewal.unrecorded {
		m.startupSent = true
		m.publishEvent(ctx, conn, lifecycleStartup, m.inspection)
	}
	if m.faults.published != "" {
		m.faults.published = "?" // the last event may have been lost with the former connection
	}
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-conn.Closed:
			return false, nil
		case msg := <-incoming:
			again, err := m.commands.handle(ctx, conn, msg)
			if again || err != nil {
				return again, err
			}
			tick.Reset(0)
		case <-ctx.Done():
			m.publishEvent(ctx, conn, lifecycleShutdown, m.inspection)
			_ = conn.FlushTimeout(flushTimeout)
			return false, nil
		case <-tick.C:
			m.cfg.Alive()
			if err := m.runDue(ctx, conn); errors.Is(err, errDisowned) && m.state.mayEnroll(err) {
				m.cfg.Log.WarnContext(ctx, "node enrolls again", "node", m.identity, "err", err)
				return true, nil
			}
			if m.changed(ctx, true) {
				return true, nil
			}
			m.publishFaults(ctx, conn)
			tick.Reset(m.cfg.WatchInterval)
		}
	}
}

func (m *member) runDue(ctx context.Context, conn *link.Conn) error {
	if m.renewal.unrecorded {
		if m.renewal.mayTry() {
			m.renewal.renew(ctx, conn)
		}
		return nil
	}
	m.checkHealth(ctx)
	var failed error
	if !time.Now().Before(m.nextConfirm) {
		failed = m.confirmPending(ctx, conn)
	}
	if failed == nil && m.renewal.renewalDue() {
		m.renewal.renew(ctx, conn)
	}
	if failed == nil && m.renewal.reconfigureDue() {
		m.renewal.reconfigure(ctx, conn)
	}
	if m.announceProvisioned {
		m.announceProvisioned = false
		m.publishEvent(ctx, conn, lifecycleProvisioned, m.inspection)
	}
	if m.publishDue(ctx, conn) {
		m.saveClock(ctx)
	}
	return failed
}

// changed reports whether the agent has to read its files again. It reports files that allow no mode, and the node
// continues. A connected node also continues with damaged files and a wrong clock: its connection still works.
func (m *member) changed(ctx context.Context, connected bool) bool {
	expired, changed := m.clockFault(), m.watched.changed()
	if connected {
		m.report(ctx, slog.LevelError, faultClock, msgClock, expired)
	}
	if !changed && (connected || expired == nil) {
		m.report(ctx, slog.LevelError, faultFiles, msgFiles, m.sets.checkSafe())
		m.renewal.repair = false
		return false
	}
	v, err := m.state.inspect()
	if connected && err == nil {
		err = cmp.Or(m.damage(v), m.tryBrokers(ctx, v))
	}
	m.report(ctx, slog.LevelError, faultFiles, msgFiles, err)
	return err == nil && (v.mode != ModeNormal || changed)
}

// publishDue reports whether it published an alive event.
func (m *member) publishDue(ctx context.Context, conn *link.Conn) bool {
	now, every := time.Now(), cmp.Or(m.cfg.hooks.registration, m.conf.RegistrationInterval)
	if file := m.registrationFile(); file != "" && every > 0 && !now.Before(m.nextRegistration) {
		m.nextRegistration = now.Add(every)
		m.register(ctx, conn, file)
	}
	if now.Before(m.nextAlive) {
		return false
	}
	m.nextAlive = now.Add(m.alive())
	m.publishEvent(ctx, conn, lifecycleAlive, m.inspection)
	return true
}

func (m *member) register(ctx context.Context, conn *link.Conn, file string) {
	b, err := readRegistration(file)
	if err == nil {
		err = conn.Publish(wire.RegistrationSubject(m.identity), b)
	}
	if err != nil {
		m.problems.problem(ctx, slog.LevelWarn, msgRegistration, err, "node", m.identity)
		return
	}
	m.problems.solved(msgRegistration)
}
