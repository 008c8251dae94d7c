package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
)

// A duty is what a node in normal mode does and when.
type duty struct {
	*Server
	*view

	registrationFile  string
	registrationEvery time.Duration // 0: never
	aliveEvery        time.Duration
	nextRegistration  deadline
	nextAlive         deadline
	saidAlive         time.Time // by the process's clock
	nextConfirm       deadline
	confirmWait       *backoff
	renewal           renewal
	commands          commanding
	stray             time.Time // until when it stays with a broker of the token; zero: it is with its own
	astray            error     // why it is there; nil: it is with its own
	nextAstray        deadline  // when to say so
}

// schedule sets the times of the first of each: registration at once, alive
// after a random part of its interval, so that a fleet that was switched on
// together does not speak together for ever.
func (n *duty) schedule() {
	c := n.conf
	n.registrationFile = c.registrationFile
	if n.registrationFile == "" && n.token != nil {
		n.registrationFile = n.token.claims.Registration
	}
	n.registrationEvery, n.aliveEvery = c.registrationInterval, c.aliveInterval
	if n.cfg.RegistrationInterval > 0 {
		n.registrationEvery = n.cfg.RegistrationInterval
	}
	if n.cfg.AliveInterval > 0 {
		n.aliveEvery = n.cfg.AliveInterval
	}
	if n.registrationFile == "" {
		n.registrationEvery = 0
	}
	n.nextAlive = n.in(time.Duration(n.cfg.Rand() * float64(n.aliveEvery)))
	if n.nextRecheck == (deadline{}) {
		n.nextRecheck = n.in(time.Duration(n.cfg.Rand() * float64(n.aliveEvery)))
	}
	n.confirmWait = n.newBackoff()
	n.scheduleRenewal()
	n.commands.wait = n.newBackoff()
}

// hold does the node's duties over one connection. It returns when the
// connection is lost, when ctx is done, or, with true, when the files ask for
// another look. The error is of a command: [ErrRestart] or errStopped.
func (n *duty) hold(ctx context.Context, conn *connection) (again bool, err error) {
	n.commands.questions = nil // nonces are of one connection: the process's clock, by which they end, may have stood still since
	commands := make(chan *nats.Msg, commandBacklog)
	if _, err := conn.ChanSubscribe(wire.CommandSubject(n.identity), commands); err != nil {
		n.cfg.Log.WarnContext(ctx, "no commands are taken on this connection", "node", n.identity, "err", err)
	}
	if !n.started {
		n.started = true
		n.publishEvent(ctx, conn, lifecycleStartup, n.view)
	}
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-conn.closed:
			if time.Since(n.saidAlive) < goneAfter {
				n.nextAlive = deadline{} // perhaps nobody was there to hear it, as after a sleep
			}
			return false, nil
		case m := <-commands:
			if again, err := n.command(ctx, conn, m); again || err != nil {
				return again, err
			}
			if n.reconfigureDue() {
				tick.Reset(0)
			}
		case <-ctx.Done():
			n.publishEvent(ctx, conn, lifecycleShutdown, n.view)
			_ = conn.FlushTimeout(flushTimeout) // best effort: the process ends either way
			return false, nil
		case <-tick.C:
			if err := n.due(ctx, conn); errors.Is(err, errDisowned) && n.mayEnroll(err) {
				n.cfg.Log.WarnContext(ctx, "node enrolls again", "node", n.identity, "err", err)
				return true, nil
			}
			if n.changed(ctx) {
				return true, nil
			}
			if n.strayed() {
				return false, nil
			}
			tick.Reset(n.cfg.WatchInterval)
		}
	}
}

// due does what is due.
func (n *duty) due(ctx context.Context, conn *connection) error {
	var failed error
	if n.come(n.nextConfirm) {
		failed = n.settle(ctx, conn)
	}
	if failed == nil && n.astray != nil {
		n.saysAstray(ctx, conn)
	}
	if failed == nil && n.come(n.nextRecheck) {
		n.recheck(ctx, conn)
	}
	if failed == nil && n.renewalDue() {
		n.renew(ctx, conn)
	}
	if failed == nil && n.reconfigureDue() {
		n.reconfigure(ctx, conn)
	}
	if n.announce {
		n.announce = false
		n.publishEvent(ctx, conn, lifecycleProvisioned, n.view)
	}
	if n.registrationEvery > 0 && n.come(n.nextRegistration) {
		n.nextRegistration = n.in(n.registrationEvery)
		n.register(ctx, conn)
	}
	if n.come(n.nextAlive) {
		n.nextAlive, n.saidAlive = n.in(n.aliveEvery), time.Now()
		n.publishEvent(ctx, conn, lifecycleAlive, n.view)
		n.saveClock(ctx)
	}
	return failed
}

// settle confirms what is pending, if anything is.
func (n *duty) settle(ctx context.Context, conn *connection) error {
	p, err := n.readPending()
	if err != nil && !passing(err) {
		err = n.askAnew(ctx, err)
	}
	if err == nil && (p == nil || n.stays != nil && *p == *n.stays) {
		n.nextConfirm = n.in(maxInterval) // nothing makes one in this mode
		return nil
	}
	after := time.Duration(0)
	if err == nil {
		after, err = n.confirm(ctx, conn, n.creds.key, *p)
	}
	if err == nil {
		n.once.solved(msgUnconfirmed)
		n.cfg.Log.InfoContext(ctx, "node provisioned", "node", n.identity, "serial", n.creds.serial, "elapsed", n.elapsed())
		n.observe(Event{Kind: EventConfirmed, Serial: n.creds.serial, Broker: conn.broker, Elapsed: n.elapsed()})
		n.nextConfirm = n.in(maxInterval)
		return nil
	}
	n.nextConfirm = n.in(max(after, n.confirmWait.next()))
	if ctx.Err() == nil {
		n.once.problem(ctx, n.cfg.Log, slog.LevelWarn, msgUnconfirmed, explain(err, peer{normal: true, broker: conn.broker}), "node", n.identity)
	}
	return err
}

// changed reports whether the files, or the certificate's end, ask for another
// look. Files that would allow no mode at all are logged, and change nothing
// while the node works.
func (n *duty) changed(ctx context.Context) bool {
	files := n.setFingerprints()
	expired := !n.nowFor(n.creds.leaf().NotBefore).Before(n.creds.leaf().NotAfter)
	if files == n.files && !expired {
		return false
	}
	v, err := n.look()
	if err != nil {
		n.once.problem(ctx, n.cfg.Log, slog.LevelError, msgFiles, err, "node", n.identity)
		return false
	}
	n.once.solved(msgFiles)
	return v.mode != ModeNormal || files != n.files
}

// register publishes registration data: the content of a file, as it is.
func (n *duty) register(ctx context.Context, conn *connection) {
	b, err := outside(ctx, n.Server, "registration", n.registrationFile, readRegistration)
	if err == nil {
		err = conn.Publish(wire.RegistrationSubject(n.identity), b)
	}
	if err != nil {
		n.once.problem(ctx, n.cfg.Log, slog.LevelWarn, msgRegistration, err, "node", n.identity)
		return
	}
	n.once.solved(msgRegistration)
	n.observe(Event{Kind: EventRegistered})
}
