package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/discover"
)

// Messages that are logged once per change.
const (
	msgUnreachable  = "fleet not reached"
	msgUnconfirmed  = "confirmation not accepted"
	msgRegistration = "registration data not published"
	msgFiles        = "files do not allow to go on after a restart"
	msgRenamed      = "machine has another name than its certificate"
)

// flushTimeout bounds how long a shutdown waits for the last events to leave.
const flushTimeout = 2 * time.Second

// errRefused means that brokers have refused the certificate for long.
var errRefused = errors.New("certificate is refused by the broker")

// serve keeps a connection to the fleet until ctx is done or what is on the
// disk asks for another look, and returns nil. The error is of a command:
// [ErrRestart] or errStopped.
func (s *Server) serve(ctx context.Context, v *view) error {
	n := &duty{Server: s, view: v}
	n.schedule()
	wait := s.newBackoff()
	for ctx.Err() == nil {
		pause := wait.next()
		conn, err := n.reachAny(ctx)
		if err == nil {
			s.refused = time.Time{}
			s.sayReached(ctx, v, conn)
			s.observe(Event{Kind: EventConnected, Serial: v.creds.serial, Broker: conn.broker})
			since := time.Now()
			again, err := n.hold(ctx, conn)
			conn.Close()
			<-conn.closed
			if err != nil {
				return err
			}
			if again || ctx.Err() != nil {
				return nil
			}
			if n.strayed() {
				wait.reset()
				continue
			}
			if time.Since(since) > s.cfg.BackoffMax {
				wait.reset()
				pause = wait.next()
			}
			s.sayLost(ctx, v, conn, time.Since(since), pause)
		} else if ctx.Err() == nil {
			s.sayUnreached(ctx, v, err, pause)
			s.observe(Event{Kind: EventFailed, Err: err})
			if s.longRefused(err) && s.mayEnroll(errRefused) {
				s.refused = time.Time{} // if it comes back, they are asked for as long again
				return nil
			}
		}
		s.pause(ctx, pause, s.fingerprints())
		if n.changed(ctx) {
			return nil
		}
	}
	return nil
}

// reach connects to the first broker that takes the node.
func (s *Server) reach(ctx context.Context, v *view) (*connection, error) {
	urls, srv := s.fleetBrokers(v)
	if len(urls) == 0 && srv == "" {
		return nil, &cause{what: errors.New("no brokers configured"), remedy: "set brokers in server.conf"}
	}
	return s.reachAt(ctx, v, urls, srv)
}

// reachAt connects to the first of these brokers that takes the node.
func (s *Server) reachAt(ctx context.Context, v *view, urls []string, srv string) (*connection, error) {
	p := peer{normal: true, secure: true}
	brokers, err := s.brokers(ctx, urls, srv, true)
	if err != nil {
		return nil, explain(err, p)
	}
	var failures []error
	for _, b := range brokers {
		p.broker = b.URL
		conn, err := s.connect(ctx, v.conf, b, s.fleetOptions(v, b)...)
		if err == nil {
			return conn, nil
		}
		failures = append(failures, explain(err, p))
	}
	return nil, joined(failures)
}

// fleetBrokers is where the fleet is: what server.conf says, else the token,
// else what is compiled in.
func (s *Server) fleetBrokers(v *view) (urls []string, srv string) {
	if c := v.conf; c != nil && (len(c.brokers) > 0 || c.srvDomain != "") {
		return c.brokers, c.srvDomain
	}
	if v.token != nil {
		return v.token.urls, v.token.srv
	}
	return s.build.brokers, s.build.srvDomain
}

func (s *Server) fleetOptions(v *view, b discover.Broker) []nats.Option {
	return []nats.Option{nats.Secure(s.fleetTLS(v.creds, b.Host))}
}

// longRefused notes why no broker was reached, and reports whether each failure for so
// long was a refusal of this node's certificate.
func (s *Server) longRefused(err error) bool {
	switch {
	case !refusedByBroker(err):
		s.refused = time.Time{}
	case s.refused.IsZero():
		s.refused = time.Now()
	default:
		return time.Since(s.refused) >= s.cfg.RefusedLimit
	}
	return false
}

// refusedByBroker reports whether a broker, having proven that it is one,
// refused this node's certificate. During the handshake anybody in between can
// put in an alert, so only what comes after it counts: else whoever sits there
// could drive the node to present its token.
//
// What a broker does that hears of no provisioner says nothing of the certificate, either.
//
// Of several brokers one that refuses is enough: what keeps another from a handshake
// says nothing of that one.
func refusedByBroker(err error) bool {
	var several *brokersError
	if errors.As(err, &several) {
		return slices.ContainsFunc(several.each, refusedByBroker)
	}
	if errors.Is(err, nats.ErrTLS) || errors.Is(err, errUnanswered) {
		return false
	}
	return isRefusal(err) || isAlert(err)
}

// admittedAgain reports whether brokers that had refused the certificate for long take
// it again, as after an outage of what they ask, or take one that is over by the saved
// time only: then the node need not enroll, which its token may not be good for any
// more. So it is where a provisioner has disowned the certificate, as one does whose store
// had lost the record; that is asked no sooner than [Config.RefusedLimit] after it was said,
// since brokers may take what provisioners go on to disown.
func (s *Server) admittedAgain(ctx context.Context, v *view) bool {
	var conn *connection
	reached := func(v *view) bool {
		c, err := s.reach(ctx, v)
		if err != nil {
			return false
		}
		c.Close()
		<-c.closed
		conn = c
		return true
	}
	switch {
	case errors.Is(s.again, errRefused) && v.creds != nil && reached(v):
	case errors.Is(s.again, errDisowned) && time.Since(s.told) >= s.cfg.RefusedLimit && v.creds != nil && reached(v):
	case s.withoutSaved(ctx, v, reached) != nil:
		return true
	default:
		return false
	}
	s.again = nil
	s.cfg.Log.InfoContext(ctx, "brokers take the certificate again", "node", v.identity, "broker", conn.broker, "serial", v.creds.serial)
	return true
}

// mayEnroll reports whether the node may enroll again because of why; if so,
// the next look leads to provisioning mode.
func (s *Server) mayEnroll(why error) bool {
	before := s.again
	s.again = why
	if v, err := s.look(); err == nil && v.mode == ModeProvisioning {
		s.told = time.Now()
		return true
	}
	s.again = before
	return false
}
