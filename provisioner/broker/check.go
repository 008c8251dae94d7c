package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"muster/internal/wire"
)

// admitTimeout bounds one decision of the gate. Chosen below the time after
// which clients give up connecting.
const admitTimeout = 4 * time.Second

// authentication asks the gate on behalf of the NATS server. It replaces every
// other way to authenticate that the server has.
type authentication struct {
	b        *Broker
	life     context.Context            // ends with the broker
	accounts map[string]*server.Account // set before the server starts, then read-only
	sessions *sessions                  // of the server; set before it starts, then read-only
}

// Check implements [server.Authentication]. The server calls it for every
// CONNECT, on the connection's own goroutine; a second CONNECT on the same
// connection is decided anew.
func (a *authentication) Check(c server.ClientAuthentication) bool {
	ctx, cancel := context.WithTimeout(a.life, admitTimeout)
	defer cancel()
	p, err := a.present(c)
	if err == nil {
		err = a.admit(ctx, c, p)
	}
	if err == nil {
		return true
	}
	d := deny(wire.CodeDenied, err)
	p = p.withoutSecrets()
	a.b.log.refused(ctx, p, d)
	if a.b.cfg.Refused != nil {
		a.b.cfg.Refused(ctx, p, d)
	}
	return false
}

// admit asks the gate and registers what it says.
func (a *authentication) admit(ctx context.Context, c server.ClientAuthentication, p Presented) error {
	rechecks := a.b.rechecks.Load()
	admission, err := a.b.gate.Authorize(ctx, p)
	if err != nil {
		return err
	}
	a.register(c, admission)
	if err := a.remember(c, admission, p); err != nil {
		return err
	}
	// A node that was revoked since the gate looked is not among the
	// connections that Recheck found, if it counted before we remembered.
	// It counts before it looks, so either it sees us or we see its count.
	if admission.Account == AccountFleet && a.b.rechecks.Load() != rechecks {
		_, err = a.b.gate.Authorize(ctx, p)
	}
	return err
}

// remember makes a connection of the fleet known to [Broker.Recheck].
func (a *authentication) remember(c server.ClientAuthentication, admission *Admission, p Presented) error {
	if admission.Account != AccountFleet {
		return nil
	}
	number, ok := numberOf(c)
	if !ok {
		// It could not be ended: rather have no fleet than that.
		return &Denied{wire.CodeUnavailable, fmt.Errorf("connection of type %T has no number", c)}
	}
	a.sessions.add(wire.Identity(admission.User), session{number, certificateOf(p.Certificates[0])})
	return nil
}

// register tells the server who c is and what it may do.
func (a *authentication) register(c server.ClientAuthentication, admission *Admission) {
	u := &server.User{
		Username:    admission.User,
		Account:     a.accounts[admission.Account],
		Permissions: permissions(admission),
	}
	if !admission.Deadline.IsZero() {
		// The server's timer runs on the real clock, and the gate on ours.
		u.ConnectionDeadline = time.Now().Add(admission.Deadline.Sub(a.b.cfg.Gate.Now()))
	}
	c.RegisterUser(u)
}

// permissions returns the server's form of what a may do, nil for everything.
func permissions(a *Admission) *server.Permissions {
	if isEverything(a.Publish) && isEverything(a.Subscribe) {
		return nil
	}
	p := &server.Permissions{Publish: allow(a.Publish), Subscribe: allow(a.Subscribe)}
	if a.Responses > 0 {
		p.Response = &server.ResponsePermission{MaxMsgs: a.Responses, Expires: a.ResponseTTL}
	}
	return p
}

// allow returns the permission for the subjects in list. The server takes an
// empty list for no limit.
func allow(list []string) *server.SubjectPermission {
	if len(list) == 0 {
		return &server.SubjectPermission{Deny: []string{">"}}
	}
	return &server.SubjectPermission{Allow: list}
}

// present returns what c presents.
func (a *authentication) present(c server.ClientAuthentication) (Presented, error) {
	o := c.GetOpts()
	p := Presented{
		Name: o.Name, Token: wire.Secret(o.Token), Username: o.Username, Password: wire.Secret(o.Password),
		Nkey: o.Nkey, Signature: o.Sig, Nonce: string(c.GetNonce()),
	}
	if addr := c.RemoteAddress(); addr != nil {
		p.Address = addr.String()
		p.InProcess = addr.Network() == "pipe"
	}
	if c.Kind() != server.CLIENT {
		return p, &Denied{wire.CodeDenied, errors.New("not a client connection")}
	}
	if state := c.GetTLSConnectionState(); state != nil && len(state.PeerCertificates) > 0 {
		if len(state.VerifiedChains) > 0 {
			p.Certificates = state.VerifiedChains[0]
			return p, nil
		}
		chain, err := a.b.verified(state.PeerCertificates) // of WebSocket
		if err != nil {
			return p, &Denied{wire.CodeDenied, err}
		}
		p.Certificates = chain
	}
	return p, nil
}
